#include "launcher/health/stack_files.hpp"

#include <system_error>

#include "launcher/health/stack_clusters.hpp"
#include "worker_runtime/contract/whole_file.hpp"

namespace cpprun::launcher {

std::string write_stack_files(const std::filesystem::path& attempt_folder,
                              const std::vector<RankStacks>& ranks) {
  std::string fault;
  const auto write = [&](const std::filesystem::path& path, const std::string& text) {
    const std::error_code error = worker::write_whole_file(path.string(), text);
    if (error && fault.empty()) fault = "cannot write " + path.string() + ": " + error.message();
  };
  std::string all;
  for (const RankStacks& rank : ranks) {
    const std::filesystem::path folder = attempt_folder / std::to_string(rank.local_rank);
    std::error_code unknown;
    if (std::filesystem::is_directory(folder, unknown)) {
      write(folder / "stacks.json", to_json(rank) + "\n");
      write(folder / "stacks.txt", to_text(rank));
    }
    all.append("\n").append(to_text(rank));
  }
  write(attempt_folder / "stacks.txt", to_text(cluster_stacks(ranks)) + all);
  return fault;
}

}  // namespace cpprun::launcher
