// What an operation threw, as a value: for a race, which waits for the first that succeeds, and for cleaning
// up before the error goes on, since a handler cannot await.
#pragma once

#include <exception>
#include <utility>

#include "rendezvous/async/tokens.hpp"

namespace cpprun::async {

// Null if it threw nothing.
inline awaitable<std::exception_ptr> failure_of(awaitable<void> operation) {
  try {
    co_await std::move(operation);
  } catch (...) {
    co_return std::current_exception();
  }
  co_return nullptr;
}

}  // namespace cpprun::async
