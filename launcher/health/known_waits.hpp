// What a rank is waiting for, by the names of the functions that it is in. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/health/rank_stacks.hpp"

namespace cpprun::launcher {

// "compute" of "void ns::compute<int>(int)": without arguments and templates, with its namespaces.
std::string bare_name(const std::string& function);

enum class WaitKind { Collective, Store, Gpu, System };

struct KnownWait {
  WaitKind kind;
  std::string verb;  // "wait", "sleep"
  std::string what;  // " in allreduce", " for a lock", ""
  // The outermost frame that belongs to the wait: those inside it differ by chance.
  std::size_t frame = 0;
};

// `frames` innermost first. Collectives and the store count wherever they stand in the stack, what an
// operating system offers only near its end.
std::optional<KnownWait> known_wait(const std::vector<StackFrame>& frames);

}  // namespace cpprun::launcher
