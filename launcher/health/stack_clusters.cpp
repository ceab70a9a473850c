#include "launcher/health/stack_clusters.hpp"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>

#include "launcher/health/known_waits.hpp"

namespace cpprun::launcher {
namespace {

constexpr std::size_t kMostFramesShown = 40;

const std::vector<StackFrame>& no_frames() {
  static const std::vector<StackFrame> none;
  return none;
}

// What one rank is compared by.
struct Place {
  std::string verb;  // empty: it is just there
  std::string what;
  std::vector<StackFrame> frames;  // from the wait outwards
  bool python = false;
  bool waits = false;
  bool for_peers = false;  // waits for other ranks
  bool held = false;       // cannot run
};

const std::vector<StackFrame>& python_frames(const RankStacks& rank) {
  for (const PythonThread& thread : rank.python) {
    if (thread.main) return thread.frames;
  }
  return rank.python.empty() ? no_frames() : rank.python.front().frames;
}

// A main thread that waits in "a collective" has handed it to a thread of the library's own.
std::optional<KnownWait> collective_elsewhere(const RankStacks& rank) {
  for (const ThreadStack& thread : rank.threads) {
    std::optional<KnownWait> wait = known_wait(thread.frames);
    if (wait && wait->kind == WaitKind::Collective && wait->what != " in a collective") return wait;
  }
  return std::nullopt;
}

void set_wait(Place& place, const RankStacks& rank, const std::vector<StackFrame>& native) {
  const std::optional<KnownWait> in_python = place.python ? known_wait(place.frames) : std::nullopt;
  const std::optional<KnownWait> in_native = known_wait(native);
  const std::optional<KnownWait>& wait = in_python && in_python->kind != WaitKind::System ? in_python
                                         : in_native                                      ? in_native
                                                                                          : in_python;
  if (!wait) return;
  place.verb = wait->verb;
  place.what = wait->what;
  place.waits = true;
  place.for_peers = wait->kind == WaitKind::Collective || wait->kind == WaitKind::Store;
  if (wait->what == " in a collective") {
    if (const std::optional<KnownWait> named = collective_elsewhere(rank)) place.what = named->what;
  }
  const std::optional<KnownWait>& shown = place.python ? in_python : in_native;
  if (shown)
    place.frames.erase(place.frames.begin(),
                       place.frames.begin() + static_cast<std::ptrdiff_t>(shown->frame));
}

Place place_of(const RankStacks& rank) {
  Place place;
  const std::vector<StackFrame>& native = rank.threads.empty() ? no_frames() : rank.threads.front().frames;
  const std::vector<StackFrame>& python = python_frames(rank);
  place.python = !python.empty();
  place.frames = place.python ? python : native;
  const std::string state = rank.threads.empty() ? "" : rank.threads.front().state;
  if (state == "T") {
    place.what = "stopped by a signal";
  } else if (state == "t") {
    place.what = "stopped by a debugger";
  } else if (state == "D") {
    const std::string& wchan = rank.threads.front().wchan;
    place.what = "in uninterruptible sleep" + (wchan.empty() ? "" : " (" + wchan + ")");
  } else if (place.frames.empty()) {
    place.what = "without a stack" + (rank.note.empty() ? "" : " (" + rank.note + ")");
  } else {
    set_wait(place, rank, native);
  }
  place.held = state == "T" || state == "t" || state == "D";
  return place;
}

std::string key_of(const Place& place) {
  std::string key = place.verb + place.what + "\n";
  for (const StackFrame& frame : place.frames) {
    key += frame.function.empty() ? frame.module + "+" + std::to_string(frame.offset) : frame.function;
    if (place.python) key += " " + frame.file;
    if (place.python && place.waits) key += ":" + std::to_string(frame.line);
    key += "\n";
  }
  return key;
}

std::string doing(const Place& place, bool one) {
  if (!place.verb.empty()) return place.verb + (one ? "s" : "") + place.what;
  return std::string(one ? "is " : "are ") + (place.what.empty() ? "here" : place.what);
}

bool starts_with_one_of(std::string_view text, std::initializer_list<std::string_view> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [text](std::string_view beginning) { return text.starts_with(beginning); });
}

// Not a function of the languages' own, which any program may be in.
bool tells_something(const StackFrame& frame) {
  const std::string file = frame.module.substr(frame.module.rfind('/') + 1);
  return !frame.function.empty() &&
         !starts_with_one_of(file, {"libc.", "libstdc++", "ld-linux", "python3", "libpython"}) &&
         !starts_with_one_of(frame.function,
                             {"std::", "pybind11::", "_Py", "PyObject_", "PyEval", "cfunction_"});
}

// For a wait its caller, else the innermost frame.
std::string where(const Place& place) {
  for (std::size_t i = place.waits && place.frames.size() > 1 ? 1 : 0; i < place.frames.size(); ++i) {
    StackFrame shown = place.frames[i];
    if (place.python) return to_text(shown);  // its names, such as <module>, are bare
    if (!tells_something(shown)) continue;
    shown.function = bare_name(shown.function);
    return to_text(shown);
  }
  return "";
}

std::string ranks_text(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return "rank " + std::to_string(ranks.front());
  return std::to_string(ranks.size()) + " ranks (" + rank_ranges(ranks) + ")";
}

}  // namespace

std::vector<StackCluster> cluster_stacks(const std::vector<RankStacks>& ranks) {
  struct Members {
    Place place;
    std::vector<int> ranks;
  };
  std::vector<const RankStacks*> in_order;
  in_order.reserve(ranks.size());
  for (const RankStacks& rank : ranks) in_order.push_back(&rank);
  std::stable_sort(in_order.begin(), in_order.end(),
                   [](const RankStacks* a, const RankStacks* b) { return a->rank < b->rank; });
  std::map<std::string, Members> by_key;
  for (const RankStacks* rank : in_order) {
    Place place = place_of(*rank);
    const std::string key = key_of(place);
    by_key.try_emplace(key, Members{std::move(place), {}}).first->second.ranks.push_back(rank->rank);
  }
  std::vector<StackCluster> clusters;
  for (const auto& [key, members] : by_key) {
    StackCluster cluster;
    cluster.ranks = members.ranks;
    cluster.doing = doing(members.place, members.ranks.size() == 1);
    cluster.where = where(members.place);
    cluster.waits = members.place.waits;
    cluster.for_peers = members.place.for_peers;
    cluster.held = members.place.held;
    for (const StackFrame& frame : members.place.frames) cluster.frames.push_back(to_text(frame));
    clusters.push_back(std::move(cluster));
  }
  std::sort(clusters.begin(), clusters.end(), [](const StackCluster& a, const StackCluster& b) {
    return std::make_tuple(a.ranks.size(), a.waits, a.ranks.front()) <
           std::make_tuple(b.ranks.size(), b.waits, b.ranks.front());
  });
  return clusters;
}

std::string summary_of(const std::vector<StackCluster>& clusters) {
  std::string text;
  for (auto cluster = clusters.rbegin(); cluster != clusters.rend(); ++cluster) {
    if (!text.empty()) text += "; ";
    text += ranks_text(cluster->ranks) + " " + cluster->doing;
    if (!cluster->where.empty()) text += ": " + cluster->where;
  }
  return text;
}

std::string to_text(const std::vector<StackCluster>& clusters) {
  std::string text;
  for (const StackCluster& cluster : clusters) {
    if (!text.empty()) text += "\n";
    text += ranks_text(cluster.ranks) + " " + cluster.doing + (cluster.frames.empty() ? "\n" : ":\n");
    for (std::size_t i = 0; i < std::min(cluster.frames.size(), kMostFramesShown); ++i) {
      text += "    #" + std::to_string(i) + "  " + cluster.frames[i] + "\n";
    }
    if (cluster.frames.size() > kMostFramesShown) text += "    ...\n";
  }
  return text;
}

std::string to_text(const std::vector<RankStacks>& ranks) {
  const bool missing =
      std::any_of(ranks.begin(), ranks.end(), [](const RankStacks& rank) { return rank.python_missing; });
  std::string text = missing ? std::string(kHowToGetPython) + "\n\n" : "";
  text += to_text(cluster_stacks(ranks));
  for (const RankStacks& rank : ranks) text.append("\n").append(to_text(rank));
  return text;
}

std::string rank_ranges(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!text.empty()) text += ", ";
    text += std::to_string(ranks[first]);
    if (last > first) text.append("-").append(std::to_string(ranks[last]));
    first = last + 1;
  }
  return text;
}

std::optional<int> odd_rank(const std::vector<StackCluster>& clusters) {
  if (clusters.size() < 2) return std::nullopt;
  const auto first = [&clusters](auto wanted) -> std::optional<int> {
    const auto found = std::find_if(clusters.begin(), clusters.end(), wanted);
    return found == clusters.end() ? std::nullopt : std::optional<int>(found->ranks.front());
  };
  if (const std::optional<int> held = first([](const StackCluster& cluster) { return cluster.held; }))
    return held;
  if (first([](const StackCluster& cluster) { return cluster.for_peers; })) {
    const std::optional<int> elsewhere =
        first([](const StackCluster& cluster) { return !cluster.for_peers && !cluster.frames.empty(); });
    if (elsewhere) return elsewhere;
  }
  if (clusters.front().ranks.size() == clusters.back().ranks.size()) return std::nullopt;
  return clusters.front().ranks.front();
}

}  // namespace cpprun::launcher
