#include "tests/stacks/victim.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <csignal>
#include <stdexcept>
#include <thread>

#include "launcher/process/process_tree.hpp"
#include "launcher/process/worker_streams.hpp"

extern char** environ;

namespace cpprun::launcher {
namespace {

struct Pipe {
  FileDescriptor reading;
  FileDescriptor writing;
};

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

}  // namespace

Victim::Victim(std::vector<std::string> argv) {
  const Pipe in = make_pipe();
  const Pipe out = make_pipe();
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, in.reading.get(), 0);
  ::posix_spawn_file_actions_adddup2(&actions, out.writing.get(), 1);
  std::vector<char*> pointers;
  for (std::string& argument : argv) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  const int error = ::posix_spawn(&pid_, pointers[0], &actions, nullptr, pointers.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("posix_spawn " + argv[0]);
  in_ = ::fcntl(in.writing.get(), F_DUPFD_CLOEXEC, 0);
  out_ = ::fcntl(out.reading.get(), F_DUPFD_CLOEXEC, 0);
  if (read_line() != "ready") throw std::runtime_error(argv[0] + " is not ready");
}

Victim::Victim(std::vector<std::string> argv, const std::string& function) : Victim(std::move(argv)) {
  const bool there = until([&] {
    const RankStacks stacks = dump_one(pid_);
    return !stacks.threads.empty() &&
           functions_of(stacks.threads.front()).find(function) != std::string::npos;
  });
  if (!there) throw std::runtime_error("the victim is never seen in " + function);
}

Victim::~Victim() {
  ::kill(pid_, SIGKILL);
  close_input();
  ::close(out_);
  ::waitpid(pid_, nullptr, 0);
}

char Victim::state() const {
  const std::optional<ProcessStat> stat = read_stat(pid_);
  return stat ? stat->state : '\0';
}

std::string Victim::read_line() {
  std::string line;
  char byte;
  while (::read(out_, &byte, 1) == 1 && byte != '\n') line += byte;
  return line;
}

void Victim::write(const std::string& text) {
  if (::write(in_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    throw std::runtime_error("the victim reads nothing");
  }
}

void Victim::close_input() {
  if (in_ >= 0) ::close(in_);
  in_ = -1;
}

std::vector<std::string> victim(const std::string& what, int count) {
  return {STACK_VICTIM, what, std::to_string(count)};
}

bool until(const std::function<bool()>& condition) {
  const std::chrono::steady_clock::time_point end =
      std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

StackTools tools_with(const std::string& unwinder) {
  return {unwinder, {"PATH=/usr/bin:/bin"}, "here"};
}

std::vector<RankStacks> dump(const std::vector<StackTarget>& targets, const StackTools& tools,
                             std::chrono::milliseconds limit) {
  asio::io_context io;
  std::vector<RankStacks> result;
  std::exception_ptr failure;
  asio::co_spawn(io, dump_stacks(io, targets, tools, async::Deadline::after(limit)),
                 [&](const std::exception_ptr& error, std::vector<RankStacks> stacks) {
                   failure = error;
                   result = std::move(stacks);
                 });
  io.run();
  if (failure) std::rethrow_exception(failure);
  return result;
}

RankStacks dump_one(pid_t pid) {
  return dump({{0, 0, pid, 0, ""}}, tools_with(CPPRUN_STACKS)).at(0);
}

std::string functions_of(const ThreadStack& thread) {
  std::string names;
  for (const StackFrame& frame : thread.frames) names += frame.function + "\n";
  return names;
}

}  // namespace cpprun::launcher
