#include "launcher/report/failure_files.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "launcher/report/node_facts.hpp"
#include "launcher/report/post_mortem.hpp"
#include "launcher/text.hpp"
#include "worker_runtime/contract/whole_file.hpp"

namespace cpprun::launcher {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostStackText = 256 * 1024;

void write(const fs::path& path, const std::string& content) {
  const std::error_code error = worker::write_whole_file(path.string(), content);
  if (error) spdlog::error("cannot write {}: {}", path.string(), error.message());
}

// What the capture of stacks has left there, if there was one.
std::string stacks_in(const fs::path& attempt) {
  std::ifstream file(attempt / "stacks.txt", std::ios::binary);
  std::string text(kMostStackText, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

void write_post_mortem(const fs::path& attempt, const FailureReport& report) {
  const fs::path folder = attempt / "post_mortem";
  std::error_code error;
  if (fs::create_directory(folder, error)) fs::permissions(folder, fs::perms::owner_all, error);
  if (error) return spdlog::error("cannot make {}: {}", folder.string(), error.message());
  const std::string json = post_mortem_json(report, read_node_facts(report.interpreter), stacks_in(attempt));
  write(folder / "post_mortem.json", json);
  write(folder / "page.txt", post_mortem_page(json));
}

std::optional<int> last_attempt(const fs::path& run) {
  std::optional<int> last;
  std::error_code error;
  for (fs::directory_iterator entry(run, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.rfind("attempt_", 0) != 0) continue;
    const std::optional<int> number = whole_number(name.substr(8));
    if (number && (!last || *number > *last)) last = number;
  }
  return last;
}

}  // namespace

void write_failure_files(const RunFolder& folder, const FailureReport& report) {
  if (!folder.exists()) return;
  const fs::path attempt = folder.attempt_folder(report.attempt);
  write(attempt / "failure.json", to_json(report));
  write_post_mortem(attempt, report);
}

void write_agent_end(const RunFolder& folder, FailureReport report, pid_t pid, const ExitStatus& status) {
  if (!folder.exists() || folder.temporary()) return;
  const std::optional<int> attempt = last_attempt(folder.path());
  // One that failed before has its own report.
  std::error_code error;
  if (!attempt || fs::exists(folder.attempt_folder(*attempt) / "failure.json", error)) return;
  report.attempt = *attempt;
  report.elsewhere = JobCause::lost_agent("cpprun's agent (pid " + std::to_string(pid) + ") was ended by " +
                                          describe(status) + "; its workers were killed");
  write_failure_files(folder, report);
}

}  // namespace cpprun::launcher
