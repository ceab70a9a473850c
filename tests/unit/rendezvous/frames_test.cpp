// Frames between agents and a council.
#include "rendezvous/council/frames.hpp"

#include <gtest/gtest.h>

namespace cpprun::rendezvous {
namespace {

TEST(Frames, AHeaderSaysHowMuchFollows) {
  std::string bytes;
  put_frame(bytes, FrameKind::Report, "payload");
  ASSERT_EQ(bytes.size(), kFrameHeader + 7);
  EXPECT_EQ(payload_length(bytes), 7U);
  EXPECT_EQ(bytes.substr(kFrameHeader), "payload");
  for (std::size_t part = 0; part < kFrameHeader; ++part) EXPECT_FALSE(payload_length(bytes.substr(0, part)));
}

TEST(Frames, LengthsAreLittleEndian) {
  EXPECT_EQ(payload_length(std::string("B\x01\x02\x00\x00", 5)), 0x201U);
}

TEST(Frames, UnknownKindsAndMonstrousLengthsAreNoHeader) {
  EXPECT_FALSE(payload_length(std::string("X\x01\x00\x00\x00", 5)));
  EXPECT_FALSE(payload_length(std::string("GET /", 5)));
  EXPECT_FALSE(payload_length(std::string("R\xff\xff\xff\xff", 5)));
  EXPECT_EQ(payload_length(std::string("R\x00\x00\x10\x00", 5)), kMaxFramePayload);
  EXPECT_FALSE(payload_length(std::string("R\x01\x00\x10\x00", 5)));
}

TEST(Frames, NumbersAreReadWithinThePayloadOnly) {
  const std::int64_t numbers[] = {-1, 1LL << 40, 7};
  std::string bytes;
  put_frame(bytes, FrameKind::Ack, numbers, 3);
  const std::string payload = bytes.substr(kFrameHeader);
  EXPECT_EQ(number_in(payload, 0), -1);
  EXPECT_EQ(number_in(payload, 1), 1LL << 40);
  EXPECT_EQ(number_in(payload, 2), 7);
  EXPECT_FALSE(number_in(payload, 3));
  EXPECT_FALSE(number_in(payload.substr(0, 23), 2));
  EXPECT_FALSE(number_in("", 0));
}

}  // namespace
}  // namespace cpprun::rendezvous
