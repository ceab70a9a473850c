// Reading what a worker left in its error file.
#pragma once

#include <optional>
#include <string>

namespace cpprun::launcher {

// The file's text; nothing where there is no regular file or a very large one. The worker may have put
// anything there: a FIFO is not waited for.
std::optional<std::string> read_error_file(const std::string& path);

}  // namespace cpprun::launcher
