// Captures a worker without holding up the agent's loop.
#pragma once

#include <sys/types.h>

#include <boost/asio/io_context.hpp>

#include "launcher/health/stack_capture.hpp"
#include "launcher/process/file_descriptor.hpp"
#include "rendezvous/async/deadline.hpp"

namespace cpprun::launcher {

struct Captured {
  CapturedProcess process;  // without the stacks themselves, which are in `image`
  FileDescriptor image;     // in memory, as cpprun-stacks reads it; invalid where there is nothing to unwind
};

// On a thread of its own, for two reasons: the kernel may hold a reader of a stuck process's memory for as
// long as it likes, and lets go of a tracee that does not stop only when its tracer ends. Where the deadline
// passes first the thread is left behind; it ends as soon as the kernel lets it. The result then holds only a
// note.
awaitable<Captured> capture(asio::io_context& io, pid_t pid, CaptureLimits limits, async::Deadline deadline);

}  // namespace cpprun::launcher
