// What a server allows its clients, and who meets there besides them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "rendezvous/store/agent_desk.hpp"
#include "rendezvous/store/protocol.hpp"

namespace cpprun::store {

class Secret;

// What a client may cost; breaking one closes that client's connection with a logged reason.
struct ServerLimits {
  std::chrono::milliseconds unvalidated = kUnvalidatedLifetime;  // from accept to a complete VALIDATE
  std::chrono::milliseconds stalled = kStalledReaderLifetime;    // without taking a byte of a pending reply
  std::size_t reply_bytes = kMaxReplyBytes;                      // of one reply
  std::int64_t keys = std::numeric_limits<std::int64_t>::max();  // of the table
  std::size_t bytes = std::numeric_limits<std::size_t>::max();   // of its keys and values
  // Open at once; at this number the server accepts no more until one ends.
  std::size_t connections = std::numeric_limits<std::size_t>::max();
};

struct StoreServerConfig {
  AgentDesk* desk = nullptr;    // answers OPEN; null: nobody does. Outlives the server
  bool torchrun_agents = true;  // may meet here, as clients; else theirs are closed with a warning
  std::optional<std::string> linked_run{};  // whose nodes' proxies may come; none: no proxy may
  std::shared_ptr<const Secret> secret{};   // of every client; null: none has one
  ServerLimits limits{};
};

}  // namespace cpprun::store
