// Stacks as files of an attempt: <attempt>/<local rank>/stacks.json and stacks.txt, and <attempt>/stacks.txt
// with the ranks that stand at the same place together.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launcher/health/rank_stacks.hpp"

namespace cpprun::launcher {

// Each file whole or not at all, mode 0600, in place of an earlier one. Folders are not made: a rank without
// one gets no file of its own. Returns a sentence for the first file that could not be written; else empty.
std::string write_stack_files(const std::filesystem::path& attempt_folder,
                              const std::vector<RankStacks>& ranks);

}  // namespace cpprun::launcher
