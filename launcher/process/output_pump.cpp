#include "launcher/process/output_pump.hpp"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <vector>

namespace cpprun::launcher {

namespace asio = boost::asio;

namespace {

constexpr std::size_t kChunk = 64 * 1024;
// How long a line may stay unfinished before its beginning is shown: a prompt, or a slow progress bar.
constexpr std::chrono::milliseconds kOpenLinePatience{200};

std::string end_of(int file) {
  std::string text;
  const off_t size = ::lseek(file, 0, SEEK_END);
  const off_t wanted = std::min<off_t>(size, OutputPump::kTailBytes);
  if (wanted > 0) {
    text.resize(static_cast<std::size_t>(wanted));
    const ssize_t n = ::pread(file, text.data(), text.size(), size - wanted);
    text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  }
  return text;
}

}  // namespace

OutputPump::OutputPump(asio::any_io_executor executor, PumpSpec spec)
    : spec_(std::move(spec)), source_(executor, spec_.source_fd), progressed_(executor) {
  if (!spec_.file.empty()) {
    file_fd_ = ::open(spec_.file.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
    if (file_fd_ < 0) {
      throw std::system_error(errno, std::generic_category(), "cannot open the log file " + spec_.file);
    }
  }
  if (spec_.filtered) filter_.emplace(spec_.filtered->needles());
  show_done_ = !tee();
}

OutputPump::~OutputPump() {
  if (file_fd_ >= 0) ::close(file_fd_);
}

asio::awaitable<void> OutputPump::read() {
  // Two, so that show() still finds the last bytes in memory when the next are being read.
  std::vector<char> buffers[2] = {std::vector<char>(kChunk), std::vector<char>(kChunk)};
  for (int turn = 0;; turn = 1 - turn) {
    std::vector<char>& buffer = buffers[turn];
    const auto [error, n] =
        co_await source_.async_read_some(asio::buffer(buffer), asio::as_tuple(asio::use_awaitable));
    if (error) break;  // end of the pipe, or of the pseudo-terminal (EIO), or cancelled
    const std::string_view bytes(buffer.data(), n);
    filter(bytes);
    co_await take(bytes);
  }
  last_ = {};
  if (file_failed_ && cutter_.has_open()) co_await show_open_line();
  if (filter_) {
    std::string last;
    filter_->finish(spec_.prefix, last);
    spec_.filtered->append(last);
  }
  source_.close();
  read_done_ = true;
  progressed_.notify_all();
}

asio::awaitable<void> OutputPump::take(std::string_view bytes) {
  if (file_fd_ >= 0 && !file_failed_) {
    const std::size_t kept = append_to_file(bytes);
    in_file_ += kept;
    last_ = bytes.substr(0, kept);
    progressed_.notify_all();
    if (kept == bytes.size()) co_return;
    bytes.remove_prefix(kept);
    while (!show_done_) co_await progressed_.wait();  // first what the file holds
  }
  remember(bytes);
  if (!spec_.console) co_return;
  if (!file_failed_) {
    co_await spec_.console->write(bytes);
    co_return;
  }
  std::string lines;
  cutter_.feed(bytes, spec_.prefix, lines);
  if (!lines.empty()) co_await spec_.console->write_lines(this, spec_.prefix.size(), lines);
}

asio::awaitable<void> OutputPump::show() {
  if (!tee()) co_return;
  std::vector<char> buffer(kChunk);
  std::uint64_t shown = 0;
  std::string lines;
  while (shown != in_file_ || !(read_done_ || file_failed_)) {
    if (shown == in_file_) {
      if (!cutter_.has_open()) {
        co_await progressed_.wait();
        continue;
      }
      co_await progressed_.wait_until(std::chrono::steady_clock::now() + kOpenLinePatience);
      if (shown != in_file_ || read_done_ || file_failed_) continue;
      co_await show_open_line();
      continue;
    }
    const std::string_view bytes = bytes_at(shown, buffer);
    if (bytes.empty()) break;  // somebody cut the file short: what is gone cannot be shown
    shown += bytes.size();
    lines.clear();
    cutter_.feed(bytes, spec_.prefix, lines);
    if (!lines.empty()) co_await spec_.console->write_lines(this, spec_.prefix.size(), lines);
  }
  if (!file_failed_ && cutter_.has_open()) co_await show_open_line();
  show_done_ = true;
  progressed_.notify_all();
}

std::string_view OutputPump::bytes_at(std::uint64_t offset, std::vector<char>& buffer) const {
  const std::uint64_t left = in_file_ - offset;
  if (left <= last_.size()) return last_.substr(last_.size() - left);
  const std::size_t wanted = std::min<std::uint64_t>(buffer.size(), left);
  const ssize_t n = ::pread(file_fd_, buffer.data(), wanted, static_cast<off_t>(offset));
  return {buffer.data(), n > 0 ? static_cast<std::size_t>(n) : 0};
}

asio::awaitable<void> OutputPump::show_open_line() {
  const std::string open = spec_.prefix + cutter_.take_open();
  co_await spec_.console->write_lines(this, spec_.prefix.size(), open);
}

void OutputPump::filter(std::string_view bytes) {
  if (!filter_) return;
  std::string lines;
  filter_->feed(bytes, spec_.prefix, lines);
  spec_.filtered->append(lines);
}

void OutputPump::remember(std::string_view bytes) {
  if (bytes.size() > kTailBytes) bytes.remove_prefix(bytes.size() - kTailBytes);
  if (tail_.size() + bytes.size() > 2 * kTailBytes) tail_.erase(0, tail_.size() - kTailBytes);
  tail_ += bytes;
}

std::string OutputPump::tail() const {
  if (file_fd_ >= 0 && !file_failed_) return end_of(file_fd_);
  return tail_.size() > kTailBytes ? tail_.substr(tail_.size() - kTailBytes) : tail_;
}

std::size_t OutputPump::append_to_file(std::string_view bytes) {
  std::size_t kept = 0;
  while (kept < bytes.size()) {
    const ssize_t n = ::write(file_fd_, bytes.data() + kept, bytes.size() - kept);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      spdlog::error("cannot write the log file {}: {}; this worker's further output goes to the console only",
                    spec_.file, std::generic_category().message(errno));
      file_failed_ = true;
      tail_ = end_of(file_fd_);
      break;
    }
    kept += static_cast<std::size_t>(n);
  }
  return kept;
}

std::string file_tail(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return {};
  std::string text = end_of(fd);
  ::close(fd);
  return text;
}

}  // namespace cpprun::launcher
