#include "launcher/health/stack_dump.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "launcher/health/capture_thread.hpp"
#include "launcher/health/flight_recorder.hpp"
#include "launcher/health/python_dump.hpp"
#include "launcher/health/python_stacks.hpp"
#include "launcher/health/stack_process.hpp"
#include "launcher/health/tool_run.hpp"
#include "launcher/report/utc_time.hpp"
#include "launcher/text.hpp"
#include "rendezvous/async/task_group.hpp"

namespace cpprun::launcher {
namespace {

constexpr int kMostTries = 5;
// A capture takes milliseconds; one that the kernel holds up is not to cost the other workers theirs.
constexpr std::chrono::milliseconds kCaptureLimit{1000};
// Of Python's own stacks, which come from the worker or from reading it while it runs.
constexpr std::chrono::milliseconds kPythonLimit{2000};
constexpr std::size_t kMostOutput = 8 * 1024 * 1024;
// Each unwinder may take 100 MB and more.
constexpr std::size_t kAtOnce = 4;

std::string path_in(const std::vector<std::string>& environment) {
  const auto found = std::find_if(environment.begin(), environment.end(),
                                  [](const std::string& entry) { return entry.starts_with("PATH="); });
  return found == environment.end() ? "" : found->substr(5);
}

void add_note(RankStacks& stacks, const std::string& note) {
  if (note.empty()) return;
  if (!stacks.note.empty()) stacks.note += "; ";
  stacks.note += note;
}

RankStacks described(const StackTarget& target, const CapturedProcess& process, const std::string& host) {
  RankStacks stacks;
  stacks.rank = target.global_rank;
  stacks.local_rank = target.local_rank;
  stacks.pid = target.pid;
  stacks.host = host;
  stacks.captured_at = utc_time(process.when);
  stacks.stopped_ms = static_cast<double>(process.stopped.count()) / 1000;
  stacks.note = process.note;
  for (const ThreadFacts& facts : process.threads) {
    ThreadStack thread;
    thread.tid = facts.tid;
    thread.name = facts.name;
    if (facts.state != '\0') thread.state = facts.state;
    thread.wchan = facts.wchan;
    thread.kernel = facts.kernel;
    thread.note = facts.note;
    stacks.threads.push_back(std::move(thread));
  }
  return stacks;
}

// At the process that works; a note where that is not the worker itself.
std::string aim(StackTarget& target) {
  StackProcess process = process_that_works(target.pid, target.writer);
  target.pid = process.pid;
  // Nobody else has a handler for it.
  if (target.writer != 0 && target.writer != target.pid) target.python_signal = 0;
  return std::move(process.note);
}

class Dump {
 public:
  Dump(asio::io_context& io, std::vector<StackTarget> targets, const StackTools& tools,
       async::Deadline deadline)
      : io_(io), targets_(std::move(targets)), tools_(tools), deadline_(deadline) {}

  awaitable<std::vector<RankStacks>> run() {
    const CaptureLimits limits;
    for (StackTarget& target : targets_) {
      const std::string wrapper = aim(target);
      const async::Deadline limit =
          async::Deadline::earlier(deadline_, async::Deadline::after(kCaptureLimit));
      Captured one = co_await capture(io_, target.pid, limits, limit);
      // On a machine that is too busy to stop it in time, another moment may be better.
      for (int times = 1; times < kMostTries && one.process.main_late && !limit.passed(); ++times) {
        one = co_await capture(io_, target.pid, limits, limit);
      }
      captured_.push_back(std::move(one));
      stacks_.push_back(described(target, captured_.back().process, tools_.host));
      add_note(stacks_.back(), wrapper);
    }
    async::TaskGroup group(io_.get_executor());
    for (std::size_t i = 0; i < std::min(kAtOnce, targets_.size()); ++i) group.start(name_next());
    for (std::size_t i = 0; i < targets_.size(); ++i) group.start(add_python(i));
    // Already cancelled, join() would leave its tasks behind.
    const bool throws = co_await asio::this_coro::throw_if_cancelled();
    co_await asio::this_coro::throw_if_cancelled(false);
    co_await group.join();
    co_await asio::this_coro::throw_if_cancelled(throws);
    co_return std::move(stacks_);
  }

 private:
  // One of kAtOnce that share the work.
  awaitable<void> name_next() {
    while (next_ < targets_.size()) {
      const std::size_t mine = next_++;
      co_await name_frames(stacks_[mine], std::move(captured_[mine].image));
    }
  }

  awaitable<void> name_frames(RankStacks& stacks, FileDescriptor image) {
    if (!image.valid()) co_return;
    if (tools_.unwinder.empty()) {
      add_note(stacks, "no frames: cpprun-stacks is not beside cpprun");
      co_return;
    }
    Tool tool{{tools_.unwinder}, tools_.environment, std::move(image)};
    // Debug information is looked for on this machine only.
    std::erase_if(tool.environment,
                  [](const std::string& entry) { return entry.starts_with("DEBUGINFOD_URLS="); });
    const ToolOutput output = co_await run_tool(io_, std::move(tool), kMostOutput, deadline_);
    std::size_t named = 0;
    for (const std::string& line : split(output.text, '\n')) named += add_unwound(stacks, line) ? 1 : 0;
    if (!output.fault.empty()) add_note(stacks, "frames are missing: cpprun-stacks: " + output.fault);
    if (output.fault.empty() && named == 0) add_note(stacks, "no frames: cpprun-stacks named none");
  }

  awaitable<void> add_python(std::size_t index) {
    const StackTarget& target = targets_[index];
    const CapturedProcess& process = captured_[index].process;
    RankStacks& stacks = stacks_[index];
    add_note(stacks, ask_flight_recorder(process.environment, target.pid, target.global_rank));
    const async::Deadline limit = async::Deadline::earlier(deadline_, async::Deadline::after(kPythonLimit));
    const std::string py_spy = find_py_spy(process.command, path_in(tools_.environment));
    if (!py_spy.empty()) {
      Tool tool{{py_spy, "dump", "--json", "--nonblocking", "--pid", std::to_string(target.pid)},
                tools_.environment,
                {}};
      const ToolOutput output = co_await run_tool(io_, std::move(tool), kMostOutput, limit);
      stacks.python = parse_py_spy(output.text, target.pid);
    }
    if (stacks.python.empty() && target.python_signal == 0) {
      stacks.python_missing = runs_python(target.pid, process.command);
    }
    if (!stacks.python.empty() || target.python_signal == 0) co_return;
    // It may only just be falling back into its stop.
    if (!process.threads.empty() && process.threads.front().state == 'T') {
      add_note(stacks, "no Python stacks: the process is stopped");
      co_return;
    }
    const async::Deadline again = async::Deadline::earlier(deadline_, async::Deadline::after(kPythonLimit));
    const SignalDump dump =
        co_await dump_by_signal(io_, target.pid, target.python_signal, target.python_file, again);
    stacks.python = parse_faulthandler(dump.text);
    if (!dump.fault.empty()) add_note(stacks, "no Python stacks: " + dump.fault);
  }

  asio::io_context& io_;
  std::vector<StackTarget> targets_;
  const StackTools& tools_;
  const async::Deadline deadline_;
  std::vector<Captured> captured_;
  std::vector<RankStacks> stacks_;
  std::size_t next_ = 0;
};

}  // namespace

StackTools find_stack_tools(const std::string& folder, std::vector<std::string> environment,
                            std::string host) {
  StackTools tools{folder + "/cpprun-stacks", std::move(environment), std::move(host)};
  if (::access(tools.unwinder.c_str(), X_OK) != 0) tools.unwinder.clear();
  return tools;
}

awaitable<std::vector<RankStacks>> dump_stacks(asio::io_context& io, std::vector<StackTarget> targets,
                                               const StackTools& tools, async::Deadline deadline) {
  Dump dump(io, std::move(targets), tools, deadline);
  std::vector<RankStacks> stacks = co_await dump.run();
  co_return std::move(stacks);
}

}  // namespace cpprun::launcher
