// cpprun-stacks meets captures that are cut short or wrong: whatever they hold, it ends by itself.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>

#include "launcher/health/stack_capture.hpp"
#include "tests/stacks/victim.hpp"

namespace cpprun::launcher {
namespace {

// Its exit status, as waitpid gives it. ctest's own time-out ends one that hangs.
int unwind(const std::string& capture) {
  const int in = ::memfd_create("capture", 0);
  EXPECT_EQ(::write(in, capture.data(), capture.size()), static_cast<ssize_t>(capture.size()));
  ::lseek(in, 0, SEEK_SET);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, in, 0);
  ::posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  std::string program = CPPRUN_STACKS;
  char* argv[] = {program.data(), nullptr};
  // Sanitizers end with 1 by default, as the program itself does on an error.
  std::string options = "ASAN_OPTIONS=exitcode=99";
  char* environment[] = {options.data(), nullptr};
  pid_t pid = 0;
  EXPECT_EQ(::posix_spawn(&pid, argv[0], &actions, nullptr, argv, environment), 0);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(in);
  int status = -1;
  ::waitpid(pid, &status, 0);
  return status;
}

stacks::ProcessCapture captured(pid_t pid) {
  CapturedProcess process;
  const std::atomic<bool> abandoned = false;
  std::thread([&] { process = capture_process(pid, {}, abandoned); }).join();
  return std::move(process.capture);
}

bool same(const stacks::ProcessCapture& a, const stacks::ProcessCapture& b) {
  return stacks::encode(a) == stacks::encode(b);
}

class UnwinderRobustness : public ::testing::Test {
 protected:
  UnwinderRobustness() : child_(victim("threads", 2)), capture_(captured(child_.pid())) {}
  const Victim child_;
  const stacks::ProcessCapture capture_;
  std::mt19937 random_{7};
};

TEST_F(UnwinderRobustness, TheTextFormKeepsEverything) {
  ASSERT_EQ(capture_.threads.size(), 3u);
  const std::optional<stacks::ProcessCapture> read = stacks::decode(stacks::encode(capture_));
  ASSERT_TRUE(read);
  EXPECT_TRUE(same(*read, capture_));
  EXPECT_EQ(read->threads.at(0).registers.size(), capture_.threads.at(0).registers.size());
  EXPECT_EQ(unwind(stacks::encode(capture_)), 0);
}

TEST_F(UnwinderRobustness, ACutCaptureIsRefused) {
  const std::string whole = stacks::encode(capture_);
  for (std::size_t length = 0; length < whole.size(); length += 1 + whole.size() / 997) {
    EXPECT_FALSE(stacks::decode(std::string_view(whole).substr(0, length))) << length;
  }
  EXPECT_FALSE(stacks::decode(whole + "x"));
  for (const std::size_t length : {std::size_t{0}, std::size_t{8}, whole.size() / 2, whole.size() - 1}) {
    EXPECT_EQ(WEXITSTATUS(unwind(whole.substr(0, length))), 2) << length;
  }
}

// A crash would be a signal, with sanitizers an exit code of theirs.
void expect_clean(int status, int round) {
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) <= 2) << "round " << round << ": " << status;
}

TEST_F(UnwinderRobustness, WrongBytesAnywhere) {
  const std::string whole = stacks::encode(capture_);
  for (int round = 0; round < 24; ++round) {
    std::string wrong = whole;
    const int changes = 1 << (round % 8);
    for (int i = 0; i < changes; ++i) wrong[random_() % wrong.size()] = static_cast<char>(random_());
    expect_clean(unwind(wrong), round);
  }
}

TEST_F(UnwinderRobustness, WrongRegistersStacksAndMaps) {
  for (int round = 0; round < 36; ++round) {
    stacks::ProcessCapture wrong = capture_;
    for (stacks::CapturedThread& thread : wrong.threads) {
      stacks::Register& one = thread.registers.at(random_() % thread.registers.size());
      if (round % 3 == 0) one.value = random_();
      if (round % 3 == 1) one.value += random_() % 64;
      if (round % 3 == 2) one.number = random_() % 4096;
      if (round % 4 == 1) thread.pc += random_() % 4096;
      for (int i = 0; i < round; ++i) {
        thread.stack.bytes.at(random_() % thread.stack.bytes.size()) = static_cast<char>(random_());
      }
    }
    if (round % 5 == 4) {
      for (int i = 0; i < 20; ++i)
        wrong.maps.at(random_() % wrong.maps.size()) = "0189af-rwxp /\n"[random_() % 14];
    }
    expect_clean(unwind(stacks::encode(wrong)), round);
  }
}

}  // namespace
}  // namespace cpprun::launcher
