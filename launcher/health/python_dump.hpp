// Python's own stacks of a running worker.
#pragma once

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <string>

#include "rendezvous/async/deadline.hpp"

namespace cpprun::launcher {

struct SignalDump {
  std::string text;   // what was written to the file after the signal
  std::string fault;  // why there is none; else empty
};

// For a worker that registered faulthandler on `signal` with `file`: sends it, and waits until the file has
// grown and been quiet. Sends nothing to a process that has no handler for it, which the signal would end,
// nor to one that is stopped, which would get it at some later time.
awaitable<SignalDump> dump_by_signal(asio::io_context& io, pid_t pid, int signal, std::string file,
                                     async::Deadline deadline);

// Whether a process is CPython, by the name of its program or in its command line (/proc/<pid>/cmdline).
bool runs_python(pid_t pid, const std::string& command);

// The path of py-spy: beside the interpreter that the worker's command line (/proc/<pid>/cmdline) names, else
// in the folders of `path` (PATH). Empty where it is in neither, or the worker is no Python.
std::string find_py_spy(const std::string& command, const std::string& path);

}  // namespace cpprun::launcher
