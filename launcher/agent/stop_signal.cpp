#include "launcher/agent/stop_signal.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/this_coro.hpp>
#include <utility>

namespace cpprun::launcher {
namespace {

// A scheduler that signals every process of a job reaches the agent twice, directly and through the guardian.
// The same signal so soon again is that same one; no person presses Ctrl-C twice this fast.
constexpr std::chrono::milliseconds kSameSignal{200};

bool ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

StopSignal::StopSignal(asio::io_context& io, const std::vector<int>& signals, int guardian_pipe)
    : signals_(io), guardian_(io, guardian_pipe), arrived_(io.get_executor()) {
  for (const int signal : signals) {
    if (!ignored(signal)) signals_.add(signal);
  }
}

awaitable<void> StopSignal::watch_signals() {
  for (;;) {
    const auto [error, signal] = co_await signals_.async_wait(async::use_error);
    if (error) co_return;
    arrived(signal);
  }
}

awaitable<void> StopSignal::watch_guardian() {
  char byte;
  const auto [error, n] = co_await guardian_.async_read_some(asio::buffer(&byte, 1), async::use_error);
  if (error != asio::error::operation_aborted) arrived(SIGKILL);
}

awaitable<void> StopSignal::wait() {
  while (pending_.empty()) {
    co_await arrived_.wait();
    const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) co_return;
  }
}

int StopSignal::take() {
  const int signal = pending_.front();
  pending_.pop_front();
  return signal;
}

void StopSignal::arrived(int signal) {
  const std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now();
  const bool same = signal == last_ && now - last_when_ < kSameSignal;
  last_ = signal;
  last_when_ = now;
  if (same) return;
  pending_.push_back(signal);
  arrived_.notify_all();
}

}  // namespace cpprun::launcher
