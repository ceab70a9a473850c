// Files that the kernel makes up when they are read: those of /proc, /sys and the like.
#pragma once

#include <string>

namespace cpprun::launcher {

// All of it; empty where it is not there, or may not be read.
std::string read_small_file(const std::string& path);

}  // namespace cpprun::launcher
