#include "launcher/health/health.hpp"

#include <spdlog/spdlog.h>

#include <optional>
#include <utility>

#include "launcher/health/capture_thread.hpp"
#include "launcher/health/node_evidence.hpp"
#include "launcher/health/stack_files.hpp"
#include "launcher/report/node_facts.hpp"
#include "launcher/vital_task.hpp"

namespace cpprun::launcher {
namespace {

constexpr std::chrono::milliseconds kStacksAsked{15'000};
constexpr std::chrono::milliseconds kOtherAsked{3'000};
constexpr int kMostTimesAsked = 3;  // where another's question came first
constexpr std::size_t kHeadBytes = 64;
constexpr std::chrono::seconds kPointerLimit{1};
constexpr const char* kPythonStacks = ".stacks";  // behind the page's name

// Whether steps take the time they take, or are not to be expected.
bool pauses(const worker::ProgressReading& reading) {
  if (reading.phase == worker::Phase::Starting) return !reading.step;
  return reading.phase != worker::Phase::Training && reading.phase != worker::Phase::Waiting;
}

std::uint64_t ticks(std::optional<worker::ProgressReading::TimePoint> when) {
  return when ? static_cast<std::uint64_t>(when->time_since_epoch().count()) : 0;
}

std::optional<WorkerLook::Progress> progress_of(const std::optional<worker::ProgressReading>& reading) {
  if (!reading) return std::nullopt;
  WorkerLook::Progress progress;
  progress.begun = reading->last_progress.has_value();
  progress.heartbeats = reading->heartbeats;
  progress.step = reading->step.value_or(0);
  progress.collective = static_cast<std::uint64_t>(reading->collective.value_or(0));
  progress.moved = ticks(reading->last_progress);
  progress.pausing = pauses(*reading);
  progress.section = reading->section;
  progress.section_entered = ticks(reading->section_since);
  return progress;
}

}  // namespace

Health::Health(asio::io_context& io, const HangLimits& limits, LocalRunner& runner,
               const ProgressPages& pages, EventLog& events, const RunFolder& folder, StackTools tools,
               std::string host, std::string interpreter)
    : io_(io),
      watches_(limits.any()),
      runner_(runner),
      pages_(pages),
      folder_(folder),
      tools_(std::move(tools)),
      hangs_(io, limits, watch()),
      response_(parts(), events),
      exchange_(
          io.get_executor(), [this](std::string request) { return answer(std::move(request)); },
          [this](int, int, Gathered gathered) { return keep(std::move(gathered)); },
          words(std::move(host), std::move(interpreter))) {}

void Health::start(async::TaskGroup& tasks) {
  tasks.start(vital(exchange_.run()));
  if (watches_) tasks.start(vital(hangs_.run()));
}

void Health::begin(const Attempt& attempt) {
  const worker::WorkerEnv& first = attempt.workers.front();
  attempt_ = attempt.number;
  nodes_ = first.group_world_size;
  exchange_.begin({{first.master_addr, first.master_port}, attempt_, first.group_rank, nodes_});
}

awaitable<void> Health::take_stacks(std::string why) {
  return response_.take_stacks(std::move(why));
}

awaitable<Gathered> Health::gather_stacks(std::string why) {
  EvidenceRequest request;
  request.why = std::move(why);
  return gather(std::move(request));
}

awaitable<std::vector<NodeWords>> Health::last_words(std::vector<int> lost) {
  return exchange_.last_words(std::move(lost));
}

awaitable<Gathered> Health::gather(EvidenceRequest request) {
  const bool stacks = request.kind == EvidenceRequest::Kind::Stacks;
  const std::chrono::milliseconds limit = stacks ? kStacksAsked : kOtherAsked;
  Gathered result;
  for (int times = 0; times < kMostTimesAsked && result.by_node.empty(); ++times) {
    const Gathered gathered = co_await exchange_.gather(to_text(request), limit);
    result.missing = gathered.missing;
    for (const auto& [node, answer] : gathered.by_node) {
      if (std::optional<std::string> content = content_for(request, answer)) {
        result.by_node.emplace(node, std::move(*content));
      } else {
        result.missing.push_back(node);
      }
    }
    if (gathered.by_node.empty()) break;
  }
  co_return result;
}

HangWatch Health::watch() {
  return {[this] { return runner_.live(); },
          [this](int local_rank) { return progress_of(pages_.reading(local_rank)); },
          [this](pid_t pid) { return stack_pointer_of(pid); },
          [this](Hang hang) { return response_.respond(std::move(hang)); }};
}

HangParts Health::parts() {
  return {[this] { return runner_.live(); },
          [this](EvidenceRequest request) { return ask(std::move(request)); }, [this] { return nodes_; },
          [this] { return stacks_file_; },
          [this](int local_rank, const std::string& why, bool held_by_kernel) {
            runner_.give_up(local_rank, why, held_by_kernel);
          }};
}

WordsSource Health::words(std::string host, std::string interpreter) {
  return {std::move(host),
          [this] {
            ProgressOfRanks progress;
            for (const WorkerStatus& worker : runner_.statuses()) {
              if (const std::optional<worker::ProgressReading> reading = pages_.reading(worker.ranks.local))
                progress[worker.ranks.global] = *reading;
            }
            return progress;
          },
          [interpreter = std::move(interpreter)] { return read_node_facts(interpreter); }};
}

awaitable<std::optional<std::uint64_t>> Health::stack_pointer_of(pid_t pid) {
  CaptureLimits limits;
  limits.threads = 1;
  limits.pointers_only = true;
  const Captured captured = co_await capture(io_, pid, limits, async::Deadline::after(kPointerLimit));
  const std::uint64_t pointer = captured.process.stack_pointer;
  if (pointer == 0) co_return std::nullopt;
  co_return pointer;
}

awaitable<NodeAnswers> Health::ask(EvidenceRequest request) {
  Gathered gathered = co_await gather(std::move(request));
  co_return std::move(gathered.by_node);
}

awaitable<std::string> Health::answer(std::string request) {
  const EvidenceRequest wanted = evidence_request(request);
  std::string content;
  if (wanted.kind == EvidenceRequest::Kind::Quiet) {
    content = hangs_.quiet() ? "1" : "0";
  } else if (wanted.kind == EvidenceRequest::Kind::GiveUp) {
    content = give_up(wanted.rank, wanted.why) ? "ok" : "";
  } else {
    content = co_await own_stacks();
  }
  co_return answer_to(wanted, content);
}

bool Health::give_up(int global_rank, const std::string& why) {
  for (const LiveWorker& worker : runner_.live()) {
    if (worker.ranks.global != global_rank) continue;
    runner_.give_up(worker.ranks.local, why, false);
    return true;
  }
  return false;
}

awaitable<std::string> Health::own_stacks() {
  std::vector<StackTarget> targets;
  for (const WorkerStatus& worker : runner_.statuses()) {
    if (worker.end) continue;
    StackTarget target;
    target.local_rank = worker.ranks.local;
    target.global_rank = worker.ranks.global;
    target.pid = worker.pid;
    if (const std::optional<worker::ProgressReading> reading = pages_.reading(worker.ranks.local)) {
      target.writer = static_cast<pid_t>(reading->writer);
      target.python_signal = reading->python_stacks_signal;
      target.python_file = pages_.file_of(worker.ranks.local) + kPythonStacks;
    }
    targets.push_back(std::move(target));
  }
  const std::vector<RankStacks> stacks =
      co_await dump_stacks(io_, std::move(targets), tools_, async::Deadline::after(kStacksLimit));
  if (const std::filesystem::path folder = attempt_folder(); !folder.empty()) {
    const std::string fault = write_stacks_of_ranks(folder, stacks);
    if (!fault.empty()) spdlog::warn("{}", fault);
  }
  co_return evidence_to_json(stacks, EvidenceExchange::kMostBytes - kHeadBytes);
}

awaitable<void> Health::keep(Gathered gathered) {
  stacks_file_.clear();
  std::map<int, std::string> evidence;
  for (const auto& [node, answer] : gathered.by_node) {
    if (std::optional<std::string> content = content_for(EvidenceRequest(), answer))
      evidence.emplace(node, std::move(*content));
  }
  const std::filesystem::path folder = attempt_folder();
  const std::vector<RankStacks> all = evidence_of_all(evidence);
  if (folder.empty() || all.empty()) co_return;
  const std::string fault = write_stacks_of_all(folder, all);
  if (!fault.empty()) spdlog::warn("{}", fault);
  if (fault.empty()) stacks_file_ = (folder / "stacks.txt").string();
}

std::filesystem::path Health::attempt_folder() const {
  return folder_.exists() ? folder_.attempt_folder(attempt_) : std::filesystem::path();
}

}  // namespace cpprun::launcher
