// Python's own stacks, as py-spy and faulthandler print them. Pure.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "launcher/health/rank_stacks.hpp"

namespace cpprun::launcher {

// What `py-spy dump --json` prints; empty for any other text.
std::vector<PythonThread> parse_py_spy(std::string_view text, pid_t pid);

// What faulthandler writes on a signal, with all threads. Lines that it does not write are left out.
std::vector<PythonThread> parse_faulthandler(std::string_view text);

}  // namespace cpprun::launcher
