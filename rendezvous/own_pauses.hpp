// Whether this process itself did not run for a while, because it was stopped or its machine was suspended:
// whatever it finds lost then, nobody else is to blame. Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace cpprun::rendezvous {

class OwnPauses {
 public:
  using Moment = std::chrono::nanoseconds;  // by a clock that goes on while the machine is suspended

  // What is shorter than `limit` is no pause.
  explicit OwnPauses(std::chrono::nanoseconds limit) : limit_(limit) {}

  // This process runs now. To be called several times in each limit.
  void beat(Moment now);
  // A phrase of a pause that ends now, or has ended since one limit ago; else nothing.
  std::optional<std::string> recent(Moment now) const;

 private:
  std::chrono::nanoseconds limit_;
  std::optional<Moment> last_;
  Moment ended_{};  // the last pause
  std::chrono::nanoseconds pause_{};
};

}  // namespace cpprun::rendezvous
