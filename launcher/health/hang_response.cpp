#include "launcher/health/hang_response.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>

#include "launcher/health/node_evidence.hpp"
#include "launcher/health/stack_clusters.hpp"
#include "launcher/text.hpp"

namespace cpprun::launcher {
namespace {

constexpr std::size_t kMostShownLines = 200;  // in the log

std::optional<LiveWorker> worker_of(const std::vector<LiveWorker>& workers, int local_rank) {
  for (const LiveWorker& worker : workers) {
    if (worker.ranks.local == local_rank) return worker;
  }
  return std::nullopt;
}

// Where no file keeps them, people still get to see where the workers stood.
void show(const std::vector<RankStacks>& stacks) {
  std::vector<std::string> lines = split(to_text(cluster_stacks(stacks)), '\n');
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  const bool cut = lines.size() > kMostShownLines;
  if (cut) lines.resize(kMostShownLines);
  spdlog::warn("no file keeps the stacks, so here is where the workers stand:");
  for (const std::string& line : lines) spdlog::warn("  {}", line);
  if (cut) spdlog::warn("  ... more");
}

}  // namespace

awaitable<bool> HangResponse::respond(Hang hang) {
  const std::optional<LiveWorker> found = worker_of(parts_.workers(), hang.local_rank);
  if (!found) co_return true;
  if (hang.kind == HangKind::Silence && !co_await all_are_quiet()) co_return false;
  events_.hang_found(found->ranks, found->pid, hang.what);
  spdlog::warn("rank {} (pid {}) {}; taking the stacks of all workers", found->ranks.global, found->pid,
               hang.what);
  const std::vector<RankStacks> stacks = co_await gather(hang.what);
  co_await give_up(std::move(hang), *found, stacks);
  co_return true;
}

awaitable<bool> HangResponse::all_are_quiet() {
  if (parts_.nodes() < 2) co_return true;
  EvidenceRequest request;
  request.kind = EvidenceRequest::Kind::Quiet;
  const NodeAnswers answers = co_await parts_.ask(std::move(request));
  // A node whose workers have ended does not answer; one that is lost is noticed elsewhere.
  co_return std::none_of(answers.begin(), answers.end(),
                         [](const auto& answer) { return answer.second == "0"; });
}

awaitable<void> HangResponse::take_stacks(std::string why) {
  const std::vector<RankStacks> stacks = co_await gather(std::move(why));
  if (!stacks.empty()) spdlog::info("{}", summary_of(cluster_stacks(stacks)));
}

awaitable<std::vector<RankStacks>> HangResponse::gather(std::string why) {
  EvidenceRequest request;
  request.why = std::move(why);
  const NodeAnswers answers = co_await parts_.ask(std::move(request));
  const std::string file = parts_.stacks_file();
  std::vector<RankStacks> stacks = evidence_of_all(answers);
  if (!file.empty()) {
    events_.stacks_taken(file);
  } else if (!stacks.empty()) {
    show(stacks);
  }
  co_return std::move(stacks);
}

awaitable<void> HangResponse::give_up(Hang hang, LiveWorker found, const std::vector<RankStacks>& stacks) {
  const std::vector<StackCluster> clusters = cluster_stacks(stacks);
  const bool may_be_another =
      hang.kind == HangKind::Step || hang.kind == HangKind::Silence || hang.kind == HangKind::Section;
  const std::optional<int> odd = may_be_another ? odd_rank(clusters) : std::nullopt;
  const int rank = odd.value_or(found.ranks.global);
  std::string why = hang.what;
  if (!clusters.empty()) why += "; " + summary_of(clusters);
  for (const LiveWorker& worker : parts_.workers()) {
    if (worker.ranks.global != rank) continue;
    parts_.give_up(worker.ranks.local, why, hang.kind == HangKind::Stuck);
    co_return;
  }
  EvidenceRequest request;
  request.kind = EvidenceRequest::Kind::GiveUp;
  request.rank = rank;
  request.why = why;
  const NodeAnswers answers = co_await parts_.ask(std::move(request));
  const bool done =
      std::any_of(answers.begin(), answers.end(), [](const auto& answer) { return answer.second == "ok"; });
  if (!done) parts_.give_up(found.ranks.local, why, false);
}

}  // namespace cpprun::launcher
