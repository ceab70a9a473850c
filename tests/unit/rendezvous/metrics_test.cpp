// The text that Prometheus reads.
#include "rendezvous/daemon/metrics.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>

namespace cpprun::rendezvous {
namespace {

using ::testing::HasSubstr;

DaemonReading full_reading() {
  DaemonReading reading;
  store::StoreUse use;
  use.requests[static_cast<std::size_t>(store::Op::Set)] = 3;
  use.turns = 5;
  use.turns_within = {0, 1, 2, 3, 4, 5, 5, 5};
  use.turn_time = std::chrono::microseconds(1500);
  use.keys = 2;
  reading.stores = {{"", use}, {"other", {}}};
  reading.stores[1].use.keys = 7;
  reading.runs = {{"a\"b\\c\n\xff", 4, {1, 3, 2, true}}};
  reading.runs_opened = 9;
  return reading;
}

TEST(Metrics, HaveTheValues) {
  const std::string text = to_prometheus(full_reading());
  for (const char* line :
       {"cpprund_store_requests_total{op=\"set\"} 3\n", "cpprund_store_requests_total{op=\"barrier\"} 0\n",
        "cpprund_store_turn_seconds_bucket{le=\"1e-05\"} 0\n",
        "cpprund_store_turn_seconds_bucket{le=\"1\"} 5\n",
        "cpprund_store_turn_seconds_bucket{le=\"+Inf\"} 5\n", "cpprund_store_turn_seconds_sum 0.0015\n",
        "cpprund_store_turn_seconds_count 5\n", "cpprund_store_keys 2\n",
        "cpprund_store_keys{store=\"other\"} 7\n",
        "cpprund_store_requests_total{store=\"other\",op=\"set\"} 0\n",
        "cpprund_store_turn_seconds_bucket{store=\"other\",le=\"+Inf\"} 0\n",
        "cpprund_store_turn_seconds_count{store=\"other\"} 0\n", "cpprund_runs 1\n",
        "cpprund_runs_opened_total 9\n", "cpprund_run_agents{run=\"a\\\"b\\\\c??\"} 4\n",
        "cpprund_run_restarts{run=\"a\\\"b\\\\c??\"} 2\n",
        "cpprund_run_running{run=\"a\\\"b\\\\c??\"} 1\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

// Each sample belongs to the family that was announced last, and no series comes twice.
TEST(Metrics, AreWellFormed) {
  std::istringstream lines(to_prometheus(full_reading()));
  std::set<std::string> seen;
  std::string family;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# HELP ")) continue;
    if (line.starts_with("# TYPE ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(seen.insert(family + " (type)").second) << line;
      continue;
    }
    EXPECT_TRUE(line.starts_with(family)) << line << " in " << family;
    EXPECT_TRUE(seen.insert(line.substr(0, line.rfind(' '))).second) << line;
  }
}

}  // namespace
}  // namespace cpprun::rendezvous
