// Text of another process, made fit for a terminal and for JSON. Pure.
#pragma once

#include <string>
#include <string_view>

namespace cpprun::worker {

// The text in UTF-8 on one line: a control character becomes a blank, bytes that are no UTF-8 become "?".
std::string printable(std::string_view text);

}  // namespace cpprun::worker
