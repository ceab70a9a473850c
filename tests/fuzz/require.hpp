// How a fuzz target says that something is wrong: libFuzzer keeps the input that led to it.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace cpprun::fuzz {

inline void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::abort();
}

}  // namespace cpprun::fuzz
