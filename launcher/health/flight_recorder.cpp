#include "launcher/health/flight_recorder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/process/worker_streams.hpp"
#include "launcher/text.hpp"

namespace cpprun::launcher {
namespace {

std::string variable(const std::string& environment, const std::string& name) {
  for (const std::string& entry : split(environment, '\0')) {
    if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
  }
  return "";
}

}  // namespace

std::string ask_flight_recorder(const std::string& environment, pid_t pid, int global_rank) {
  const std::string front = variable(environment, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE");
  if (front.empty()) return "";
  const std::string rank = std::to_string(global_rank);
  std::string pipe = front + rank + ".pipe";
  // As the worker sees it.
  if (pipe.front() != '/') pipe = "/proc/" + std::to_string(pid) + "/cwd/" + pipe;
  const FileDescriptor writing(::open(pipe.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW));
  struct stat about {};
  const bool is_pipe = writing.valid() && ::fstat(writing.get(), &about) == 0 && S_ISFIFO(about.st_mode);
  if (!is_pipe || ::write(writing.get(), "1", 1) != 1) {
    return "NCCL's flight recorder does not listen at " + pipe;
  }
  std::string file = variable(environment, "TORCH_FR_DUMP_TEMP_FILE");
  if (file.empty()) file = variable(environment, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE");
  return "NCCL's flight recorder was asked to write " + (file.empty() ? "its default file" : file + rank);
}

}  // namespace cpprun::launcher
