#include "launcher/process/reaper.hpp"

#include <sys/resource.h>
#include <sys/wait.h>

namespace cpprun::launcher {

namespace asio = boost::asio;

Reaper::Reaper(asio::io_context& io) : child_ended_(io, SIGCHLD), collected_(io.get_executor()) {}

asio::awaitable<void> Reaper::run() {
  for (;;) {
    const auto [error, signal] = co_await child_ended_.async_wait(asio::as_tuple(asio::use_awaitable));
    if (error) co_return;
    collect();
  }
}

void Reaper::watch(pid_t pid) {
  watched_.emplace(pid, std::nullopt);
}

void Reaper::forget(pid_t pid) {
  watched_.erase(pid);
}

std::optional<ProcessEnd> Reaper::end_of(pid_t pid) const {
  const auto found = watched_.find(pid);
  return found == watched_.end() ? std::nullopt : found->second;
}

void Reaper::collect() {
  ++batch_;
  const std::chrono::system_clock::time_point now = std::chrono::system_clock::now();
  const std::chrono::steady_clock::time_point moment = std::chrono::steady_clock::now();
  int status = 0;
  rusage usage{};
  for (pid_t pid = ::wait4(-1, &status, WNOHANG, &usage); pid > 0;
       pid = ::wait4(-1, &status, WNOHANG, &usage)) {
    if (WIFSTOPPED(status)) continue;  // for a moment, while its stack is taken
    const auto found = watched_.find(pid);
    if (found == watched_.end()) continue;
    found->second = ProcessEnd{decode_wait_status(status), now, moment, batch_, usage.ru_maxrss};
  }
  collected_.notify_all();
}

}  // namespace cpprun::launcher
