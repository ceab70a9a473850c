// The post-mortem of a failed attempt: one page for people, and the JSON that it is made from. Pure.
#pragma once

#include <string>

#include "launcher/report/failure_report.hpp"

namespace cpprun::launcher {

// The content of post_mortem.json: that of failure.json, with `node`, `stacks` (a text, which may be empty)
// and why the root cause is taken for it.
std::string post_mortem_json(const FailureReport& report, const NodeFacts& node, const std::string& stacks);

// The page, from the content of a post_mortem.json or failure.json of whatever version: what is missing is
// left out. Whatever that holds, lines are printable UTF-8. Throws std::invalid_argument with a sentence for
// a text that is neither.
std::string post_mortem_page(const std::string& json);

// The time of the root cause in such a content, as it is written there; empty where it has none.
std::string time_of_failure(const std::string& json);

}  // namespace cpprun::launcher
