// Reads what a post-mortem says about this node: versions, limits and the variables that matter.
#pragma once

#include <string>
#include <vector>

#include "launcher/report/node_words.hpp"

namespace cpprun::launcher {

// `interpreter`: of the workers, or empty. Nothing is run: a few small files are read.
NodeFacts read_node_facts(const std::string& interpreter);

// Those of "NAME=value" that bear on a training job, sorted. Values of names that speak of a secret, and
// passwords in addresses, are replaced. Pure.
NamedValues variables_that_matter(const std::vector<std::string>& environment);

}  // namespace cpprun::launcher
