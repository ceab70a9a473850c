// Turns a capture into named frames, by elfutils' libdw and the ELF files that the process ran from.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/stacks/process_capture.hpp"

namespace cpprun::stacks {

struct NamedFrame {
  std::string function;      // demangled; empty where the file has no symbol there
  std::string module;        // path of the ELF file; empty for code that is in no file
  std::uint64_t offset = 0;  // from the module's first address; without a module the address itself
  std::string file;          // of the source, empty without debug information
  int line = 0;
};

struct UnwoundThread {
  std::int32_t tid = 0;
  std::vector<NamedFrame> frames;  // innermost first
  std::string note;                // why they end early, or are none; else empty
};

class Unwinder {
 public:
  // `capture` outlives the unwinder. Throws std::runtime_error where libdw cannot begin.
  explicit Unwinder(const ProcessCapture& capture);
  ~Unwinder();

  UnwoundThread unwind(const CapturedThread& thread);

 private:
  class Session;
  std::unique_ptr<Session> session_;
};

}  // namespace cpprun::stacks
