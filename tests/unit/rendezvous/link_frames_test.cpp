#include "rendezvous/store/link_frames.hpp"

#include <gtest/gtest.h>

#include <string>

#include "rendezvous/store/refusal_limit.hpp"
#include "tests/unit/rendezvous/request_bytes.hpp"

namespace cpprun::store {
namespace {

std::string frame_bytes(std::uint32_t channel, const std::string& bytes) {
  std::string out;
  {
    const LinkFrameWriter frame(out, channel);
    out += bytes;
  }
  return out;
}

TEST(LinkFrames, TheirBytesOnTheWire) {
  EXPECT_EQ(frame_bytes(0x01020304, "ab"), std::string("\x04\x03\x02\x01\x02\0\0\0ab", 10));
  std::string closed;
  put_link_closed(closed, 7);
  EXPECT_EQ(closed, std::string("\x07\0\0\0\xff\xff\xff\xff", 8));
}

TEST(LinkFrames, WhereNothingIsWrittenThereIsNoFrame) {
  std::string out = "before";
  { const LinkFrameWriter frame(out, 1); }
  EXPECT_EQ(out, "before");
}

TEST(LinkFrames, AreReadHoweverTheyAreSplit) {
  std::string bytes = frame_bytes(1, "one") + frame_bytes(2, std::string(300, '2'));
  put_link_closed(bytes, 1);
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    std::string seen;
    std::size_t taken = 0;
    for (const std::string_view input : {std::string_view(bytes).substr(0, cut), std::string_view(bytes)}) {
      LinkFrame frame;
      while (next_link_frame(input.substr(taken), 300, frame) == LinkInput::Frame) {
        taken += frame.size;
        seen +=
            std::to_string(frame.channel) + (frame.closed ? "x" : std::to_string(frame.bytes.size())) + " ";
      }
    }
    EXPECT_EQ(seen, "13 2300 1x ") << cut;
    EXPECT_EQ(taken, bytes.size());
  }
}

TEST(LinkFrames, OneThatIsTooLongIsKnownByItsHeader) {
  LinkFrame frame;
  EXPECT_EQ(next_link_frame(frame_bytes(1, "1234").substr(0, kLinkHeader), 3, frame), LinkInput::TooLong);
  EXPECT_EQ(next_link_frame(frame_bytes(1, "1234").substr(0, kLinkHeader), 4, frame), LinkInput::NeedMore);
}

TEST(PutRequest, IsWhatTheDecoderReads) {
  for (const std::string& bytes :
       {set_bytes("/k", "v"),
        op_bytes(Op::CompareSet) + text_bytes("/k") + text_bytes("old") + text_bytes("new"), get_bytes("/k"),
        add_bytes("/k", -3), key_list_bytes(Op::Check, {"/a", "", "/b"}), key_list_bytes(Op::Wait, {}),
        op_bytes(Op::GetNumKeys), op_bytes(Op::DeleteKey) + text_bytes("/k"),
        op_bytes(Op::Append) + text_bytes("/k") + text_bytes(""), key_list_bytes(Op::MultiGet, {"/a"}),
        op_bytes(Op::CancelWait), ping_bytes(0xFFFFFFFF),
        op_bytes(Op::QueuePush) + text_bytes("/q") + text_bytes("v"),
        op_bytes(Op::QueuePop) + text_bytes("/q"), op_bytes(Op::QueueLen) + text_bytes("/q"),
        op_bytes(Op::ListKeys), op_bytes(Op::Barrier) + text_bytes("/b") + number_bytes<std::int64_t>(4),
        op_bytes(Op::Open) + text_bytes("run") + text_bytes("{}"), op_bytes(Op::Link) + text_bytes("run")}) {
    RequestDecoder decoder(true);
    Request request;
    ASSERT_EQ(decoder.next(bytes, request).state, RequestDecoder::State::Complete);
    std::string again;
    put_request(again, request);
    EXPECT_EQ(again, bytes);
  }
}

TEST(PutRequest, APairOfMultiSetIsASet) {
  RequestDecoder decoder(true);
  Request request;
  const std::string bytes =
      op_bytes(Op::MultiSet) + number_bytes<std::uint64_t>(1) + text_bytes("/k") + text_bytes("v");
  ASSERT_EQ(decoder.next(bytes, request).state, RequestDecoder::State::Complete);
  std::string again;
  put_request(again, request);
  EXPECT_EQ(again, set_bytes("/k", "v"));
}

TEST(RefusalLimit, WhoFailsTooOftenIsNotHeardForAWhile) {
  RefusalLimit limit;
  const RefusalLimit::TimePoint start{};
  const RefusalLimit::Address bad = boost::asio::ip::make_address("192.0.2.1");
  const RefusalLimit::Address good = boost::asio::ip::make_address("192.0.2.2");
  for (int i = 0; i < RefusalLimit::kFailures; ++i) {
    EXPECT_FALSE(limit.exceeded(bad, start));
    limit.failed(bad, start + std::chrono::milliseconds(i));
  }
  EXPECT_TRUE(limit.exceeded(bad, start + std::chrono::seconds(1)));
  EXPECT_FALSE(limit.exceeded(good, start + std::chrono::seconds(1)));
  EXPECT_FALSE(limit.exceeded(bad, start + RefusalLimit::kWindow));
}

TEST(RefusalLimit, ForgetsOldAddressesAndNeverRemembersTooMany) {
  RefusalLimit limit;
  const RefusalLimit::TimePoint start{};
  const auto address = [](unsigned n) { return RefusalLimit::Address(boost::asio::ip::address_v4(n)); };
  for (unsigned n = 0; n < RefusalLimit::kAddresses + 10; ++n) {
    for (int i = 0; i < RefusalLimit::kFailures; ++i) limit.failed(address(n), start);
  }
  EXPECT_TRUE(limit.exceeded(address(0), start));
  EXPECT_FALSE(limit.exceeded(address(RefusalLimit::kAddresses + 1), start));
  const RefusalLimit::TimePoint later = start + RefusalLimit::kWindow;
  for (int i = 0; i < RefusalLimit::kFailures; ++i) limit.failed(address(5000), later);
  EXPECT_TRUE(limit.exceeded(address(5000), later));
}

}  // namespace
}  // namespace cpprun::store
