// What a program prints instead of doing its work: help, a version, a plan.
#pragma once

#include <string>

namespace cpprun::rendezvous {

// Writes `text` to stdout, all of it. False: the reader has left, and there is nobody to tell. Throws
// std::system_error, with a sentence, where it cannot be written, as on a full disk.
bool print_text(const std::string& text);

}  // namespace cpprun::rendezvous
