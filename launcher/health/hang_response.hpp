// What is done about a hang: every node takes its workers' stacks while all of them still stand, then the
// rank that the others most likely wait for is given up, on whichever node it is.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "launcher/health/evidence_request.hpp"
#include "launcher/health/hang_monitor.hpp"
#include "launcher/health/rank_stacks.hpp"
#include "launcher/report/event_log.hpp"

namespace cpprun::launcher {

// Answers by group rank; nodes that gave none are missing.
using NodeAnswers = std::map<int, std::string>;

struct HangParts {
  std::function<std::vector<LiveWorker>()> workers;  // of this node
  // All agents of the attempt, this one included. Bounded; never throws.
  std::function<awaitable<NodeAnswers>(EvidenceRequest request)> ask;
  std::function<int()> nodes;  // of the attempt
  // The file that the stacks of the last answers were written to; empty: none.
  std::function<std::string()> stacks_file;
  // This worker of this node has failed, for this reason.
  std::function<void(int local_rank, const std::string& why, bool held_by_kernel)> give_up;
};

class HangResponse {
 public:
  // `events` outlives it.
  HangResponse(HangParts parts, EventLog& events) : parts_(std::move(parts)), events_(events) {}

  // False: it was none, since the workers of another node do something.
  awaitable<bool> respond(Hang hang);

  // Stacks of all nodes' workers, written beside the logs, and one line in the log of who stands where; the
  // places themselves in the log where no file could be written.
  awaitable<void> take_stacks(std::string why);

 private:
  awaitable<bool> all_are_quiet();
  awaitable<std::vector<RankStacks>> gather(std::string why);
  awaitable<void> give_up(Hang hang, LiveWorker found, const std::vector<RankStacks>& stacks);

  HangParts parts_;
  EventLog& events_;
};

}  // namespace cpprun::launcher
