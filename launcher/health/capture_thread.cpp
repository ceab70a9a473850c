#include "launcher/health/capture_thread.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <csignal>
#include <exception>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>

namespace cpprun::launcher {
namespace {

FileDescriptor memory_file(const std::string& content) {
  FileDescriptor file(::memfd_create("cpprun-stacks", MFD_CLOEXEC));
  std::size_t written = 0;
  while (file.valid() && written < content.size()) {
    const ssize_t n = ::write(file.get(), content.data() + written, content.size() - written);
    if (n <= 0) return {};
    written += static_cast<std::size_t>(n);
  }
  if (file.valid()) ::lseek(file.get(), 0, SEEK_SET);
  return file;
}

// What loop and thread share; whoever is done with it last ends it.
struct Shared {
  std::atomic<bool> abandoned = false;
  std::atomic<bool> done = false;
  Captured result;     // the thread's until `done`, the loop's from then on
  FileDescriptor end;  // closed by the thread when it is done
};

void work(Shared& shared, pid_t pid, const CaptureLimits& limits) {
  Captured& result = shared.result;
  result.process = capture_process(pid, limits, shared.abandoned);
  if (!result.process.capture.threads.empty()) {
    result.image = memory_file(stacks::encode(result.process.capture));
    if (!result.image.valid()) result.process.note = "no memory for the stacks";
  }
  result.process.capture = {};
}

// The agent's handlers belong to the agent's thread.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

class Worker {
 public:
  Worker(std::shared_ptr<Shared> shared, pid_t pid, CaptureLimits limits) : shared_(std::move(shared)) {
    const SignalsBlocked blocked;
    thread_ = std::thread([shared = shared_, pid, limits] {
      try {
        work(*shared, pid, limits);
      } catch (const std::exception& error) {
        shared->result.process.note = std::string("the capture failed: ") + error.what();
      }
      shared->done = true;
      shared->end = FileDescriptor();
    });
  }
  ~Worker() {
    shared_->abandoned = true;
    if (shared_->done) {
      thread_.join();
    } else {
      thread_.detach();
    }
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

 private:
  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace

awaitable<Captured> capture(asio::io_context& io, pid_t pid, CaptureLimits limits, async::Deadline deadline) {
  Captured missed;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    missed.process.note = "no pipe for the capture: " + std::generic_category().message(errno);
    co_return std::move(missed);
  }
  asio::posix::stream_descriptor ended(io, ends[0]);
  const std::shared_ptr<Shared> shared = std::make_shared<Shared>();
  shared->end = FileDescriptor(ends[1]);
  std::optional<Worker> worker;
  try {
    worker.emplace(shared, pid, limits);
  } catch (const std::system_error& error) {
    missed.process.note = std::string("no thread for the capture: ") + error.what();
    co_return std::move(missed);
  }
  using ReadResult = std::tuple<async::error_code, std::size_t>;
  char nothing = 0;
  awaitable<ReadResult> reading = ended.async_read_some(asio::buffer(&nothing, 1), async::use_error);
  co_await async::before(deadline, std::move(reading));
  if (!shared->done) {
    missed.process.note = "the kernel did not give out its memory in time";
    co_return std::move(missed);
  }
  co_return std::move(shared->result);
}

}  // namespace cpprun::launcher
