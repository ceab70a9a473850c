// What was wrong at each of a run's endpoints the last time that it was asked. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace cpprun::rendezvous {

class EndpointTroubles {
 public:
  explicit EndpointTroubles(std::size_t endpoints) : phrases_(endpoints) {}

  void clear() { phrases_.assign(phrases_.size(), ""); }
  void note(int endpoint, const std::string& phrase) {
    phrases_.at(static_cast<std::size_t>(endpoint)) = phrase;
  }
  // Those of all endpoints, in their order, each phrase once; empty if there are none.
  std::string all() const;

 private:
  std::vector<std::string> phrases_;
};

// `what` and then `more`, unless one of the two says the other.
std::string joined(const std::string& what, const std::string& more);

}  // namespace cpprun::rendezvous
