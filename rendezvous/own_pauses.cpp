#include "rendezvous/own_pauses.hpp"

namespace cpprun::rendezvous {
namespace {

// "6.0 s".
std::string in_tenths(std::chrono::nanoseconds span) {
  const auto tenths = std::chrono::duration_cast<std::chrono::milliseconds>(span).count() / 100;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

}  // namespace

void OwnPauses::beat(Moment now) {
  if (last_ && now - *last_ > limit_) {
    pause_ = now - *last_;
    ended_ = now;
  }
  last_ = now;
}

std::optional<std::string> OwnPauses::recent(Moment now) const {
  if (!last_) return std::nullopt;
  const bool ends_now = now - *last_ > limit_;
  const bool has_ended = pause_ > limit_ && now - ended_ <= limit_;
  if (!ends_now && !has_ended) return std::nullopt;
  return "this agent did not run for " + in_tenths(ends_now ? now - *last_ : pause_) +
         " (it was stopped, or the machine was suspended)";
}

}  // namespace cpprun::rendezvous
