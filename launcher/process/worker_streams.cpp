#include "launcher/process/worker_streams.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <utility>

namespace cpprun::launcher {
namespace {

// Room for a worker's burst while the agent is busy; the kernel gives less where the user's limit is reached.
constexpr int kPipeBytes = 1024 * 1024;

[[noreturn]] void refuse(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), "cannot open " + what + " for a worker's output");
}

struct Channel {
  int source;
  FileDescriptor child_end;
};

Channel open_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) refuse("a pipe");
  ::fcntl(ends[1], F_SETPIPE_SZ, kPipeBytes);
  return {ends[0], FileDescriptor(ends[1])};
}

// The worker sees a terminal as wide as ours; bytes pass through unchanged.
Channel open_pseudo_terminal() {
  const int main_end = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  char name[128];
  if (main_end < 0 || ::grantpt(main_end) != 0 || ::unlockpt(main_end) != 0 ||
      ::ptsname_r(main_end, name, sizeof name) != 0) {
    if (main_end >= 0) ::close(main_end);
    return open_pipe();
  }
  FileDescriptor child_end(::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!child_end.valid()) {
    ::close(main_end);
    return open_pipe();
  }
  termios settings{};
  ::tcgetattr(child_end.get(), &settings);
  ::cfmakeraw(&settings);
  ::tcsetattr(child_end.get(), TCSANOW, &settings);
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0) ::ioctl(child_end.get(), TIOCSWINSZ, &size);
  return {main_end, std::move(child_end)};
}

FileDescriptor open_for_writing(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) refuse(path);
  return FileDescriptor(fd);
}

WorkerStream open_stream(const boost::asio::any_io_executor& executor, const StreamRoute& route,
                         bool keep_tail, const std::string& file, const std::string& prefix, Console& console,
                         FilteredLog* filtered) {
  WorkerStream stream;
  if (route.file) stream.file = file;
  if (route.file && !route.console) {
    stream.child_end = open_for_writing(file);
    return stream;
  }
  if (!route.file && !keep_tail) {
    if (!route.console) stream.child_end = open_for_writing("/dev/null");
    return stream;
  }
  const bool terminal = !route.file && route.console && console.is_terminal();
  Channel channel = terminal ? open_pseudo_terminal() : open_pipe();
  stream.child_end = std::move(channel.child_end);
  stream.terminal = terminal;
  stream.pump = std::make_unique<OutputPump>(
      executor, PumpSpec{channel.source, stream.file, route.console ? &console : nullptr, prefix,
                         route.filtered ? filtered : nullptr});
  return stream;
}

}  // namespace

WorkerStreams open_streams(const boost::asio::any_io_executor& executor, const WorkerRoutes& routes,
                           const std::string& rank_folder, const std::string& prefix, Consoles& consoles,
                           const FilteredLogs& filtered) {
  WorkerStreams streams;
  streams.out = open_stream(executor, routes.out, false, rank_folder + "/stdout.log", prefix, consoles.out,
                            filtered.out.get());
  streams.err = open_stream(executor, routes.err, true, rank_folder + "/stderr.log", prefix, consoles.err,
                            filtered.err.get());
  return streams;
}

bool match_terminal(const WorkerStreams& streams) {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0) return false;
  bool matched = false;
  for (const WorkerStream* stream : {&streams.out, &streams.err}) {
    if (!stream->terminal || !stream->pump || stream->pump->source_fd() < 0) continue;
    matched = ::ioctl(stream->pump->source_fd(), TIOCSWINSZ, &size) == 0 || matched;
  }
  return matched;
}

std::string tail_of(const WorkerStream& stream) {
  if (stream.pump) return stream.pump->tail();
  return stream.file.empty() ? std::string() : file_tail(stream.file);
}

}  // namespace cpprun::launcher
