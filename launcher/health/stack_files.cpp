#include "launcher/health/stack_files.hpp"

#include <system_error>

#include "launcher/health/stack_clusters.hpp"
#include "worker_runtime/contract/whole_file.hpp"

namespace cpprun::launcher {

namespace {

// Writes files until one cannot be written, and says why that was.
class Files {
 public:
  void write(const std::filesystem::path& path, const std::string& text) {
    if (!fault_.empty()) return;
    const std::error_code error = worker::write_whole_file(path.string(), text);
    if (error) fault_ = "cannot write " + path.string() + ": " + error.message();
  }
  const std::string& fault() const { return fault_; }

 private:
  std::string fault_;
};

}  // namespace

std::string write_stacks_of_ranks(const std::filesystem::path& attempt_folder,
                                  const std::vector<RankStacks>& ranks) {
  Files files;
  for (const RankStacks& rank : ranks) {
    const std::filesystem::path folder = attempt_folder / std::to_string(rank.local_rank);
    std::error_code unknown;
    if (!std::filesystem::is_directory(folder, unknown)) continue;
    files.write(folder / "stacks.json", to_json(rank) + "\n");
    files.write(folder / "stacks.txt", to_text(rank));
  }
  return files.fault();
}

std::string write_stacks_of_all(const std::filesystem::path& attempt_folder,
                                const std::vector<RankStacks>& ranks) {
  Files files;
  files.write(attempt_folder / "stacks.txt", to_text(ranks));
  return files.fault();
}

}  // namespace cpprun::launcher
