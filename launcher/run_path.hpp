// --run-path: a Python program that runs a script as __main__ and records the exception that ends it.
#pragma once

#include <string_view>

namespace cpprun::launcher {

// For `python -u -c <this> script arguments...`. Needs nothing but the standard library.
extern const std::string_view kRunPathBootstrap;

}  // namespace cpprun::launcher
