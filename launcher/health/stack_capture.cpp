#include "launcher/health/stack_capture.hpp"

#include <elf.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <system_error>
#include <thread>

#include "launcher/process/small_file.hpp"
#include "launcher/stacks/process_maps.hpp"

namespace cpprun::launcher {
namespace {

using Clock = std::chrono::steady_clock;

// Between two looks at threads that have not stopped yet. A stop takes some microseconds, so there are few
// looks.
constexpr std::chrono::microseconds kLookAgain{50};
constexpr std::size_t kProcessText = 256 * 1024;

#if defined(__x86_64__)
constexpr std::uint32_t kStackPointer = 7;
// What a function without calls may keep below the stack pointer.
constexpr std::uint64_t kBelowStackPointer = 128;
using MachineRegisters = user_regs_struct;

std::vector<stacks::Register> by_dwarf_number(const MachineRegisters& r) {
  const std::uint64_t values[] = {r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8,
                                  r.r9,  r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rip};
  std::vector<stacks::Register> registers;
  for (const std::uint64_t value : values) {
    registers.push_back({static_cast<std::uint32_t>(registers.size()), value});
  }
  return registers;
}
std::uint64_t pc_of(const MachineRegisters& r) {
  return r.rip;
}
std::uint64_t stack_pointer_of(const MachineRegisters& r) {
  return r.rsp;
}
#elif defined(__aarch64__)
constexpr std::uint32_t kStackPointer = 31;
constexpr std::uint64_t kBelowStackPointer = 0;
using MachineRegisters = user_regs_struct;

std::vector<stacks::Register> by_dwarf_number(const MachineRegisters& r) {
  std::vector<stacks::Register> registers;
  for (std::uint32_t number = 0; number < 31; ++number) registers.push_back({number, r.regs[number]});
  registers.push_back({kStackPointer, r.sp});
  return registers;
}
std::uint64_t pc_of(const MachineRegisters& r) {
  return r.pc;
}
std::uint64_t stack_pointer_of(const MachineRegisters& r) {
  return r.sp;
}
#else
#error "stack_capture.cpp knows the registers of x86-64 and AArch64 only"
#endif

std::string text_of(int cause) {
  return std::generic_category().message(cause);
}

std::string proc(pid_t pid, const char* name) {
  return "/proc/" + std::to_string(pid) + "/" + name;
}

std::string read_memory(pid_t pid, std::uint64_t start, std::size_t size) {
  std::string bytes(size, '\0');
  const iovec ours{bytes.data(), size};
  const iovec theirs{reinterpret_cast<void*>(start), size};  // NOLINT(performance-no-int-to-ptr)
  const ssize_t n = ::process_vm_readv(pid, &ours, 1, &theirs, 1, 0);
  bytes.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
  return bytes;
}

// The signal that was about to be delivered when the thread stopped, and that goes on with it; 0: none.
int signal_on_its_way(pid_t tid) {
  siginfo_t info{};
  if (::ptrace(PTRACE_GETSIGINFO, tid, nullptr, &info) != 0) return 0;
  return info.si_code >> 8 == PTRACE_EVENT_STOP ? 0 : info.si_signo;
}

// One thread on its way: seized, interrupted, stopped, let go.
struct Tracee {
  std::size_t index;  // in CapturedProcess::threads
  bool done = false;
};

class Capture {
 public:
  Capture(pid_t pid, const CaptureLimits& limits, const std::atomic<bool>& abandoned)
      : pid_(pid), limits_(limits), abandoned_(abandoned) {}

  CapturedProcess run() {
    result_.when = std::chrono::system_clock::now();
    result_.status = read_status(pid_);
    for (const pid_t tid : thread_ids(pid_, limits_.threads)) {
      if (abandoned_) return std::move(result_);
      result_.threads.push_back(read_thread(pid_, tid));
    }
    // Whatever holds the address space holds us here, before anything has been stopped.
    result_.capture.pid = pid_;
    if (!limits_.pointers_only) read_memory_map();
    result_.note = why_not();
    if (result_.note.empty() && !abandoned_) {
      seize();
      interrupt_all();
      take_all();
      explain_missing();
      take_vdso();
    }
    return std::move(result_);
  }

 private:
  std::string why_not() const {
    if (result_.threads.empty() || result_.threads.front().state == 'Z') return "the process has ended";
    if (result_.status.tracer != 0) {
      const std::string name = read_small_file(proc(result_.status.tracer, "comm"), kProcessText);
      return "a debugger traces it already: process " + std::to_string(result_.status.tracer) + " (" +
             name.substr(0, name.find('\n')) + ")";
    }
    if (maps_.empty() && !limits_.pointers_only) return "the process shows no memory of its own";
    return "";
  }

  void read_memory_map() {
    result_.capture.maps = read_small_file(proc(pid_, "maps"), limits_.maps);
    result_.command = read_small_file(proc(pid_, "cmdline"), kProcessText);
    result_.environment = read_small_file(proc(pid_, "environ"), kProcessText);
    maps_ = stacks::parse_maps(result_.capture.maps);
  }

  ThreadFacts& facts(const Tracee& tracee) { return result_.threads[tracee.index]; }

  void seize() {
    for (std::size_t i = 0; i < result_.threads.size() && !abandoned_; ++i) {
      ThreadFacts& thread = result_.threads[i];
      if (::ptrace(PTRACE_SEIZE, thread.tid, nullptr, nullptr) == 0) {
        tracees_.push_back({i});
      } else {
        thread.note = errno == ESRCH ? "it has ended" : "it may not be traced: " + text_of(errno);
      }
    }
  }

  void interrupt_all() {
    interrupted_ = Clock::now();
    for (Tracee& tracee : tracees_) {
      if (::ptrace(PTRACE_INTERRUPT, facts(tracee).tid, nullptr, nullptr) == 0) continue;
      tracee.done = true;
      facts(tracee).note = "it has ended";
    }
  }

  void take_all() {
    const Clock::time_point end = interrupted_ + limits_.patience;
    Clock::time_point looked = interrupted_;
    while (!abandoned_) {
      // A thread that is late stood still since the last look at most.
      const bool late = looked >= interrupted_ + limits_.stop;
      const Clock::time_point looking = Clock::now();
      const bool waiting = look(late ? looked : interrupted_);
      looked = looking;
      if (!waiting || looked >= end) return;
      std::this_thread::sleep_for(kLookAgain);
    }
  }

  // True while threads have not stopped. `since`: the earliest moment at which one found now may have.
  bool look(Clock::time_point since) {
    bool waiting = false;
    for (Tracee& tracee : tracees_) {
      if (tracee.done) continue;
      ThreadFacts& thread = facts(tracee);
      MachineRegisters registers{};
      iovec place{&registers, sizeof registers};
      // Only a thread that has stopped shows its registers. waitpid() could tell too, but may have told the
      // reaper already.
      const bool shown = ::ptrace(PTRACE_GETREGSET, thread.tid, NT_PRSTATUS, &place) == 0;
      if (!shown && errno == ESRCH) {
        waiting = true;
        continue;
      }
      tracee.done = true;
      if (!shown || place.iov_len != sizeof registers) {
        thread.note = "its registers are of no kind that is known here";
      } else if (Clock::now() < since + limits_.stop) {
        add(thread, pc_of(registers), stack_pointer_of(registers), by_dwarf_number(registers));
      } else {
        thread.note = "the time for which the process may be stopped was over";
        result_.main_late = result_.main_late || thread.tid == pid_;
      }
      ::ptrace(PTRACE_DETACH, thread.tid, nullptr, signal_on_its_way(thread.tid));
      const std::chrono::microseconds stood =
          std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - since);
      result_.stopped = std::max(result_.stopped, stood);
    }
    return waiting;
  }

  void add(ThreadFacts& thread, std::uint64_t pc, std::uint64_t stack_pointer,
           std::vector<stacks::Register> registers) {
    if (thread.tid == pid_) result_.stack_pointer = stack_pointer;
    if (limits_.pointers_only) return;
    stacks::CapturedThread captured;
    captured.tid = thread.tid;
    captured.pc = pc;
    captured.registers = std::move(registers);
    if (const stacks::Mapping* mapping = stacks::find_mapping(maps_, stack_pointer)) {
      const std::uint64_t start = std::max(stack_pointer - kBelowStackPointer, mapping->start);
      const std::uint64_t most = std::min(limits_.stack, limits_.stacks - std::min(taken_, limits_.stacks));
      captured.stack.start = start;
      captured.stack.bytes = read_memory(pid_, start, std::min(mapping->end - start, most));
      taken_ += captured.stack.bytes.size();
    }
    if (captured.stack.bytes.empty()) thread.note = "its stack cannot be read";
    result_.capture.threads.push_back(std::move(captured));
  }

  bool gone(ThreadFacts& thread) const {
    const char state = read_thread(pid_, thread.tid).state;
    const bool ended = state == '\0' || state == 'Z' || state == 'X';
    if (ended) thread.note = "it has ended";
    return ended;
  }

  // The kernel knows at least where a thread that it does not let go entered it.
  void explain_missing() {
    for (Tracee& tracee : tracees_) {
      if (tracee.done || abandoned_) continue;
      ThreadFacts& thread = facts(tracee);
      if (gone(thread)) continue;
      thread.note = "it did not stop within " + std::to_string(limits_.patience.count()) + " ms";
      if (thread.state == 'D') thread.note += ": it is in uninterruptible sleep";
      const std::optional<KernelEntry> entry = read_kernel_entry(pid_, thread.tid);
      if (entry) {
        add(thread, entry->pc, entry->stack_pointer, {{kStackPointer, entry->stack_pointer}});
        thread.note += "; frames from its stack pointer alone";
      }
    }
    const std::vector<ThreadFacts>& all = result_.threads;
    if (result_.capture.threads.empty() && !all.empty()) result_.note = all.front().note;
  }

  // It is in no file.
  void take_vdso() {
    for (const stacks::Mapping& mapping : maps_) {
      if (mapping.path != "[vdso]" || abandoned_) continue;
      result_.capture.memory.push_back(
          {mapping.start, read_memory(pid_, mapping.start, mapping.end - mapping.start)});
    }
  }

  const pid_t pid_;
  const CaptureLimits& limits_;
  const std::atomic<bool>& abandoned_;
  CapturedProcess result_;
  std::vector<stacks::Mapping> maps_;
  std::vector<Tracee> tracees_;
  Clock::time_point interrupted_;
  std::size_t taken_ = 0;
};

}  // namespace

CapturedProcess capture_process(pid_t pid, const CaptureLimits& limits, const std::atomic<bool>& abandoned) {
  return Capture(pid, limits, abandoned).run();
}

}  // namespace cpprun::launcher
