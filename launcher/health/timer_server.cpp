#include "launcher/health/timer_server.hpp"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <cerrno>
#include <chrono>
#include <climits>
#include <filesystem>
#include <random>
#include <system_error>
#include <tuple>
#include <utility>

#include "launcher/process/log_layout.hpp"
#include "launcher/process/process_tree.hpp"
#include "launcher/process/temporary_folder.hpp"
#include "rendezvous/async/deadline.hpp"

namespace cpprun::launcher {
namespace {

using std::chrono::steady_clock;

int open_fifo(const std::string& path) {
  remove_timer_file(path);
  // Open for writing too, so that it has no end when a worker closes it.
  int fd = -1;
  if (::mkfifo(path.c_str(), 0600) == 0) fd = ::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), "cannot make the timer file " + path);
  return fd;
}

double time_of_day() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::uint64_t start_of(pid_t pid) {
  const std::optional<ProcessStat> stat = read_stat(pid);
  return stat ? stat->started : 0;
}

}  // namespace

TimerServer::TimerServer(asio::io_context& io, std::string path)
    : path_(std::move(path)), fifo_(io, open_fifo(path_)), buffer_(64 * 1024) {}

TimerServer::~TimerServer() {
  remove_timer_file(path_);
}

awaitable<ExpiredTimer> TimerServer::next_expired() {
  using ReadResult = std::tuple<async::error_code, std::size_t>;
  for (;;) {
    const std::optional<ExpiredTimer> expired = table_.take_expired(steady_clock::now());
    if (expired) co_return *expired;
    awaitable<ReadResult> reading = fifo_.async_read_some(asio::buffer(buffer_), async::use_error);
    const std::optional<ReadResult> result =
        co_await async::before(async::Deadline::at(table_.next()), std::move(reading));
    if (!result) continue;
    const auto& [error, n] = *result;
    if (error && error != asio::error::operation_aborted) throw std::system_error(error, "the timer file");
    take({buffer_.data(), n});
  }
}

void TimerServer::take(std::string_view bytes) {
  for (const char c : bytes) {
    if (c != '\n') {
      // The kernel keeps messages up to PIPE_BUF whole; a longer line is none.
      if (line_.size() <= PIPE_BUF) line_ += c;
      continue;
    }
    const std::optional<TimerRequest> request = parse_timer_request(std::exchange(line_, {}));
    if (request) {
      table_.take(*request, start_of(request->pid), time_of_day(), steady_clock::now());
    } else if (!std::exchange(strange_line_logged_, true)) {
      spdlog::warn("a line in the timer file {} is no timer; it and further ones are left out", path_);
    }
  }
}

std::string temporary_timer_file() {
  std::random_device device;
  std::string name = "watchdog_timer_";
  for (int i = 0; i < 32; ++i) name += "0123456789abcdef"[device() % 16];
  const TemporaryFolder folder = temporary_folder();
  return from_root((folder.error ? std::filesystem::path("/tmp") : folder.path) / name).string();
}

void remove_timer_file(const std::string& path) {
  struct stat about {};
  if (::lstat(path.c_str(), &about) == 0 && S_ISFIFO(about.st_mode)) ::unlink(path.c_str());
}

}  // namespace cpprun::launcher
