// Where the workers' Python finds the module that comes with cpprun (cpprun_progress).
#pragma once

#include <string>

namespace cpprun::launcher {

// The value of PYTHONPATH with the module's folder behind all others, where the module lies there: it is
// known relative to `program_folder`, that of cpprun itself, in a build folder as where it is installed.
std::string with_progress_module(const std::string& python_path, const std::string& program_folder);

}  // namespace cpprun::launcher
