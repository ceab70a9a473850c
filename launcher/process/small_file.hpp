// Files that the kernel makes up when they are read: those of /proc, /sys and the like.
#pragma once

#include <cstddef>
#include <string>

namespace cpprun::launcher {

// Its first `most` bytes; empty where it is not there, or may not be read.
std::string read_small_file(const std::string& path, std::size_t most = std::string::npos);

}  // namespace cpprun::launcher
