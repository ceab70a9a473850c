#include "rendezvous/store/protocol.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/unit/rendezvous/request_bytes.hpp"

namespace cpprun::store {
namespace {

// A request with its own copies of the bytes, as text.
std::string describe(const Request& request) {
  std::string out = "op" + std::to_string(static_cast<int>(request.op));
  switch (request.op) {
    case Op::CompareSet:
      return out + " " + std::string(request.key) + " " + std::string(request.expected) + " " +
             std::string(request.value);
    case Op::Set:
    case Op::MultiSet:
    case Op::Append:
    case Op::QueuePush:
      return out + " " + std::string(request.key) + "=" + std::string(request.value);
    case Op::Add:
    case Op::Barrier:
      return out + " " + std::string(request.key) + " " + std::to_string(request.number);
    case Op::Ping:
      return out + " " + std::to_string(request.number);
    case Op::Check:
    case Op::Wait:
    case Op::MultiGet:
      for (const std::string_view key : request.keys) out += " " + std::string(key);
      return out;
    case Op::Get:
    case Op::DeleteKey:
    case Op::QueuePop:
    case Op::QueueLen:
      return out + " " + std::string(request.key);
    default:
      return out;
  }
}

struct Decoded {
  std::vector<std::string> requests;
  Fault fault = Fault::None;
};

// Feeds `bytes` in pieces that end at the given places, keeping what is not consumed, as a session does.
Decoded decode(std::string_view bytes, const std::vector<std::size_t>& ends) {
  RequestDecoder decoder;
  Request request;
  Decoded out;
  std::string kept;
  std::size_t fed = 0;
  for (const std::size_t end : ends) {
    kept += bytes.substr(fed, end - fed);
    fed = end;
    for (;;) {
      const RequestDecoder::Result result = decoder.next(kept, request);
      if (result.state == RequestDecoder::State::Complete) out.requests.push_back(describe(request));
      kept.erase(0, result.consumed);
      out.fault = result.fault;
      if (result.state == RequestDecoder::State::Faulty) return out;
      if (result.state == RequestDecoder::State::NeedMore) break;
    }
  }
  return out;
}

Decoded decode_whole(std::string_view bytes) {
  return decode(bytes, {bytes.size()});
}

std::vector<std::size_t> every_byte(std::size_t size) {
  std::vector<std::size_t> ends;
  for (std::size_t i = 1; i <= size; ++i) ends.push_back(i);
  return ends;
}

std::string conversation() {
  return validate_bytes() + set_bytes("k", "value") + op_bytes(Op::CompareSet) + text_bytes("c") +
         text_bytes("old") + text_bytes("new") + get_bytes("") + add_bytes("n", -7) +
         key_list_bytes(Op::Check, {"a", "bb"}) + key_list_bytes(Op::Wait, {}) +
         key_list_bytes(Op::Wait, {"w", "", "www"}) + op_bytes(Op::GetNumKeys) + op_bytes(Op::DeleteKey) +
         text_bytes("d") + op_bytes(Op::Append) + text_bytes("ap") + text_bytes("x") +
         key_list_bytes(Op::MultiGet, {"m1", "m2"}) + op_bytes(Op::MultiSet) +
         number_bytes<std::uint64_t>(2) + text_bytes("m1") + text_bytes("v1") + text_bytes("m2") +
         text_bytes("") + op_bytes(Op::MultiSet) + number_bytes<std::uint64_t>(0) + op_bytes(Op::CancelWait) +
         ping_bytes(0xFFFFFFFF) + op_bytes(Op::QueuePush) + text_bytes("q") + text_bytes("item") +
         op_bytes(Op::QueuePop) + text_bytes("q") + op_bytes(Op::QueueLen) + text_bytes("q") +
         op_bytes(Op::ListKeys) + op_bytes(Op::Barrier) + text_bytes("b") + number_bytes<std::int64_t>(3);
}

const std::vector<std::string> kConversation = {
    "op1 k=value", "op2 c old new", "op3 ",     "op4 n -7", "op5 a bb",
    "op6",         "op6 w  www",    "op7",      "op8 d",    "op9 ap=x",
    "op10 m1 m2",  "op11 m1=v1",    "op11 m2=", "op12",     "op13 4294967295",
    "op14 q=item", "op15 q",        "op16 q",   "op17",     "op18 b 3",
};

TEST(RequestDecoder, DecodesEveryRequest) {
  const Decoded decoded = decode_whole(conversation());
  EXPECT_EQ(decoded.fault, Fault::None);
  EXPECT_EQ(decoded.requests, kConversation);
}

TEST(RequestDecoder, ByteByByte) {
  const std::string bytes = conversation();
  EXPECT_EQ(decode(bytes, every_byte(bytes.size())).requests, kConversation);
}

// Sessions share one Request: what a key pointed to may be gone with the session that sent it.
TEST(RequestDecoder, NothingIsLeftOfTheRequestBefore) {
  Request request;
  const std::string first = validate_bytes() + op_bytes(Op::CompareSet) + text_bytes("k") + text_bytes("a") +
                            text_bytes("b") + key_list_bytes(Op::Check, {"x", "y"});
  RequestDecoder decoder;
  const std::size_t consumed = decoder.next(first, request).consumed;
  EXPECT_EQ(request.key, "k");
  EXPECT_EQ(decoder.next(std::string_view(first).substr(consumed), request).consumed,
            first.size() - consumed);
  EXPECT_EQ(request.key.data(), nullptr);
  EXPECT_EQ(request.keys.size(), 2u);
  RequestDecoder other;
  const std::string second = validate_bytes() + ping_bytes(1);
  EXPECT_EQ(other.next(second, request).consumed, second.size());
  EXPECT_EQ(request.key.data(), nullptr);
  EXPECT_EQ(request.value.data(), nullptr);
  EXPECT_EQ(request.expected.data(), nullptr);
  EXPECT_TRUE(request.keys.empty());
}

TEST(RequestDecoder, SplitInTwoAtEachPlace) {
  const std::string bytes = conversation();
  for (std::size_t at = 0; at <= bytes.size(); ++at) {
    ASSERT_EQ(decode(bytes, {at, bytes.size()}).requests, kConversation) << "split at " << at;
  }
}

TEST(RequestDecoder, SplitAtRandomPlaces) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::string bytes = conversation();
  for (int round = 0; round < 300; ++round) {
    std::vector<std::size_t> ends;
    for (std::size_t at = random() % 20; at < bytes.size(); at += 1 + random() % 20) ends.push_back(at);
    ends.push_back(bytes.size());
    ASSERT_EQ(decode(bytes, ends).requests, kConversation);
  }
}

struct FaultCase {
  const char* name;
  std::string after_validate;
  Fault fault;
};

std::vector<FaultCase> fault_cases() {
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  const std::string long_key = number_bytes<std::uint64_t>(kMaxKeyBytes + 1);
  const std::string long_value = number_bytes<std::uint64_t>(kMaxValueBytes + 1);
  const std::string many = number_bytes<std::uint64_t>(kMaxKeysPerRequest + 1);
  std::vector<FaultCase> cases = {
      {"opcode 19", std::string(1, '\x13'), Fault::UnknownOpcode},
      {"opcode 255", std::string(1, '\xff'), Fault::UnknownOpcode},
      {"validate again", op_bytes(Op::Validate), Fault::ValidatedTwice},
      {"compare_set's expected", op_bytes(Op::CompareSet) + text_bytes("k") + long_value,
       Fault::ValueTooLong},
      {"compare_set's desired", op_bytes(Op::CompareSet) + text_bytes("k") + text_bytes("") + long_value,
       Fault::ValueTooLong},
      {"multi_set's second key",
       op_bytes(Op::MultiSet) + number_bytes<std::uint64_t>(2) + text_bytes("k") + text_bytes("v") + long_key,
       Fault::KeyTooLong},
      {"length of all ones", op_bytes(Op::Get) + number_bytes(kHuge), Fault::KeyTooLong},
      {"count of all ones", op_bytes(Op::Wait) + number_bytes(kHuge), Fault::TooManyKeys},
  };
  for (const Op op : {Op::Set, Op::CompareSet, Op::Get, Op::Add, Op::DeleteKey, Op::Append, Op::QueuePush,
                      Op::QueuePop, Op::QueueLen, Op::Barrier}) {
    cases.push_back({"long key", op_bytes(op) + long_key, Fault::KeyTooLong});
  }
  for (const Op op : {Op::Set, Op::Append, Op::QueuePush}) {
    cases.push_back({"long value", op_bytes(op) + text_bytes("k") + long_value, Fault::ValueTooLong});
  }
  for (const Op op : {Op::Check, Op::Wait, Op::MultiGet, Op::MultiSet}) {
    cases.push_back({"many keys", op_bytes(op) + many, Fault::TooManyKeys});
  }
  for (const Op op : {Op::Check, Op::Wait, Op::MultiGet}) {
    cases.push_back({"long key in a list",
                     op_bytes(op) + number_bytes<std::uint64_t>(2) + text_bytes("k") + long_key,
                     Fault::KeyTooLong});
  }
  return cases;
}

TEST(RequestDecoder, AFaultIsSeenAsSoonAsItsLengthIsThere) {
  for (const FaultCase& c : fault_cases()) {
    const std::string bytes = validate_bytes() + c.after_validate;
    EXPECT_EQ(decode_whole(bytes).fault, c.fault) << c.name;
    EXPECT_EQ(decode(bytes, every_byte(bytes.size())).fault, c.fault) << c.name;
    EXPECT_EQ(decode_whole(bytes.substr(0, bytes.size() - 1)).fault, Fault::None)
        << c.name << ", a byte earlier";
  }
}

TEST(RequestDecoder, TheFirstRequestMustValidate) {
  EXPECT_EQ(decode_whole(ping_bytes(1)).fault, Fault::NotValidated);
  EXPECT_EQ(decode_whole("GET / HTTP/1.1\r\n").fault, Fault::NotValidated);
  EXPECT_EQ(decode_whole(std::string("\0\1\2\3\4", 5)).fault, Fault::NotValidated);
  EXPECT_EQ(decode_whole(validate_bytes()).fault, Fault::None);
}

TEST(RequestDecoder, WhatIsAllowedPasses) {
  const std::string key(kMaxKeyBytes, 'k');
  const std::string value(kMaxValueBytes, 'v');
  EXPECT_EQ(decode_whole(validate_bytes() + set_bytes(key, value)).requests.size(), 1U);
  std::string list = op_bytes(Op::Check) + number_bytes(kMaxKeysPerRequest);
  for (std::uint64_t i = 0; i < kMaxKeysPerRequest; ++i) list += text_bytes("");
  EXPECT_EQ(decode_whole(validate_bytes() + list).requests.size(), 1U);
  const std::string largest =
      op_bytes(Op::CompareSet) + text_bytes(key) + text_bytes(value) + text_bytes(value);
  EXPECT_EQ(
      decode(validate_bytes() + largest, {100, validate_bytes().size() + largest.size()}).requests.size(),
      1U);
}

TEST(RequestDecoder, AListOfKeysHasALimitInBytes) {
  std::string list = validate_bytes() + op_bytes(Op::Wait) + number_bytes(kMaxKeysPerRequest);
  const std::string key = text_bytes(std::string(kMaxKeyBytes, 'k'));
  while (list.size() + key.size() <= kMaxRequestBytes) list += key;
  EXPECT_EQ(decode_whole(list).fault, Fault::None);
  EXPECT_EQ(decode_whole(list + key).fault, Fault::RequestTooLong);
}

TEST(RequestDecoder, AMultiSetOfAnyLengthIsServedPairByPair) {
  const std::string value(kMaxValueBytes, 'v');
  RequestDecoder decoder;
  Request request;
  const std::string head = validate_bytes() + op_bytes(Op::MultiSet) + number_bytes<std::uint64_t>(10);
  RequestDecoder::Result result = decoder.next(head, request);
  EXPECT_EQ(result.state, RequestDecoder::State::NeedMore);
  EXPECT_EQ(result.consumed, head.size()) << "nothing of it needs to be kept";
  const std::string pair = text_bytes("k") + text_bytes(value);
  for (int i = 0; i < 10; ++i) {
    result = decoder.next(pair, request);
    ASSERT_EQ(result.state, RequestDecoder::State::Complete);
    ASSERT_EQ(result.consumed, pair.size());
  }
  EXPECT_EQ(decoder.next(ping_bytes(1), request).state, RequestDecoder::State::Complete);
  EXPECT_EQ(request.op, Op::Ping);
}

TEST(RequestDecoder, AnyBytesAreDecodedOrRefused) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = round % 2 == 0 ? validate_bytes() : conversation();
    for (int i = 0; i < 200; ++i) {
      const char byte = static_cast<char>(random() % 4 == 0 ? random() : random() % 20);
      if (round % 2 == 0) {
        bytes.push_back(byte);
      } else if (i < 3) {
        bytes[random() % bytes.size()] = byte;
      }
    }
    const Decoded whole = decode_whole(bytes);
    const Decoded split = decode(bytes, every_byte(bytes.size()));
    ASSERT_EQ(whole.requests, split.requests);
    ASSERT_EQ(whole.fault, split.fault);
  }
}

TEST(Fault, EachHasAPhraseThatStatesTheRealLimit) {
  EXPECT_NE(std::string(describe(Fault::KeyTooLong)).find(std::to_string(kMaxKeyBytes)), std::string::npos);
  EXPECT_NE(std::string(describe(Fault::ValueTooLong)).find(std::to_string(kMaxValueBytes)),
            std::string::npos);
  EXPECT_NE(std::string(describe(Fault::TooManyKeys)).find(std::to_string(kMaxKeysPerRequest)),
            std::string::npos);
  EXPECT_NE(std::string(describe(Fault::RequestTooLong)).find(std::to_string(kMaxRequestBytes >> 20)),
            std::string::npos);
  EXPECT_NE(std::string(describe(Fault::ReplyTooLong)).find(std::to_string(kMaxReplyBytes >> 20)),
            std::string::npos);
}

}  // namespace
}  // namespace cpprun::store
