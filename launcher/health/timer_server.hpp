// The server of TORCHELASTIC_TIMER_FILE: a FIFO by which workers set themselves timers (torch's
// FileTimerClient). Woken by a message or by the earliest timer.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <string>
#include <vector>

#include "launcher/health/timer_table.hpp"
#include "rendezvous/async/tokens.hpp"

namespace cpprun::launcher {

class TimerServer {
 public:
  // Makes the FIFO, in place of one that was left behind. Throws std::system_error naming it.
  TimerServer(asio::io_context& io, std::string path);
  // Removes the FIFO.
  ~TimerServer();
  TimerServer(const TimerServer&) = delete;
  TimerServer& operator=(const TimerServer&) = delete;

  // The next process whose time is over. Cancel-safe.
  awaitable<ExpiredTimer> next_expired();

 private:
  void take(std::string_view bytes);

  std::string path_;
  asio::posix::stream_descriptor fifo_;
  std::vector<char> buffer_;
  std::string line_;
  bool strange_line_logged_ = false;
  TimerTable table_;
};

// Where the FIFO of a run lies when the user names no place.
std::string temporary_timer_file();

// Removes the FIFO `path`; anything else that stands there is left alone.
void remove_timer_file(const std::string& path);

}  // namespace cpprun::launcher
