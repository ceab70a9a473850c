// The bytes of requests, for tests.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "rendezvous/store/protocol.hpp"

namespace cpprun::store {

inline std::string op_bytes(Op op) {
  return std::string(1, static_cast<char>(op));
}

inline std::string text_bytes(std::string_view text) {
  std::string out;
  put_text(out, text);
  return out;
}

template <typename T>
std::string number_bytes(T value) {
  std::string out;
  put_number(out, value);
  return out;
}

inline std::string validate_bytes() {
  return op_bytes(Op::Validate) + number_bytes(kMagic);
}

inline std::string key_list_bytes(Op op, std::initializer_list<std::string_view> keys) {
  std::string out = op_bytes(op) + number_bytes<std::uint64_t>(keys.size());
  for (const std::string_view key : keys) out += text_bytes(key);
  return out;
}

inline std::string ping_bytes(std::uint32_t nonce) {
  return op_bytes(Op::Ping) + number_bytes(nonce);
}

inline std::string set_bytes(std::string_view key, std::string_view value) {
  return op_bytes(Op::Set) + text_bytes(key) + text_bytes(value);
}

inline std::string get_bytes(std::string_view key) {
  return op_bytes(Op::Get) + text_bytes(key);
}

inline std::string add_bytes(std::string_view key, std::int64_t delta) {
  return op_bytes(Op::Add) + text_bytes(key) + number_bytes(delta);
}

}  // namespace cpprun::store
