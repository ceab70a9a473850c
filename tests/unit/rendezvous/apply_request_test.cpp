#include "rendezvous/store/apply_request.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/rendezvous/request_bytes.hpp"

namespace cpprun::store {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr ConnectionId kMe = 7;
constexpr ConnectionId kOther = 8;
const std::string kByte0(1, '\0');
const std::string kByte1(1, '\1');

class ApplyRequestTest : public ::testing::Test {
 protected:
  // Decodes `bytes` and applies each request for `who`; the replies, one after the other.
  std::string replies(const std::string& bytes, ConnectionId who = kMe) {
    RequestDecoder decoder;
    const std::string conversation = validate_bytes() + bytes;
    std::string reply;
    Request request;
    woken.clear();
    std::size_t at = 0;
    for (;;) {
      const RequestDecoder::Result decoded = decoder.next(std::string_view(conversation).substr(at), request);
      at += decoded.consumed;
      if (decoded.state != RequestDecoder::State::Complete) return reply;
      fault = apply_request(table, who, request, max_reply, reply, woken);
      if (fault != Fault::None) return reply;
    }
  }

  StoreTable table;
  Wakeups woken;
  Fault fault = Fault::None;
  std::size_t max_reply = kMaxReplyBytes;
};

TEST_F(ApplyRequestTest, EachRequestHasItsReply) {
  const std::string set = set_bytes("k", "v1");
  EXPECT_EQ(replies(set), "");
  EXPECT_EQ(replies(get_bytes("k")), text_bytes("v1"));
  EXPECT_EQ(replies(get_bytes("absent")), text_bytes(""));
  EXPECT_EQ(replies(add_bytes("n", 5)), number_bytes<std::int64_t>(5));
  EXPECT_EQ(replies(op_bytes(Op::CompareSet) + text_bytes("k") + text_bytes("v1") + text_bytes("v2")),
            text_bytes("v2"));
  EXPECT_EQ(replies(key_list_bytes(Op::Check, {"k", "n"})), kByte0);
  EXPECT_EQ(replies(key_list_bytes(Op::Check, {"k", "x"})), kByte1);
  EXPECT_EQ(replies(key_list_bytes(Op::Wait, {"k"})), kByte0);
  EXPECT_EQ(replies(op_bytes(Op::GetNumKeys)), number_bytes<std::int64_t>(2));
  EXPECT_EQ(replies(op_bytes(Op::DeleteKey) + text_bytes("n")), number_bytes<std::int64_t>(1));
  EXPECT_EQ(replies(op_bytes(Op::DeleteKey) + text_bytes("n")), number_bytes<std::int64_t>(0));
  EXPECT_EQ(replies(op_bytes(Op::Append) + text_bytes("k") + text_bytes("+")), "");
  EXPECT_EQ(replies(key_list_bytes(Op::MultiGet, {"k", "x"})), text_bytes("v2+") + text_bytes(""));
  EXPECT_EQ(replies(key_list_bytes(Op::MultiGet, {})), "");
  EXPECT_EQ(replies(op_bytes(Op::ListKeys)), number_bytes<std::int64_t>(1) + text_bytes("k"));
  EXPECT_EQ(
      replies(op_bytes(Op::MultiSet) + number_bytes<std::uint64_t>(1) + text_bytes("m") + text_bytes("w")),
      "");
  EXPECT_EQ(table.get("m"), "w");
  EXPECT_EQ(replies(op_bytes(Op::CancelWait)), kByte1);
  EXPECT_EQ(replies(ping_bytes(0xCAFE)), number_bytes<std::uint32_t>(0xCAFE));
  EXPECT_EQ(replies(op_bytes(Op::QueuePush) + text_bytes("q") + text_bytes("item")), "");
  EXPECT_EQ(replies(op_bytes(Op::QueueLen) + text_bytes("q")), number_bytes<std::int64_t>(1));
  EXPECT_EQ(replies(op_bytes(Op::QueuePop) + text_bytes("q")),
            number_bytes<std::int64_t>(1) + text_bytes("item"));
  EXPECT_EQ(replies(op_bytes(Op::QueuePop) + text_bytes("q")), number_bytes<std::int64_t>(0));
  EXPECT_EQ(replies(op_bytes(Op::Barrier) + text_bytes("b") + number_bytes<std::int64_t>(1)), kByte0);
  EXPECT_EQ(fault, Fault::None);
}

TEST_F(ApplyRequestTest, AWaitIsAnsweredThroughTheWakeUp) {
  EXPECT_EQ(replies(key_list_bytes(Op::Wait, {"k"}), kOther), "");
  EXPECT_EQ(replies(set_bytes("k", "v")), "");
  EXPECT_THAT(woken, ElementsAre(kOther));
}

TEST_F(ApplyRequestTest, ItsOwnWakeUpPrecedesTheReplyAndIsNobodyElses) {
  EXPECT_EQ(replies(key_list_bytes(Op::Wait, {"n"}), kOther), "");
  EXPECT_EQ(replies(key_list_bytes(Op::Wait, {"n"}) + add_bytes("n", 4) + ping_bytes(1)),
            kByte0 + number_bytes<std::int64_t>(4) + number_bytes<std::uint32_t>(1));
  EXPECT_THAT(woken, ElementsAre(kOther));
}

TEST_F(ApplyRequestTest, ACancelAfterTheWakeUpReadsStopThenCancelled) {
  EXPECT_EQ(replies(key_list_bytes(Op::Wait, {"k"}) + set_bytes("k", "v") + op_bytes(Op::CancelWait)),
            kByte0 + kByte1);
}

TEST_F(ApplyRequestTest, CountingAtTextIsAFaultWithoutAReply) {
  EXPECT_EQ(replies(set_bytes("k", "text") + add_bytes("k", 1)), "");
  EXPECT_EQ(fault, Fault::NotANumber);
  EXPECT_EQ(replies(op_bytes(Op::Barrier) + text_bytes("k") + number_bytes<std::int64_t>(1)), "");
  EXPECT_EQ(fault, Fault::NotANumber);
  EXPECT_THAT(woken, IsEmpty());
}

TEST_F(ApplyRequestTest, AReplyHasALimit) {
  max_reply = 100;
  replies(set_bytes("k", std::string(42, 'v')));
  EXPECT_EQ(replies(key_list_bytes(Op::MultiGet, {"k", "k"})).size(), 100U);
  EXPECT_EQ(fault, Fault::None);
  EXPECT_EQ(replies(key_list_bytes(Op::MultiGet, {"k", "k", "x"})), "");
  EXPECT_EQ(fault, Fault::ReplyTooLong);
  for (char key = 'a'; key < 'z'; ++key) replies(set_bytes(std::string(1, key), ""));
  EXPECT_EQ(replies(op_bytes(Op::ListKeys)), "");
  EXPECT_EQ(fault, Fault::ReplyTooLong);
}

}  // namespace
}  // namespace cpprun::store
