#include "launcher/health/tool_run.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <csignal>
#include <optional>
#include <system_error>
#include <tuple>
#include <utility>

#include "launcher/process/child_process.hpp"

namespace cpprun::launcher {
namespace {

// Kills its process when it goes. By a pidfd: the reaper may have collected the process, and its number may
// be another's by then.
class Killer {
 public:
  explicit Killer(pid_t pid) : pidfd_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {}
  ~Killer() {
    if (pidfd_.valid()) ::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
  }
  Killer(const Killer&) = delete;
  Killer& operator=(const Killer&) = delete;

 private:
  FileDescriptor pidfd_;
};

StartedProcess start(const Tool& tool, int output) {
  const FileDescriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  ProcessSpec spec;
  spec.executable = tool.argv.front();
  spec.argv = tool.argv;
  spec.environment = tool.environment;
  spec.stdin_fd = tool.input.valid() ? tool.input.get() : null.get();
  spec.stdout_fd = output;
  spec.stderr_fd = null.get();
  ::sigemptyset(&spec.signal_mask);
  return start_process(spec);
}

}  // namespace

awaitable<ToolOutput> run_tool(asio::io_context& io, Tool tool, std::size_t most, async::Deadline deadline) {
  ToolOutput output;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    output.fault = "pipe2: " + std::generic_category().message(errno);
    co_return output;
  }
  asio::posix::stream_descriptor pipe(io, ends[0]);
  FileDescriptor writing(ends[1]);
  StartedProcess started{};
  try {
    started = start(tool, writing.get());
  } catch (const std::system_error& error) {
    output.fault = error.what();
    co_return output;
  }
  const FileDescriptor exec_error(started.exec_error_fd);
  const Killer killer(started.pid);
  writing = FileDescriptor();
  std::vector<char> buffer(64 * 1024);
  using ReadResult = std::tuple<async::error_code, std::size_t>;
  while (output.fault.empty()) {
    awaitable<ReadResult> reading = pipe.async_read_some(asio::buffer(buffer), async::use_error);
    const std::optional<ReadResult> result = co_await async::before(deadline, std::move(reading));
    if (!result) {
      output.fault = "it was not done in time";
      break;
    }
    const auto& [error, n] = *result;
    if (error == asio::error::eof) break;
    if (error) output.fault = error.message();
    output.text.append(buffer.data(), n);
    if (output.text.size() > most) output.fault = "it printed too much";
  }
  int cause = 0;
  if (::read(exec_error.get(), &cause, sizeof cause) == static_cast<ssize_t>(sizeof cause)) {
    output.fault = "it cannot be run: " + std::generic_category().message(cause);
  }
  co_return output;
}

}  // namespace cpprun::launcher
