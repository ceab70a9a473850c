// cpprun_progress.h in C++: the same calls, and sections and phases that end with their scope.
//
//     cpprun::progress::step(17);
//     const cpprun::progress::Section section("forward");
#pragma once

#include <cstdint>
#include <string>

#include "cpprun_progress.h"

namespace cpprun::progress {

enum class Phase : std::uint32_t {
  Starting = CPPRUN_PHASE_STARTING,
  Training = CPPRUN_PHASE_TRAINING,
  Evaluating = CPPRUN_PHASE_EVALUATING,
  Checkpointing = CPPRUN_PHASE_CHECKPOINTING,
  Compiling = CPPRUN_PHASE_COMPILING,
  Waiting = CPPRUN_PHASE_WAITING,
  Finishing = CPPRUN_PHASE_FINISHING,
};

inline bool open() {
  return cpprun_progress_open() != 0;
}
inline void heartbeat() {
  cpprun_progress_heartbeat();
}
inline void step(std::int64_t number) {
  cpprun_progress_step(number);
}
inline void collective(std::int64_t sequence) {
  cpprun_progress_collective(sequence);
}
// Until the next one or ""; see Section.
inline void section(const char* name) {
  cpprun_progress_section(name);
}
inline void section(const std::string& name) {
  section(name.c_str());
}
inline void message(const char* text) {
  cpprun_progress_message(text);
}
inline void message(const std::string& text) {
  message(text.c_str());
}
// Returns the phase before.
inline Phase phase(Phase now) {
  return static_cast<Phase>(cpprun_progress_phase(static_cast<std::uint32_t>(now)));
}

// In this phase as long as it lives, then in the one before.
class PhaseScope {
 public:
  explicit PhaseScope(Phase now) : before_(phase(now)) {}
  ~PhaseScope() { phase(before_); }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  Phase before_;
};

// In this section as long as it lives, then in the one around it.
class Section {
 public:
  explicit Section(const char* name) { cpprun_progress_enter(name, &outer_); }
  explicit Section(const std::string& name) : Section(name.c_str()) {}
  ~Section() { cpprun_progress_leave(&outer_); }
  Section(const Section&) = delete;
  Section& operator=(const Section&) = delete;

 private:
  cpprun_section_entry outer_{};
};

}  // namespace cpprun::progress
