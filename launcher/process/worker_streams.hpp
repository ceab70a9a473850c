// The three standard streams of one worker, opened as its routes say.
#pragma once

#include <memory>
#include <string>

#include "launcher/process/console.hpp"
#include "launcher/process/file_descriptor.hpp"
#include "launcher/process/output_pump.hpp"
#include "launcher/process/redirect_policy.hpp"

namespace cpprun::launcher {

struct Consoles {
  Console out;
  Console err;
};

// Null where there is no such filter.
struct FilteredLogs {
  std::unique_ptr<FilteredLog> out;
  std::unique_ptr<FilteredLog> err;
};

struct WorkerStream {
  FileDescriptor child_end;          // what the worker gets; invalid: the agent's own stream
  std::unique_ptr<OutputPump> pump;  // null where the worker writes to the file or stream itself
  std::string file;                  // the log file, if there is one
  bool terminal = false;             // the worker's end is a pseudo-terminal
};

struct WorkerStreams {
  WorkerStream out;
  WorkerStream err;
};

// A redirected stream is the file itself and costs nothing; a shown stdout is the agent's own. Every other
// stream passes through a pump: tee'd ones, and stderr always, so that a failure report can quote it. A shown
// stderr is a pseudo-terminal where the agent's own is a terminal. Throws std::system_error naming the file.
WorkerStreams open_streams(const boost::asio::any_io_executor& executor, const WorkerRoutes& routes,
                           const std::string& rank_folder, const std::string& prefix, Consoles& consoles,
                           const FilteredLogs& filtered);

// Gives streams that are pseudo-terminals the size of our own stderr; false where there is none.
bool match_terminal(const WorkerStreams& streams);

// The last bytes of the stream, from the pump or the file.
std::string tail_of(const WorkerStream& stream);

}  // namespace cpprun::launcher
