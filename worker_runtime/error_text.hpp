// What an exception has to say, for a person: LibTorch's errors carry a C++ backtrace in what() that hides
// the sentence, and type names come mangled.
#pragma once

#include <exception>
#include <string>

namespace cpprun::worker {

// The message without a backtrace; surrounding white space cut.
std::string error_text(const std::exception& error);

// The exception's class, e.g. "c10::DistBackendError".
std::string error_type(const std::exception& error);

// The backtrace, where the exception carries one; else empty.
std::string error_callstack(const std::exception& error);

}  // namespace cpprun::worker
