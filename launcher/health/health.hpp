// The health of a node's workers while they run: hangs are looked for and answered, stacks are taken on
// request, and what all nodes know of an attempt is gathered.
#pragma once

#include <boost/asio/io_context.hpp>
#include <string>

#include "launcher/health/evidence_exchange.hpp"
#include "launcher/health/hang_monitor.hpp"
#include "launcher/health/hang_response.hpp"
#include "launcher/health/progress_pages.hpp"
#include "launcher/health/stack_dump.hpp"
#include "launcher/process/local_runner.hpp"
#include "rendezvous/async/task_group.hpp"

namespace cpprun::launcher {

class Health {
 public:
  // References outlive it. `interpreter`: of the workers, or empty.
  Health(asio::io_context& io, const HangLimits& limits, LocalRunner& runner, const ProgressPages& pages,
         EventLog& events, const RunFolder& folder, StackTools tools, std::string host,
         std::string interpreter);

  // Starts what runs until `tasks` are cancelled.
  void start(async::TaskGroup& tasks);
  // The workers of another attempt run.
  void begin(const Attempt& attempt);
  // They are gone: other nodes get no answers any more, and the workers' store is left alone.
  void end() { exchange_.begin({}); }

  // Stacks of all nodes' workers, on disk when this returns, and one line in the log of who stands where.
  // Bounded.
  awaitable<void> take_stacks(std::string why);
  // For whoever shows them, see evidence_from_json().
  awaitable<Gathered> gather_stacks(std::string why);
  // See EvidenceExchange::last_words().
  awaitable<std::vector<NodeWords>> last_words(std::vector<int> lost);

 private:
  HangWatch watch();
  HangParts parts();
  WordsSource words(std::string host, std::string interpreter);
  awaitable<std::optional<std::uint64_t>> stack_pointer_of(pid_t pid);
  awaitable<NodeAnswers> ask(EvidenceRequest request);
  awaitable<Gathered> gather(EvidenceRequest request);
  awaitable<std::string> answer(std::string request);
  awaitable<std::string> own_stacks();
  bool give_up(int global_rank, const std::string& why);
  awaitable<void> keep(Gathered gathered);
  std::filesystem::path attempt_folder() const;

  asio::io_context& io_;
  const bool watches_;
  LocalRunner& runner_;
  const ProgressPages& pages_;
  const RunFolder& folder_;
  const StackTools tools_;
  HangMonitor hangs_;
  HangResponse response_;
  EvidenceExchange exchange_;
  std::string stacks_file_;  // that the last gathered ones were written to; empty: none were
  int attempt_ = 0;
  int nodes_ = 1;
};

}  // namespace cpprun::launcher
