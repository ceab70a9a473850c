// Stacks of all of a node's workers: captured one after another at once, then unwound and named beside the
// agent.
#pragma once

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <string>
#include <vector>

#include "launcher/health/rank_stacks.hpp"
#include "rendezvous/async/deadline.hpp"

namespace cpprun::launcher {

struct StackTarget {
  int local_rank = 0;
  int global_rank = 0;
  pid_t pid = 0;            // of the worker; what is taken are the stacks of process_that_works()
  int python_signal = 0;    // the worker registered faulthandler on it; 0: it did not
  std::string python_file;  // what faulthandler writes to
  pid_t writer = 0;         // of its progress page, which registered it; 0: not known
};

// What is needed to make sense of a capture.
struct StackTools {
  std::string unwinder;                  // path of cpprun-stacks; empty where it was not built
  std::vector<std::string> environment;  // of the tools: the agent's own
  std::string host;                      // this node's name
};

// `folder`: the one that cpprun lies in.
StackTools find_stack_tools(const std::string& folder, std::vector<std::string> environment,
                            std::string host);

constexpr std::chrono::seconds kStacksLimit{10};

// One entry for each target, in their order, by `deadline` at the latest: with what is known by then, and a
// note where something is missing. Never throws for what a worker or a tool does.
awaitable<std::vector<RankStacks>> dump_stacks(asio::io_context& io, std::vector<StackTarget> targets,
                                               const StackTools& tools, async::Deadline deadline);

}  // namespace cpprun::launcher
