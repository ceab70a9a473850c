// What one client may cost a server.
#pragma once

#include <chrono>
#include <cstddef>

#include "rendezvous/store/protocol.hpp"

namespace cpprun::store {

// Breaking one closes that client's connection with a logged reason.
struct ServerLimits {
  std::chrono::milliseconds unvalidated = kUnvalidatedLifetime;  // from accept to a complete VALIDATE
  std::chrono::milliseconds stalled = kStalledReaderLifetime;    // without taking a byte of a pending reply
  std::size_t reply_bytes = kMaxReplyBytes;                      // of one reply
};

}  // namespace cpprun::store
