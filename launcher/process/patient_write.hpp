// Writing to a stream of the user's that may be stuck, from code that must not be.
#pragma once

#include <chrono>
#include <cstddef>
#include <string_view>

namespace cpprun::launcher {

// What a pipe takes without blocking whenever poll(2) calls it writable.
inline constexpr std::size_t kPipeAtomic = 4096;

// Writes `text` to `fd`, which may be blocking, and gives up once the reader has taken nothing for
// `patience`. Returns how many bytes were written; all of them are counted as written when there is no reader
// any more.
std::size_t write_patiently(int fd, std::string_view text, std::chrono::milliseconds patience);

}  // namespace cpprun::launcher
