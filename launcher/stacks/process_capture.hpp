// What the agent takes from a worker in the moment for which it stops it, and the form in which that goes to
// cpprun-stacks: enough to unwind every thread later, without the worker. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cpprun::stacks {

// A piece of the worker's memory.
struct MemoryRegion {
  std::uint64_t start = 0;
  std::string bytes;

  bool holds(std::uint64_t address, std::size_t size) const;
};

// One register by its DWARF number.
struct Register {
  std::uint32_t number = 0;
  std::uint64_t value = 0;
};

struct CapturedThread {
  std::int32_t tid = 0;
  std::uint64_t pc = 0;             // 0: no registers, so nothing to unwind
  std::vector<Register> registers;  // all general ones, or only the stack pointer where no more was to be had
  MemoryRegion stack;               // from just below the stack pointer upwards
};

struct ProcessCapture {
  std::int32_t pid = 0;
  std::string maps;                  // the text of /proc/<pid>/maps
  std::vector<MemoryRegion> memory;  // what is in no file: the vDSO
  std::vector<CapturedThread> threads;
};

// Little-endian, with a version in front. decode() gives nothing for a text that is cut short, too long in
// any part, or of another version; it allocates no more than the text is long.
std::string encode(const ProcessCapture& capture);
std::optional<ProcessCapture> decode(std::string_view text);

}  // namespace cpprun::stacks
