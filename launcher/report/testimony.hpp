// What a worker said about its own end, picked out of its error record and the end of its stderr. Pure.
#pragma once

#include <string>
#include <vector>

namespace cpprun::launcher {

struct WorkerFailure;

struct Testimony {
  // The last lines of stderr (at most 200 lines and 64 KiB), without the prefix "[rank0]: " of torch.
  std::vector<std::string> stderr_lines;
  // The error's own statement: the record; else the last traceback with those that led to it, or what
  // std::terminate printed, and what follows; else the last lines of all. Never a logged warning.
  std::vector<std::string> statement;
  // The line in which the error names itself, such as "ValueError: bad shape"; empty where nothing was said.
  std::string error;
  bool traceback = false;  // Python's, of an exception that nobody caught
};

Testimony testimony_of(const WorkerFailure& failure);

}  // namespace cpprun::launcher
