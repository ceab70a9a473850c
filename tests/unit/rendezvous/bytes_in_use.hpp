// How much memory the process has allocated, for tests of what is given back.
#pragma once

#include <malloc.h>

#include <cstddef>

namespace cpprun {

// Zero where a sanitizer replaces the allocator and does not say.
inline std::size_t bytes_in_use() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

}  // namespace cpprun
