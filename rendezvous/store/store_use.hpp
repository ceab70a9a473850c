// What a server has done and holds, for those who watch it.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "rendezvous/store/protocol.hpp"

namespace cpprun::store {

struct StoreUse {
  std::array<std::uint64_t, kLastOp + 1> requests{};  // by opcode
  // Of the time between a read and the sending of its replies: how many took at most kTurnBounds[i].
  static constexpr std::array<std::chrono::microseconds, 8> kTurnBounds{
      std::chrono::microseconds(10),      std::chrono::microseconds(30),
      std::chrono::microseconds(100),     std::chrono::microseconds(300),
      std::chrono::microseconds(1'000),   std::chrono::microseconds(10'000),
      std::chrono::microseconds(100'000), std::chrono::microseconds(1'000'000)};
  std::array<std::uint64_t, kTurnBounds.size()> turns_within{};
  std::uint64_t turns = 0;
  std::chrono::nanoseconds turn_time{};
  std::uint64_t accepted = 0;
  std::uint64_t faults = 0;  // connections closed for one
  std::size_t connections = 0;
  std::size_t waiting = 0;  // connections with an open wait
  std::int64_t keys = 0;
  std::size_t bytes = 0;  // of keys and values, queues' included
};

}  // namespace cpprun::store
