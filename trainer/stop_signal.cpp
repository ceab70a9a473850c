#include "trainer/stop_signal.hpp"

namespace cpprun::trainer {
namespace {

// A handler can reach nothing but a global.
volatile std::sig_atomic_t noted_signal = 0;

void note(int signal) {
  noted_signal = signal;
}

}  // namespace

StopSignal::StopSignal() {
  noted_signal = 0;
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, &old_term_);
  sigaction(SIGINT, &action, &old_interrupt_);
}

StopSignal::~StopSignal() {
  sigaction(SIGTERM, &old_term_, nullptr);
  sigaction(SIGINT, &old_interrupt_, nullptr);
}

int StopSignal::received() const {
  return noted_signal;
}

}  // namespace cpprun::trainer
