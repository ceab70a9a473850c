#include "launcher/ctl/explain.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "launcher/report/post_mortem.hpp"
#include "worker_runtime/contract/printable_text.hpp"

namespace cpprun::launcher {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kLargest = 64 * 1024 * 1024;
constexpr std::size_t kMostFolders = 10'000;
constexpr std::size_t kMostListed = 20;

struct Found {
  fs::path file;
  std::string page;
  std::string time;   // of the failure, as ISO-8601 in UTC: earlier ones sort before
  std::string fault;  // why there is no page; else empty
};

// Folders may be anybody's, and so may their names.
std::string shown(const fs::path& path) {
  return worker::printable(path.string());
}

Found faulty(const fs::path& file, const std::string& fault) {
  return {file, "", "", fault};
}

// Of a file that is there.
Found report_of(const fs::path& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return faulty(file, "it is no regular file");
  const std::uintmax_t size = fs::file_size(file, error);
  if (!error && size > kLargest)
    return faulty(file, "it is larger than " + std::to_string(kLargest >> 20) + " MiB");
  std::ifstream stream(file, std::ios::binary);
  if (error || !stream) return faulty(file, "it cannot be read");
  const std::string text(std::istreambuf_iterator<char>(stream), {});
  try {
    return {file, post_mortem_page(text), time_of_failure(text), ""};
  } catch (const std::invalid_argument& no_report) {
    return faulty(file, no_report.what());
  }
}

// The report in an attempt's folder, or in that of its post-mortem; the failure alone where an older cpprun,
// or one that had no more space, wrote nothing else. Of several the first that is whole.
std::optional<Found> report_in(const fs::path& folder) {
  std::optional<Found> first;
  for (const char* name : {"post_mortem.json", "post_mortem/post_mortem.json", "failure.json"}) {
    const fs::path file = folder / name;
    std::error_code error;
    if (!fs::exists(fs::symlink_status(file, error))) continue;
    Found report = report_of(file);
    if (report.fault.empty()) return report;
    if (!first) first = std::move(report);
  }
  return first;
}

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unknown;
    if (entry->is_directory(unknown) && folders.size() < kMostFolders) folders.push_back(entry->path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

bool is_attempt(const fs::path& folder) {
  return folder.filename().string().rfind("attempt_", 0) == 0;
}

void add_attempts(const fs::path& run, std::vector<Found>& found) {
  for (const fs::path& folder : folders_in(run)) {
    if (!is_attempt(folder)) continue;
    if (std::optional<Found> report = report_in(folder)) found.push_back(std::move(*report));
  }
}

// The latest last.
std::vector<Found> reports_at(const fs::path& place) {
  std::vector<Found> found;
  if (std::optional<Found> report = report_in(place)) return {std::move(*report)};
  add_attempts(place, found);
  if (found.empty()) {
    for (const fs::path& run : folders_in(place)) add_attempts(run, found);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Found& a, const Found& b) { return a.time < b.time; });
  return found;
}

int print(const Found& report, std::ostream& out, std::ostream& trouble) {
  out << report.page;
  if (report.fault.empty()) return 0;
  trouble << "cpprunctl: " << shown(report.file) << " cannot be explained: " << report.fault << "\n";
  return 1;
}

}  // namespace

int explain(const fs::path& place, std::ostream& out, std::ostream& trouble) {
  std::error_code error;
  if (!fs::exists(place, error)) {
    trouble << "cpprunctl: there is no " << shown(place)
            << "; name the folder of a run (--log-dir), of an attempt or of a post-mortem\n";
    return 1;
  }
  if (!fs::is_directory(place, error)) {
    // A page beside its JSON stands for it.
    const bool page = place.filename() == "page.txt";
    const fs::path file = page ? place.parent_path() / "post_mortem.json" : place;
    return print(report_of(file), out, trouble);
  }
  const std::vector<Found> found = reports_at(place);
  if (found.empty()) {
    trouble
        << "cpprunctl: " << shown(place)
        << " holds no report of a failure: neither a post_mortem.json nor a failure.json, in attempt_<n> or "
           "in the folders of runs\n";
    return 1;
  }
  const int code = print(found.back(), out, trouble);
  if (found.size() == 1) return code;
  out << "\nOther failures below " << shown(place) << ", the latest first:\n";
  for (std::size_t i = found.size() - 1; i > 0; --i) {
    if (found.size() - i > kMostListed) {
      out << "  ... and " << i << " more\n";
      break;
    }
    const std::string time = worker::printable(found[i - 1].time);
    out << "  " << (time.empty() ? "(no time)" : time) << "  " << shown(found[i - 1].file.parent_path())
        << "\n";
  }
  return code;
}

}  // namespace cpprun::launcher
