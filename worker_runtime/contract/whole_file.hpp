// Files that are there whole or not at all.
#pragma once

#include <string>
#include <system_error>

namespace cpprun::worker {

// Writes a temporary file (mode 0600) beside `path`, syncs it, and renames it to `path`. On an error no file
// is left behind and an older one at `path` is untouched.
std::error_code write_whole_file(const std::string& path, const std::string& content);

}  // namespace cpprun::worker
