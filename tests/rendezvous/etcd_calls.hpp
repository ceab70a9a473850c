// How the tests of etcd's client make clients and collect what calls and watches say.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/etcd/etcd_client.hpp"

namespace cpprun::rendezvous {

// Long enough for a server that is starting on a busy machine.
inline EtcdOptions patient() {
  EtcdOptions options;
  options.request_limit = std::chrono::seconds(30);
  return options;
}
inline EtcdOptions hasty() {
  EtcdOptions options;
  options.request_limit = std::chrono::milliseconds(300);
  return options;
}

inline EtcdEndpoint at(std::uint16_t port) {
  return {"127.0.0.1", port};
}

inline std::string where(std::uint16_t port) {
  return "127.0.0.1:" + std::to_string(port);
}

// g++ 12 does not take braces within a co_await expression.
inline KeyRange the_key(const char* key) {
  return {key, false};
}
inline KeyRange all_below(const char* prefix) {
  return {prefix, true};
}

// What a call that must fail says.
struct Failed {
  std::optional<EtcdFailure> failure;
  std::string what;
};
inline awaitable<Failed> failure_of(EtcdClient& client, std::string key) {
  try {
    co_await client.get(key);
  } catch (const EtcdError& error) {
    co_return Failed{error.failure(), error.what()};
  }
  co_return Failed{std::nullopt, "it succeeded"};
}
inline awaitable<void> fail_in(EtcdClient& client, Failed& failed) {
  failed = co_await failure_of(client, "key");
}
inline awaitable<void> next_in(EtcdWatch& watch, WatchNews& news) {
  news = co_await watch.next();
}

}  // namespace cpprun::rendezvous
