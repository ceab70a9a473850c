#include "rendezvous/store/link_frames.hpp"

#include <cstring>

#include "rendezvous/store/protocol.hpp"

namespace cpprun::store {
namespace {

constexpr std::uint32_t kClosed = 0xFFFFFFFF;

}  // namespace

LinkInput next_link_frame(std::string_view input, std::size_t limit, LinkFrame& frame) {
  if (input.size() < kLinkHeader) return LinkInput::NeedMore;
  std::uint32_t length = 0;
  std::memcpy(&frame.channel, input.data(), sizeof frame.channel);
  std::memcpy(&length, input.data() + sizeof frame.channel, sizeof length);
  frame.closed = length == kClosed;
  if (frame.closed) length = 0;
  if (length > limit) return LinkInput::TooLong;
  if (input.size() - kLinkHeader < length) return LinkInput::NeedMore;
  frame.bytes = input.substr(kLinkHeader, length);
  frame.size = kLinkHeader + length;
  return LinkInput::Frame;
}

void put_link_closed(std::string& out, std::uint32_t channel) {
  put_number(out, channel);
  put_number(out, kClosed);
}

LinkFrameWriter::LinkFrameWriter(std::string& out, std::uint32_t channel) : out_(out), begin_(out.size()) {
  put_number(out_, channel);
  put_number(out_, kClosed);  // until the length is known
}

LinkFrameWriter::~LinkFrameWriter() {
  const std::size_t length = out_.size() - begin_ - kLinkHeader;
  if (length == 0) {
    out_.resize(begin_);
    return;
  }
  const std::uint32_t number = static_cast<std::uint32_t>(length);
  std::memcpy(out_.data() + begin_ + sizeof(std::uint32_t), &number, sizeof number);
}

}  // namespace cpprun::store
