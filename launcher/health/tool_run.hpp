// Runs a program beside the workers and takes what it prints, never waiting for it longer than asked.
#pragma once

#include <boost/asio/io_context.hpp>
#include <string>
#include <vector>

#include "launcher/process/worker_streams.hpp"
#include "rendezvous/async/deadline.hpp"

namespace cpprun::launcher {

struct Tool {
  std::vector<std::string> argv;         // argv[0] is the path
  std::vector<std::string> environment;  // "NAME=value"
  FileDescriptor input;                  // its stdin; invalid: an empty one
};

struct ToolOutput {
  std::string text;   // as far as it came
  std::string fault;  // why it is not all; else empty
};

// The tool is killed at `deadline`, once it has printed more than `most` bytes, and when the caller is
// cancelled. Its exit status plays no role: the reaper collects it.
awaitable<ToolOutput> run_tool(asio::io_context& io, Tool tool, std::size_t most, async::Deadline deadline);

}  // namespace cpprun::launcher
