#include "launcher/health/python_dump.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <system_error>

#include "launcher/health/thread_facts.hpp"
#include "launcher/process/process_tree.hpp"
#include "launcher/process/worker_streams.hpp"
#include "launcher/text.hpp"

namespace cpprun::launcher {
namespace {

// The handler writes without a pause and does not say when it is done.
constexpr std::chrono::milliseconds kLook{20};
constexpr int kQuietLooks = 5;
constexpr std::size_t kMostText = 1024 * 1024;

// Why the worker must not be sent the signal; empty when it may.
std::string why_not(pid_t pid, int signal) {
  const std::optional<ProcessStat> stat = read_stat(pid);
  if (!stat || stat->state == 'Z') return "the process has ended";
  if (stat->state == 'T' || stat->state == 't') return "the process is stopped";
  const bool caught =
      signal > 0 && signal <= 64 && (read_status(pid).caught_signals >> (signal - 1) & 1) != 0;
  return caught ? "" : "the process has no handler for the signal";
}

off_t size_of(int fd) {
  struct stat about {};
  return ::fstat(fd, &about) == 0 && S_ISREG(about.st_mode) ? about.st_size : -1;
}

std::string read_from(int fd, off_t begin) {
  const off_t size = std::max<off_t>(size_of(fd) - begin, 0);
  std::string text(std::min(static_cast<std::size_t>(size), kMostText), '\0');
  const ssize_t n = ::pread(fd, text.data(), text.size(), begin);
  text.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
  return text;
}

bool is_python(const std::string& program) {
  return program.substr(program.rfind('/') + 1).starts_with("python");
}

}  // namespace

awaitable<SignalDump> dump_by_signal(asio::io_context& io, pid_t pid, int signal, std::string file,
                                     async::Deadline deadline) {
  SignalDump dump;
  dump.fault = why_not(pid, signal);
  if (!dump.fault.empty()) co_return dump;
  const FileDescriptor open(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  const off_t begin = open.valid() ? size_of(open.get()) : -1;
  if (begin < 0) {
    dump.fault = "no file " + file;
    co_return dump;
  }
  ::kill(pid, signal);
  asio::steady_timer timer(io);
  off_t size = begin;
  for (int quiet = 0; quiet < kQuietLooks && !deadline.passed();) {
    timer.expires_after(std::min<async::Clock::duration>(kLook, deadline.remaining()));
    co_await timer.async_wait(asio::use_awaitable);
    const off_t now = size_of(open.get());
    quiet = now == size && size != begin ? quiet + 1 : 0;
    size = now;
  }
  dump.text = read_from(open.get(), begin);
  if (dump.text.empty()) dump.fault = "nothing was written on the signal in time";
  co_return dump;
}

bool runs_python(pid_t pid, const std::string& command) {
  std::error_code unknown;
  const std::string link = "/proc/" + std::to_string(pid) + "/exe";
  return is_python(command.substr(0, command.find('\0'))) ||
         is_python(std::filesystem::read_symlink(link, unknown).string());
}

std::string find_py_spy(const std::string& command, const std::string& path) {
  const std::string program = command.substr(0, command.find('\0'));
  if (!is_python(program)) return "";
  std::vector<std::string> folders = split(path, ':');
  const std::size_t slash = program.rfind('/');
  if (slash != std::string::npos) folders.insert(folders.begin(), program.substr(0, slash));
  for (const std::string& folder : folders) {
    std::string candidate = folder + "/py-spy";
    if (!folder.empty() && ::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

}  // namespace cpprun::launcher
