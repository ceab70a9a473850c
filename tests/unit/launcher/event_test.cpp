// The lines of the event log, in torchrun's keys and order.
#include "launcher/report/event.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <stdexcept>

namespace cpprun::launcher {
namespace {

const EventSource kSource{"job", "trainer", "host1", "c10d", "python3"};

Event event(const char* state) {
  Event event;
  event.state = state;
  event.when = std::chrono::system_clock::time_point(std::chrono::milliseconds(1'795'973'885'042));
  event.total_run_time = std::chrono::seconds(3);
  event.agent_restarts = 1;
  return event;
}

TEST(Event, OfTheAgent) {
  Event joined = event("RENDEZVOUS");
  joined.group_rank = 0;
  joined.group_world_size = 2;
  joined.duration = std::chrono::duration<double, std::milli>(1.5);
  EXPECT_EQ(
      to_json(kSource, joined),
      R"({"name":"torchelastic.worker.status.RENDEZVOUS","source":"AGENT","timestamp":1795973885042,)"
      R"("metadata":{"run_id":"job","global_rank":null,"group_rank":0,"worker_id":null,"role":"trainer",)"
      R"("hostname":"host1","state":"RENDEZVOUS","total_run_time":3,"rdzv_backend":"c10d","raw_error":null,)"
      R"("metadata":"{\"group_world_size\":2,\"entry_point\":\"python3\"}","agent_restarts":1,)"
      R"("duration_ms":1.5}})");
}

TEST(Event, OfAWorker) {
  Event failed = event("FAILED");
  failed.raw_error = "{\"message\":\"\xff\"}";
  failed.worker = EventWorker{{1, 5, 3, 8, 4}, 77, Signaled{SIGKILL}};
  EXPECT_EQ(
      to_json(kSource, failed),
      R"({"name":"torchelastic.worker.status.FAILED","source":"WORKER","timestamp":1795973885042,)"
      R"("metadata":{"run_id":"job","global_rank":5,"group_rank":null,"worker_id":"77","role":"trainer",)"
      R"("hostname":"host1","state":"FAILED","total_run_time":3,"rdzv_backend":"c10d",)"
      R"("raw_error":"{\"message\":\")"
      "\xef\xbf\xbd"
      R"(\"}","metadata":"{\"group_world_size\":null,\"entry_point\":\"python3\",\"local_rank\":[1],)"
      R"(\"role_rank\":[3],\"role_world_size\":[4],\"exit_code\":[-9],\"worker_pid\":[77]}",)"
      R"("agent_restarts":1,"duration_ms":null}})");
  failed.worker->status = std::nullopt;
  EXPECT_NE(to_json(kSource, failed).find(R"(\"exit_code\":[null],\"worker_pid\":[null])"),
            std::string::npos);
}

TEST(EventDestination, Names) {
  for (const char* name : {"null", "dynamic_rendezvous"}) {
    EXPECT_FALSE(EventDestination::parse(name).console) << name;
    EXPECT_EQ(EventDestination::parse(name).file, "") << name;
  }
  EXPECT_TRUE(EventDestination::parse("console").console);
  EXPECT_EQ(EventDestination::parse("file:a:b").file, "a:b");
  for (const char* name : {"", "Console", "file", "file:", "/tmp/x"})
    EXPECT_THROW(EventDestination::parse(name), std::invalid_argument) << name;
}

}  // namespace
}  // namespace cpprun::launcher
