// Carries one output stream of one worker: from its pipe (or pseudo-terminal) to its log file, to the
// console, and to the tail that a failure report quotes.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/process/console.hpp"
#include "launcher/process/filtered_log.hpp"
#include "launcher/process/line_cutter.hpp"
#include "launcher/process/line_filter.hpp"
#include "rendezvous/async/event.hpp"

namespace cpprun::launcher {

struct PumpSpec {
  int source_fd = -1;               // owned by the pump; its end is the stream's end
  std::string file;                 // empty: no file. Made by the pump, truncated
  Console* console = nullptr;       // null: not shown. Outlives the pump
  std::string prefix;               // used where there is a file and a console (tee)
  FilteredLog* filtered = nullptr;  // gets the lines that it wants; null: none. Outlives the pump
};

// With a file, the file never waits for the console: a console that falls behind is fed from the file.
// Without one, a console that is full makes the worker wait once its pipe is full.
class OutputPump {
 public:
  // Throws std::system_error when the file cannot be made.
  OutputPump(boost::asio::any_io_executor executor, PumpSpec spec);
  ~OutputPump();
  OutputPump(const OutputPump&) = delete;
  OutputPump& operator=(const OutputPump&) = delete;

  // The two halves, each to be run by the owner's task group: read() ends with the stream, show() when all
  // of it was shown.
  boost::asio::awaitable<void> read();
  boost::asio::awaitable<void> show();

  bool finished() const { return read_done_ && show_done_; }
  // -1 once the stream has ended.
  int source_fd() { return source_.is_open() ? source_.native_handle() : -1; }
  async::Event& progressed() { return progressed_; }

  // The last bytes of the stream, at most kTailBytes.
  static constexpr std::size_t kTailBytes = 256 * 1024;
  std::string tail() const;

 private:
  bool tee() const { return file_fd_ >= 0 && spec_.console; }
  boost::asio::awaitable<void> take(std::string_view bytes);
  boost::asio::awaitable<void> show_open_line();
  // Bytes of the stream from `offset`, below in_file_, on: from memory where they were the last, else from
  // the file by way of `buffer`. Empty when the file has lost them. Valid until the caller waits.
  std::string_view bytes_at(std::uint64_t offset, std::vector<char>& buffer) const;
  void filter(std::string_view bytes);
  void remember(std::string_view bytes);
  // How many of them the file took: all, unless it cannot be written any more.
  std::size_t append_to_file(std::string_view bytes);

  PumpSpec spec_;
  boost::asio::posix::stream_descriptor source_;
  async::Event progressed_;
  int file_fd_ = -1;
  std::uint64_t in_file_ = 0;  // bytes of the stream that the file holds
  std::string_view last_;      // the last of these, while read() keeps them in memory
  std::string tail_;           // of a stream without a file, or with one that could not be written
  LineCutter cutter_;
  bool file_failed_ = false;  // the file takes no more; the rest goes from read() to the console
  std::optional<LineFilter> filter_;
  bool read_done_ = false;
  bool show_done_ = false;
};

// The end of a log file, for a stream that went to the file without a pump.
std::string file_tail(const std::string& path);

}  // namespace cpprun::launcher
