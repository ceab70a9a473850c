// A process with known functions. It prints "ready" once it stands where its first argument says, and at the
// end what it has noticed.
//
//   threads N   main sleeps, N threads wait on a condition
//   locked      main waits for a mutex that another thread holds
//   spin        main computes for ever
//   deep N      main sleeps N calls deep
//   vfork       main waits in the kernel for a child that shares its memory: state D
//   calls       main sleeps and reads again and again until stdin ends, and counts what a system call refuses
//   signals N   main waits for N queued signals
#include <poll.h>
#include <semaphore.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace victim {

// Keeps a caller's frame: without it a last call would be a jump.
#define KEEP_FRAME asm volatile("" ::: "memory")

void say(const char* text) {
  std::printf("%s\n", text);
  std::fflush(stdout);
}

volatile bool forever = true;

[[gnu::noinline]] void sleeps_forever() {
  while (forever) ::pause();
}

[[gnu::noinline]] void main_waits_here() {
  sleeps_forever();
  KEEP_FRAME;
}

std::mutex mutex;
std::condition_variable condition;
int started = 0;

[[gnu::noinline]] void thread_waits_here() {
  std::unique_lock<std::mutex> lock(mutex);
  ++started;
  condition.notify_all();
  condition.wait(lock, [] { return false; });
  KEEP_FRAME;
}

[[gnu::noinline]] void run_threads(int count) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(thread_waits_here);
  {
    std::unique_lock<std::mutex> lock(mutex);
    condition.wait(lock, [count] { return started == count; });
  }
  say("ready");
  main_waits_here();
  KEEP_FRAME;
}

std::mutex held;

[[gnu::noinline]] void holds_the_lock(sem_t* holding) {
  const std::lock_guard<std::mutex> lock(held);
  ::sem_post(holding);
  sleeps_forever();
  KEEP_FRAME;
}

[[gnu::noinline]] void wants_the_lock() {
  const std::lock_guard<std::mutex> lock(held);
  KEEP_FRAME;
}

[[gnu::noinline]] void run_locked() {
  sem_t holding;
  ::sem_init(&holding, 0, 0);
  std::thread holder(holds_the_lock, &holding);
  ::sem_wait(&holding);
  say("ready");
  wants_the_lock();
  holder.join();
}

volatile unsigned long counter = 0;

[[gnu::noinline]] void spins_here() {
  say("ready");
  for (;;) counter = counter + 1;
}

[[gnu::noinline]] int goes_deeper(int left) {
  if (left == 0) {
    say("ready");
    sleeps_forever();
  }
  const int deeper = left == 0 ? 0 : goes_deeper(left - 1);
  KEEP_FRAME;
  return deeper + left;
}

[[gnu::noinline]] void waits_for_the_child() {
  const pid_t child = ::vfork();
  if (child == 0) {
    // Only what a child of vfork may do. It ends with the parent, which is killed: its stdin does.
    if (::write(STDOUT_FILENO, "ready\n", 6) != 6) ::_exit(1);
    char byte;
    while (::read(STDIN_FILENO, &byte, 1) > 0) continue;
    ::_exit(0);
  }
  KEEP_FRAME;
}

// Calls that a stop must not end.
[[gnu::noinline]] int run_calls() {
  say("ready");
  int refused = 0;
  for (;;) {
    timespec nap{0, 20'000'000};
    if (::nanosleep(&nap, nullptr) != 0) ++refused;
    pollfd in{STDIN_FILENO, POLLIN, 0};
    if (::poll(&in, 1, 20) < 0) ++refused;
    if ((in.revents & (POLLIN | POLLHUP)) == 0) continue;
    char byte;
    const ssize_t n = ::read(STDIN_FILENO, &byte, 1);
    if (n < 0) ++refused;
    if (n == 0) break;
    if (byte != 'r') continue;
    // The rest of the time in a read that has nothing to give.
    if (::read(STDIN_FILENO, &byte, 1) < 0) ++refused;
  }
  say(refused == 0 ? "undisturbed" : ("refused " + std::to_string(refused)).c_str());
  return 0;
}

volatile std::sig_atomic_t arrived = 0;

void count_signal(int) {
  arrived = arrived + 1;
}

int run_signals(int count) {
  struct sigaction action {};
  action.sa_handler = count_signal;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGRTMIN, &action, nullptr);
  say("ready");
  while (arrived < count) {
    timespec nap{0, 1'000'000};
    ::nanosleep(&nap, nullptr);
  }
  say("all arrived");
  return 0;
}

}  // namespace victim

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const int count = argc > 2 ? std::atoi(argv[2]) : 1;
  if (what == "threads") victim::run_threads(count);
  if (what == "locked") victim::run_locked();
  if (what == "spin") victim::spins_here();
  if (what == "deep") return victim::goes_deeper(count);
  if (what == "vfork") victim::waits_for_the_child();
  if (what == "calls") return victim::run_calls();
  if (what == "signals") return victim::run_signals(count);
  return 2;
}
