// Which of a worker's processes does its work: that of its progress page, else the one that it only waits
// for. A worker may be a shell, a tracer or another wrapper, whose own stacks tell nothing.
#pragma once

#include <sys/types.h>

#include <string>

namespace cpprun::launcher {

struct StackProcess {
  pid_t pid = 0;     // the worker's own where nothing else is known
  std::string note;  // which wrapper it is below; else empty
};

// `writer`: the pid in the worker's progress page; 0: none. It counts if it lives below the worker. Reads
// /proc only.
StackProcess process_that_works(pid_t worker, pid_t writer);

}  // namespace cpprun::launcher
