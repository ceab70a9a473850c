// When a worker is taken for stuck, and when the time that it set itself is over.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "launcher/health/timer_table.hpp"

namespace cpprun::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using TimePoint = std::chrono::steady_clock::time_point;

const TimePoint kStart = TimePoint(seconds(1000));

TEST(TimerRequest, Parsed) {
  const std::optional<TimerRequest> request = parse_timer_request(
      R"({"version": 1, "pid": 123, "scope_id": "x", "expiration_time": 1795973885.5, "signal": 9})");
  ASSERT_TRUE(request);
  EXPECT_EQ(request->pid, 123);
  EXPECT_EQ(request->scope, "x");
  EXPECT_EQ(request->expiration, 1795973885.5);
  EXPECT_EQ(request->signal, SIGKILL);
  for (const char* text :
       {"", "x", "[]", R"({"pid": 1})", R"({"pid": "1", "scope_id": "", "expiration_time": 1, "signal": 9})",
        R"({"pid": 0, "scope_id": "", "expiration_time": 1, "signal": 9})",
        R"({"pid": -1, "scope_id": "", "expiration_time": 1, "signal": 9})",
        R"({"pid": 1, "scope_id": "", "expiration_time": 1, "signal": 65})",
        R"({"pid": 1, "scope_id": 3, "expiration_time": 1, "signal": 9})"})
    EXPECT_FALSE(parse_timer_request(text)) << text;
}

class TimerTableTest : public ::testing::Test {
 protected:
  void take(pid_t pid, const char* scope, double expiration, int signal) {
    table_.take({pid, scope, expiration, signal}, 77, 500, kStart);  // the time of day is 500
  }
  TimerTable table_;
};

TEST_F(TimerTableTest, ExpiresAtItsTimeAndOnce) {
  EXPECT_EQ(table_.next(), TimePoint::max());
  take(1, "a", 503.5, SIGTERM);
  take(2, "b", 502, SIGKILL);
  EXPECT_EQ(table_.next(), kStart + seconds(2));
  EXPECT_FALSE(table_.take_expired(kStart + milliseconds(1999)));
  const std::optional<ExpiredTimer> expired = table_.take_expired(kStart + seconds(2));
  ASSERT_TRUE(expired);
  EXPECT_EQ(expired->pid, 2);
  EXPECT_EQ(expired->scope, "b");
  EXPECT_EQ(expired->signal, SIGKILL);
  EXPECT_EQ(expired->process_started, 77u);
  EXPECT_FALSE(table_.take_expired(kStart + seconds(2)));
  EXPECT_EQ(table_.next(), kStart + milliseconds(3500));
}

TEST_F(TimerTableTest, ReleasedMovedAndLongPastTimers) {
  take(1, "a", 502, SIGKILL);
  take(1, "a", -1, 0);
  EXPECT_EQ(table_.next(), TimePoint::max());
  take(1, "b", -1, 0);  // never set
  take(1, "a", 502, SIGKILL);
  take(1, "a", 509, SIGKILL);
  EXPECT_EQ(table_.next(), kStart + seconds(9));
  take(2, "late", 3, SIGKILL);
  EXPECT_EQ(table_.next(), kStart);
  EXPECT_EQ(table_.take_expired(kStart)->pid, 2);
  take(3, "far", 1e300, SIGKILL);
  EXPECT_FALSE(table_.take_expired(kStart + seconds(8)));
}

TEST_F(TimerTableTest, TheFirstWithASignalDecidesForTheWholeProcess) {
  take(1, "none", 501, 0);
  take(1, "term", 503, SIGTERM);
  take(1, "kill", 502, SIGKILL);
  take(1, "later", 600, SIGKILL);
  const std::optional<ExpiredTimer> expired = table_.take_expired(kStart + seconds(5));
  ASSERT_TRUE(expired);
  EXPECT_EQ(expired->scope, "kill");
  EXPECT_EQ(table_.next(), TimePoint::max());  // no timer of it is left
  take(1, "none", 501, -1);
  EXPECT_FALSE(table_.take_expired(kStart + seconds(5)));
  EXPECT_EQ(table_.next(), TimePoint::max());
}

}  // namespace
}  // namespace cpprun::launcher
