// The store's end of a link: the input is what a node's proxy sends, in pieces. Whatever it is, each answer
// is a frame for a client that the input named, clients are woken once for each wait, and nothing is left of
// one that has gone.
//
// The input is a list of pieces: a byte that says their length, and the bytes.
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "rendezvous/store/link_end.hpp"
#include "rendezvous/store/link_frames.hpp"
#include "rendezvous/store/table_handler.hpp"
#include "tests/fuzz/require.hpp"

namespace {

using namespace cpprun::store;
using cpprun::fuzz::require;

constexpr ConnectionId kLink = 3;

class Link {
 public:
  Link() {
    config_.limits.reply_bytes = std::size_t{1} << 20;
    config_.limits.bytes = std::size_t{4} << 20;
  }
  ~Link() {
    link_.close(work_);
    require(table_.table().waiting() == 0, "nobody waits when all have gone");
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // False when the link has ended.
  bool send(std::string_view bytes) {
    inbox_.append(bytes);
    for (;;) {
      LinkFrame frame;
      if (next_link_frame(inbox_, kMaxRequestBytes, frame) == LinkInput::Frame) named_[frame.channel] = true;
      const LinkEnd::Served served = link_.serve_next(inbox_, work_);
      if (served.fault != Fault::None) return false;
      if (served.consumed == 0) return true;
      require(served.consumed == frame.size, "a frame is served whole");
      inbox_.erase(0, served.consumed);
      check_replies();
      require(work_.woken.empty(), "the link's own clients are told by the link");
      work_.fault_behind_link = Fault::None;
    }
  }

 private:
  void check_replies() {
    std::string_view replies = work_.reply;
    while (!replies.empty()) {
      LinkFrame frame;
      require(next_link_frame(replies, std::size_t{2} << 20, frame) == LinkInput::Frame,
              "replies are frames");
      require(frame.closed || !frame.bytes.empty(), "no frame is empty");
      require(named_.contains(frame.channel), "only who has asked is answered");
      replies.remove_prefix(frame.size);
    }
    work_.reply.clear();
  }

  StoreServerConfig config_;
  StoreUse use_;
  std::array<char, 1> unused_{};
  TableHandler table_{config_};
  SessionWork work_{table_, config_, use_, unused_};
  LinkEnd link_{kLink};
  std::string inbox_;
  std::map<std::uint32_t, bool> named_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  Link link;
  while (!input.empty()) {
    const std::size_t length = static_cast<unsigned char>(input.front());
    input.remove_prefix(1);
    const std::string_view piece = input.substr(0, length);
    input.remove_prefix(piece.size());
    if (!link.send(piece)) break;
  }
  return 0;
}
