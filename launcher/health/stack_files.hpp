// Stacks as files of an attempt: <attempt>/<local rank>/stacks.json and stacks.txt, and <attempt>/stacks.txt
// with the ranks that stand at the same place together.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launcher/health/rank_stacks.hpp"

namespace cpprun::launcher {

// Each file whole or not at all, mode 0600, in place of an earlier one. Return a sentence for the first file
// that could not be written; else empty.

// A rank's own files, of ranks of this node. Folders are not made: a rank without one gets no files.
std::string write_stacks_of_ranks(const std::filesystem::path& attempt_folder,
                                  const std::vector<RankStacks>& ranks);
// The file of all ranks, of whatever node.
std::string write_stacks_of_all(const std::filesystem::path& attempt_folder,
                                const std::vector<RankStacks>& ranks);

}  // namespace cpprun::launcher
