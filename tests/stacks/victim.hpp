// A child process of which stacks are taken, and what the tests ask about it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "launcher/health/rank_stacks.hpp"
#include "launcher/health/stack_dump.hpp"

namespace cpprun::launcher {

class Victim {
 public:
  // Returns once it has printed "ready".
  explicit Victim(std::vector<std::string> argv);
  // Returns once its main thread is also seen in `function`.
  Victim(std::vector<std::string> argv, const std::string& function);
  ~Victim();
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;

  pid_t pid() const { return pid_; }
  char state() const;
  std::string read_line();
  void write(const std::string& text);
  void close_input();

 private:
  pid_t pid_ = 0;
  int in_ = -1;
  int out_ = -1;
};

std::vector<std::string> victim(const std::string& what, int count = 1);

// True once the condition holds; false after a minute.
bool until(const std::function<bool()>& condition);

StackTools tools_with(const std::string& unwinder);
// Runs dump_stacks on a loop of its own.
std::vector<RankStacks> dump(const std::vector<StackTarget>& targets, const StackTools& tools,
                             std::chrono::milliseconds limit = std::chrono::seconds(60));
RankStacks dump_one(pid_t pid);

// Names of the thread's functions, innermost first, one a line.
std::string functions_of(const ThreadStack& thread);

}  // namespace cpprun::launcher
