// The requests of scripts/bench/store, which its load generator sends and its floor counts.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tests/unit/rendezvous/request_bytes.hpp"

namespace cpprun::bench {

// How a connection opens: validation, and a ping whose nonce is the answer.
inline const std::string kGreeting = store::validate_bytes() + store::ping_bytes(0);
inline constexpr std::size_t kGreetingReply = sizeof(std::uint32_t);  // as of any ping

enum class Kind { SetGet, Get, Add };

inline Kind kind_of(std::string_view name) {
  if (name == "set-get") return Kind::SetGet;
  if (name == "get") return Kind::Get;
  if (name == "add") return Kind::Add;
  std::fprintf(stderr, "requests are set-get, get or add, not %s\n", std::string(name).c_str());
  std::exit(2);
}

// The smallest piece of a load that has an answer. Of one kind all are of the same size, so that a server
// without a table can answer by counting bytes.
struct Exchange {
  std::string request;
  std::string reply;  // ADD's is that to the first one
  int operations;
};

inline Exchange exchange(Kind kind, int connection, int slot) {
  char key[32];
  std::snprintf(key, sizeof key, "/bench/%c/%05d/%02d", kind == Kind::Add ? 'n' : 'v', connection, slot);
  const std::string value(32, 'v');
  switch (kind) {
    case Kind::SetGet:
      return {store::set_bytes(key, value) + store::get_bytes(key), store::text_bytes(value), 2};
    case Kind::Get:  // of a key that has been set before
      return {store::get_bytes(key), store::text_bytes(value), 1};
    case Kind::Add:
      return {store::add_bytes(key, 1), store::number_bytes<std::int64_t>(1), 1};
  }
  return {};
}

// Waking: all wait for one key, which another connection sets. The ping behind WAIT is answered when the wait
// is open, that behind SET when all have been woken. Each of the two is of one size, and they differ by a
// byte.
struct Waking {
  std::string wait;
  std::string set;
};

inline Waking waking(int process, int round) {
  char key[32];
  std::snprintf(key, sizeof key, "/bench/w/%08d/%04d", process, round);
  return {store::key_list_bytes(store::Op::Wait, {key}) + store::ping_bytes(0),
          store::set_bytes(key, "1") + store::ping_bytes(0)};
}

}  // namespace cpprun::bench
