// What agents and a council say to each other over one connection, once OPEN has been answered: frames of a
// kind, a length and a payload. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cpprun::rendezvous {

enum class FrameKind : char {
  // from the agent
  Report = 'R',  // JSON
  Beat = 'B',    // number: the agent's clock
  Echo = 'E',    // number: the leader's clock, from its last ack
  // from the council
  Status = 'S',  // number: a CouncilStatus; the first frame of a connection
  Order = 'O',   // JSON
  Ack = 'A',     // numbers: the agent's clock from its beat, the leader's clock, the lease in ns
};

// What one finds behind an endpoint.
enum class CouncilStatus : std::int64_t {
  Idle = 0,     // nobody leads here
  Standby = 1,  // nor here, but agents that have lost their leader want it to
  Leads = 2,
};

struct Frame {
  FrameKind kind;
  std::string_view payload;
};

inline constexpr std::size_t kFrameHeader = 5;             // a kind, a little-endian u32 length
inline constexpr std::size_t kMaxFramePayload = 1U << 20;  // a failure's text is the longest part

void put_frame(std::string& out, FrameKind kind, std::string_view payload);
void put_frame(std::string& out, FrameKind kind, const std::int64_t* numbers, std::size_t count);

// A clock as a number.
inline std::int64_t ticks(std::chrono::steady_clock::time_point when) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(when.time_since_epoch()).count();
}
inline std::chrono::steady_clock::time_point at_ticks(std::int64_t count) {
  using Clock = std::chrono::steady_clock;
  return Clock::time_point(std::chrono::duration_cast<Clock::duration>(std::chrono::nanoseconds(count)));
}

// The length that a frame's header announces; nothing if it is no header or announces too much.
std::optional<std::size_t> payload_length(std::string_view header);

// The `index`th number of the payload; nothing if that is shorter.
std::optional<std::int64_t> number_in(std::string_view payload, std::size_t index);

}  // namespace cpprun::rendezvous
