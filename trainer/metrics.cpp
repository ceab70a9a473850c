#include "trainer/metrics.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

namespace cpprun::trainer {

using nlohmann::ordered_json;

namespace {

[[noreturn]] void fail(const std::string& what, const std::string& path) {
  throw std::system_error(errno, std::generic_category(), what + " the metrics file " + path);
}

std::string read_if_there(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (in) text << in.rdbuf();
  return text.str();
}

}  // namespace

std::string kept_lines(const std::string& text, std::int64_t step, int epoch) {
  std::string kept;
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    const ordered_json record = ordered_json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!record.is_object() || !record.contains("kind")) continue;
    // An evaluation ends its epoch: the resumed run does that of its own epoch again.
    const bool behind = record["kind"] == "eval" ? record.value("epoch", epoch) < epoch
                                                 : record.value("step", step + 1) <= step;
    if (behind) kept += line + "\n";
  }
  return kept;
}

MetricsFile::MetricsFile(std::string path, std::int64_t step, int epoch) : path_(std::move(path)) {
  if (path_.empty()) return;
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder);
  const std::string kept = step == 0 ? "" : kept_lines(read_if_there(path_), step, epoch);
  // Whole or not at all: a kill between here and the first record must not cost the lines that are kept.
  const std::string fresh = path_ + ".tmp";
  fd_ = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0) fail("cannot create", fresh);
  append_line(kept);
  if (::rename(fresh.c_str(), path_.c_str()) != 0) fail("cannot rename " + fresh + " to", path_);
}

MetricsFile::~MetricsFile() {
  if (fd_ >= 0) ::close(fd_);
}

void MetricsFile::append(const StepRecord& record) {
  if (fd_ < 0) return;
  append_line(ordered_json{{"kind", "step"},
                           {"step", record.step},
                           {"epoch", record.epoch},
                           {"loss", record.loss},
                           {"lr", record.learning_rate},
                           {"examples", record.examples},
                           {"seconds", record.seconds}}
                  .dump() +
              "\n");
}

void MetricsFile::append(const EvalRecord& record) {
  if (fd_ < 0) return;
  append_line(ordered_json{{"kind", "eval"},
                           {"step", record.step},
                           {"epoch", record.epoch},
                           {"val_n", record.count},
                           {"loss", record.loss},
                           {"acc", record.accuracy}}
                  .dump() +
              "\n");
}

void MetricsFile::append_line(const std::string& line) {
  std::size_t written = 0;
  while (written < line.size()) {
    const ssize_t count = ::write(fd_, line.data() + written, line.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("cannot write", path_);
    written += static_cast<std::size_t>(count);
  }
}

}  // namespace cpprun::trainer
