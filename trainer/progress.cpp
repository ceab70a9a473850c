#include "trainer/progress.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace cpprun::trainer {
namespace {

constexpr std::chrono::milliseconds kRedrawInterval{100};
constexpr int kBarWidth = 10;
constexpr int kUnknownColumns = 80;

int terminal_columns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUnknownColumns;
}

}  // namespace

std::string progress_text(const ProgressSample& sample) {
  char text[200];
  std::snprintf(text, sizeof text, "step %lld/%lld  epoch %d/%d  loss %.4f  lr %.3g  %.0f ex/s",
                static_cast<long long>(sample.step), static_cast<long long>(sample.total_steps),
                sample.epoch + 1, sample.epochs, sample.loss, sample.learning_rate,
                sample.examples_per_second);
  return text;
}

std::string progress_line(const ProgressSample& sample, int columns) {
  const std::int64_t filled = kBarWidth * sample.step / std::max<std::int64_t>(sample.total_steps, 1);
  const int bar = static_cast<int>(std::clamp<std::int64_t>(filled, 0, kBarWidth));
  const std::string line =
      "[" + std::string(bar, '#') + std::string(kBarWidth - bar, '.') + "] " + progress_text(sample);
  // A terminal wraps when its last column is written.
  return line.substr(0, static_cast<std::size_t>(std::max(columns - 1, 0)));
}

ProgressDisplay::ProgressDisplay(bool shown, int log_every)
    : shown_(shown), terminal_(shown && isatty(STDOUT_FILENO) == 1), log_every_(log_every) {}

ProgressDisplay::~ProgressDisplay() {
  if (drawn_) write("\n");
}

void ProgressDisplay::step(const ProgressSample& sample, TimePoint now) {
  if (!shown_) return;
  if (!terminal_) {
    if (log_every_ > 0 && sample.step % log_every_ == 0) write(progress_text(sample) + "\n");
    return;
  }
  const bool last = sample.step == sample.total_steps;
  if (drawn_ && !last && now - drawn_at_ < kRedrawInterval) return;
  write("\r\x1b[K" + progress_line(sample, terminal_columns()));
  drawn_ = true;
  drawn_at_ = now;
}

void ProgressDisplay::line(const std::string& text) {
  if (!shown_) return;
  write((drawn_ ? "\r\x1b[K" : "") + text + "\n");
  drawn_ = false;
}

void ProgressDisplay::write(const std::string& text) {
  // One write a line: lines of several processes on one terminal stay whole. A reader that has gone away
  // (a closed pipe) is no reason to stop training.
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace cpprun::trainer
