// The agent's own stdout or stderr, shared by the outputs of all workers.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <optional>
#include <string_view>

#include "rendezvous/async/event.hpp"

namespace cpprun::launcher {

class Console {
 public:
  // `fd` is borrowed. A pipe or terminal is opened a second time, so that it can be written without blocking
  // and without changing the file description that other programs hold too.
  Console(boost::asio::any_io_executor executor, int fd);
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // Writes all of `text` in one piece: no other writer's text falls into it. Waits for a slow reader; once
  // the reader is gone, text is dropped, and likewise, with a warning, once it cannot be written. Cancelling
  // leaves the rest unwritten.
  boost::asio::awaitable<void> write(std::string_view text);

  // Writes lines of `owner`, which begin with a prefix of `prefix_size` bytes: left out where they continue a
  // line that the owner left open. A line that another owner left open is ended first. There is text after
  // the prefix.
  boost::asio::awaitable<void> write_lines(const void* owner, std::size_t prefix_size,
                                           std::string_view lines);

  // Bytes accepted by the reader so far: tells a slow reader from a stuck one.
  std::uint64_t written() const { return written_; }
  bool is_terminal() const { return terminal_; }
  // Text was dropped though nobody has closed the other end, as where a disk is full.
  bool lost_text() const { return lost_text_; }

 private:
  class Turn;

  boost::asio::awaitable<void> write_all(std::string_view text);
  boost::asio::awaitable<void> wait_for_turn();
  void give_up(int error);

  boost::asio::any_io_executor executor_;
  const char* name_;
  int fd_;
  std::optional<boost::asio::posix::stream_descriptor> waitable_;  // owns a reopened fd_
  bool socket_ = false;
  bool terminal_ = false;
  bool gone_ = false;
  bool lost_text_ = false;
  bool taken_ = false;
  async::Event free_;
  const void* open_line_ = nullptr;
  std::uint64_t written_ = 0;
};

}  // namespace cpprun::launcher
