// What a link carries in either direction: frames, each for one of the node's clients. Pure.
//
//   u32 channel, u32 length, bytes      to the store: one request; from it: replies, the wake-ups included
//   u32 channel, u32 0xFFFFFFFF         to the store: that client sends nothing more; from it: nothing more
//   comes for it,
//                                       whether as the answer to the former or for a fault of the client's
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cpprun::store {

inline constexpr std::size_t kLinkHeader = 8;

struct LinkFrame {
  std::uint32_t channel = 0;
  bool closed = false;
  std::string_view bytes;  // into the input
  std::size_t size = 0;    // of the frame
};

enum class LinkInput { Frame, NeedMore, TooLong };
// The first frame of `input`, whose bytes may be at most `limit` long.
LinkInput next_link_frame(std::string_view input, std::size_t limit, LinkFrame& frame);

void put_link_closed(std::string& out, std::uint32_t channel);

// Writes a frame whose bytes are appended to `out` while this lives, or none where there are none.
class LinkFrameWriter {
 public:
  LinkFrameWriter(std::string& out, std::uint32_t channel);
  ~LinkFrameWriter();
  LinkFrameWriter(const LinkFrameWriter&) = delete;
  LinkFrameWriter& operator=(const LinkFrameWriter&) = delete;

 private:
  std::string& out_;
  std::size_t begin_;
};

}  // namespace cpprun::store
