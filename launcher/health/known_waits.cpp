#include "launcher/health/known_waits.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace cpprun::launcher {
namespace {

// Names of collectives, lower-case and without underscores. The longer ones stand before what they contain.
struct Collective {
  std::string_view part;
  const char* what;
};
constexpr std::array<Collective, 11> kCollectives{{{"allreduce", " in allreduce"},
                                                   {"reducescatter", " in reduce-scatter"},
                                                   {"allgather", " in allgather"},
                                                   {"alltoall", " in all-to-all"},
                                                   {"broadcast", " in broadcast"},
                                                   {"barrier", " in a barrier"},
                                                   {"gather", " in gather"},
                                                   {"scatter", " in scatter"},
                                                   {"reduce", " in reduce"},
                                                   {"recv", " in a receive"},
                                                   {"send", " in a send"}}};

// Many programs have a `reduce` or a `send`: it counts in a function of these, or in a Python file of such a
// folder.
constexpr std::array<std::string_view, 5> kCollectiveScopes{"c10d::", "gloo::", "nccl",
                                                            "cpprun::worker::", "MPI"};
constexpr std::string_view kCollectiveFolder = "torch/distributed";

struct Rule {
  std::string_view part;  // of the bare name
  WaitKind kind;
  const char* verb;
  const char* what;
};
constexpr std::array<Rule, 16> kRules{{
    {"TCPStore::", WaitKind::Store, "wait", " on the store"},
    {"PrefixStore::", WaitKind::Store, "wait", " on the store"},
    {"_store_based_barrier", WaitKind::Store, "wait", " on the store"},
    {"ncclCommInit", WaitKind::Collective, "wait", " in the set-up of NCCL"},
    {"c10d::Work::wait", WaitKind::Collective, "wait", " in a collective"},
    {"AsyncWork::wait", WaitKind::Collective, "wait", " in a collective"},
    {"WorkNCCL::synchronize", WaitKind::Collective, "wait", " in a collective"},
    {"WorkNCCL::wait", WaitKind::Collective, "wait", " in a collective"},
    {"gloo::transport", WaitKind::Collective, "wait", " in a collective"},
    {"cudaStreamSynchronize", WaitKind::Gpu, "wait", " for the GPU"},
    {"cudaDeviceSynchronize", WaitKind::Gpu, "wait", " for the GPU"},
    {"cudaEventSynchronize", WaitKind::Gpu, "wait", " for the GPU"},
    {"cuStreamSynchronize", WaitKind::Gpu, "wait", " for the GPU"},
    {"cuCtxSynchronize", WaitKind::Gpu, "wait", " for the GPU"},
    {"cuEventSynchronize", WaitKind::Gpu, "wait", " for the GPU"},
    {"hipStreamSynchronize", WaitKind::Gpu, "wait", " for the GPU"},
}};

// Functions of the C library and of Python's, by their whole name without leading underscores.
constexpr std::array<Rule, 32> kSystem{{
    {"clock_nanosleep", WaitKind::System, "sleep", ""},
    {"nanosleep", WaitKind::System, "sleep", ""},
    {"usleep", WaitKind::System, "sleep", ""},
    {"sleep", WaitKind::System, "sleep", ""},
    {"pause", WaitKind::System, "wait", " for a signal"},
    {"sigsuspend", WaitKind::System, "wait", " for a signal"},
    {"sigtimedwait", WaitKind::System, "wait", " for a signal"},
    {"lll_lock_wait", WaitKind::System, "wait", " for a lock"},
    {"pthread_mutex_lock", WaitKind::System, "wait", " for a lock"},
    {"pthread_rwlock_rdlock", WaitKind::System, "wait", " for a lock"},
    {"pthread_rwlock_wrlock", WaitKind::System, "wait", " for a lock"},
    {"sem_wait", WaitKind::System, "wait", " for a lock"},
    {"new_sem_wait_slow64", WaitKind::System, "wait", " for a lock"},
    {"futex_abstimed_wait_common", WaitKind::System, "wait", " for another thread"},
    {"futex_abstimed_wait_common64", WaitKind::System, "wait", " for another thread"},
    {"pthread_cond_wait", WaitKind::System, "wait", " for another thread"},
    {"pthread_cond_timedwait", WaitKind::System, "wait", " for another thread"},
    {"pthread_cond_clockwait", WaitKind::System, "wait", " for another thread"},
    {"pthread_clockjoin_ex", WaitKind::System, "wait", " for another thread's end"},
    {"wait4", WaitKind::System, "wait", " for a process of its own"},
    {"waitpid", WaitKind::System, "wait", " for a process of its own"},
    {"waitid", WaitKind::System, "wait", " for a process of its own"},
    {"poll", WaitKind::System, "wait", " for input or output"},
    {"ppoll", WaitKind::System, "wait", " for input or output"},
    {"epoll_wait", WaitKind::System, "wait", " for input or output"},
    {"select", WaitKind::System, "wait", " for input or output"},
    {"read", WaitKind::System, "wait", " for input"},
    {"recv", WaitKind::System, "wait", " for input"},
    {"recvmsg", WaitKind::System, "wait", " for input"},
    {"accept", WaitKind::System, "wait", " for input"},
    {"connect", WaitKind::System, "wait", " for a connection"},
    {"write", WaitKind::System, "wait", " for room to write"},
}};
// Below a system call stand a few functions of the C library.
constexpr std::size_t kNearTheEnd = 6;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string plain(std::string_view name) {
  std::string result;
  for (const char c : name) {
    if (c != '_') result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return result;
}

const char* collective_of(const StackFrame& frame) {
  const std::string name = bare_name(frame.function);
  const bool in_scope = contains(frame.file, kCollectiveFolder) ||
                        std::any_of(kCollectiveScopes.begin(), kCollectiveScopes.end(),
                                    [&](std::string_view scope) { return contains(name, scope); });
  if (!in_scope) return nullptr;
  // Namespaces and classes of other things may hold such a name too; a Work belongs to its collective.
  const std::string whole = plain(name);
  for (const Collective& collective : kCollectives) {
    if (contains(whole, collective.part)) return collective.what;
  }
  return nullptr;
}

std::optional<KnownWait> by_rules(const std::vector<StackFrame>& frames) {
  for (const Rule& rule : kRules) {
    for (std::size_t i = frames.size(); i-- > 0;) {
      if (!contains(bare_name(frames[i].function), rule.part)) continue;
      return KnownWait{rule.kind, rule.verb, rule.what, i};
    }
  }
  return std::nullopt;
}

std::optional<KnownWait> by_system(const std::vector<StackFrame>& frames) {
  for (std::size_t i = std::min(frames.size(), kNearTheEnd); i-- > 0;) {
    std::string name = bare_name(frames[i].function);
    name.erase(0, std::min(name.find_first_not_of('_'), name.size()));
    if (name.starts_with("GI_")) name.erase(0, std::min(name.find_first_not_of('_', 2), name.size()));
    const auto rule =
        std::find_if(kSystem.begin(), kSystem.end(), [&](const Rule& one) { return one.part == name; });
    if (rule != kSystem.end()) return KnownWait{rule->kind, rule->verb, rule->what, i};
  }
  return std::nullopt;
}

}  // namespace

std::string bare_name(const std::string& function) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)";
  std::string name;
  int depth = 0;
  for (std::size_t i = 0; i < function.size(); ++i) {
    if (function.compare(i, kAnonymous.size(), kAnonymous) == 0) {
      if (depth == 0) name += kAnonymous;
      i += kAnonymous.size() - 1;
    } else if (function[i] == '<') {
      ++depth;
    } else if (function[i] == '>' && depth > 0) {
      --depth;
    } else if (function[i] == '(' && depth == 0) {
      break;
    } else if (depth == 0) {
      name += function[i];
    }
  }
  // What is left in front of a template's name is its result.
  const std::size_t blank = name.rfind(' ');
  const bool is_result =
      blank != std::string::npos && !contains(name, "operator") && !contains(name, kAnonymous);
  return is_result ? name.substr(blank + 1) : name;
}

std::optional<KnownWait> known_wait(const std::vector<StackFrame>& frames) {
  for (std::size_t i = frames.size(); i-- > 0;) {
    if (const char* what = collective_of(frames[i])) return KnownWait{WaitKind::Collective, "wait", what, i};
  }
  if (std::optional<KnownWait> wait = by_rules(frames)) return wait;
  return by_system(frames);
}

}  // namespace cpprun::launcher
