// Small operations on text that several parts of the launcher need. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/text.hpp"

namespace cpprun::launcher {

// At every `separator`; "" gives one empty part.
std::vector<std::string> split(const std::string& text, char separator);

using rendezvous::trim;

// The whole text as a decimal number, or nothing.
std::optional<int> whole_number(const std::string& text);

// Replaces $name and ${name} for the given names. Everything else stays, "$$" too: a worker's own arguments
// are not torchrun templates.
std::string substitute(const std::string& text, const std::map<std::string, std::string>& values);

// As a shell's word that means `text`; control characters are spelled out.
std::string shell_quoted(const std::string& text);

// "; did you mean max-restarts?": the candidate nearest to `word` by edit distance, where it is near enough
// to be a slip and both are long enough to be words; else empty.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace cpprun::launcher
