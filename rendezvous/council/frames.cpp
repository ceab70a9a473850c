#include "rendezvous/council/frames.hpp"

#include <cstring>

namespace cpprun::rendezvous {

void put_frame(std::string& out, FrameKind kind, std::string_view payload) {
  const std::uint32_t length = static_cast<std::uint32_t>(payload.size());
  char bytes[sizeof(length)];
  std::memcpy(bytes, &length, sizeof(length));
  out += static_cast<char>(kind);
  out.append(bytes, sizeof(bytes));
  out.append(payload);
}

void put_frame(std::string& out, FrameKind kind, const std::int64_t* numbers, std::size_t count) {
  put_frame(out, kind, std::string_view(reinterpret_cast<const char*>(numbers), count * sizeof(*numbers)));
}

std::optional<std::size_t> payload_length(std::string_view header) {
  if (header.size() < kFrameHeader) return std::nullopt;
  std::uint32_t length = 0;
  std::memcpy(&length, header.data() + 1, sizeof(length));
  if (std::string_view("RBESOA").find(header.front()) == std::string_view::npos) return std::nullopt;
  return length <= kMaxFramePayload ? std::optional<std::size_t>(length) : std::nullopt;
}

std::optional<std::int64_t> number_in(std::string_view payload, std::size_t index) {
  std::int64_t number = 0;
  if (payload.size() < (index + 1) * sizeof(number)) return std::nullopt;
  std::memcpy(&number, payload.data() + index * sizeof(number), sizeof(number));
  return number;
}

}  // namespace cpprun::rendezvous
