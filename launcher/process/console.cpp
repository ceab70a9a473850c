#include "launcher/process/console.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>

#include "launcher/process/patient_write.hpp"

namespace cpprun::launcher {

namespace asio = boost::asio;

Console::Console(asio::any_io_executor executor, int fd)
    : executor_(executor),
      name_(fd == STDOUT_FILENO ? "stdout" : "stderr"),
      fd_(fd),
      terminal_(::isatty(fd) != 0),
      free_(executor) {
  struct stat about {};
  if (::fstat(fd, &about) != 0) {
    gone_ = true;
    return;
  }
  socket_ = S_ISSOCK(about.st_mode);
  if (!S_ISFIFO(about.st_mode) && !S_ISCHR(about.st_mode) && !socket_) return;  // files never make us wait
  const std::string self = "/proc/self/fd/" + std::to_string(fd);
  int own = socket_ ? -1 : ::open(self.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  // A socket cannot be reopened, nor a terminal of another user: share the description, and ask before
  // writing.
  if (own < 0) own = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (own < 0) return;
  try {
    waitable_.emplace(executor, own);
    fd_ = own;
  } catch (const boost::system::system_error&) {
    ::close(own);  // not pollable (/dev/null): never makes us wait either
  }
}

Console::~Console() = default;

// Holds the console for one piece of text.
class Console::Turn {
 public:
  explicit Turn(Console& console) : console_(console) { console_.taken_ = true; }
  ~Turn() {
    console_.taken_ = false;
    console_.free_.notify_all();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Console& console_;
};

asio::awaitable<void> Console::wait_for_turn() {
  while (taken_) co_await free_.wait();  // throws when cancelled, as every wait after a cancellation
}

asio::awaitable<void> Console::write_all(std::string_view text) {
  while (!text.empty() && !gone_) {
    ssize_t n;
    if (socket_) {
      n = ::send(fd_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    } else {
      pollfd ready{fd_, POLLOUT, 0};
      const bool shared = waitable_ && (::fcntl(fd_, F_GETFL) & O_NONBLOCK) == 0;
      if (shared && ::poll(&ready, 1, 0) == 0) {
        n = -1;
        errno = EAGAIN;
      } else {
        n = ::write(fd_, text.data(), shared ? std::min(text.size(), kPipeAtomic) : text.size());
      }
    }
    if (n > 0) {
      text.remove_prefix(static_cast<std::size_t>(n));
      written_ += static_cast<std::uint64_t>(n);
    } else if (errno == EAGAIN && waitable_) {
      const auto [error] = co_await waitable_->async_wait(asio::posix::stream_descriptor::wait_write,
                                                          asio::as_tuple(asio::use_awaitable));
      if (error) co_return;  // cancelled
    } else if (errno != EINTR) {
      give_up(errno);
    }
  }
}

// The reader left (EPIPE, of a socket ECONNRESET), which is its own affair, the terminal hung up (EIO) or the
// disk is full (ENOSPC).
void Console::give_up(int error) {
  gone_ = true;
  if (error == EPIPE || error == ECONNRESET) return;
  lost_text_ = true;
  spdlog::warn("cannot write to {}: {}; nothing more is shown there", name_,
               std::generic_category().message(error));
}

asio::awaitable<void> Console::write(std::string_view text) {
  co_await wait_for_turn();
  const Turn turn(*this);
  open_line_ = nullptr;
  co_await write_all(text);
}

asio::awaitable<void> Console::write_lines(const void* owner, std::size_t prefix_size,
                                           std::string_view lines) {
  co_await wait_for_turn();
  const Turn turn(*this);
  if (open_line_ == owner) {
    lines.remove_prefix(prefix_size);
  } else if (open_line_) {
    co_await write_all("\n");
  }
  open_line_ = lines.back() == '\n' || lines.back() == '\r' ? nullptr : owner;
  co_await write_all(lines);
}

}  // namespace cpprun::launcher
