// One random walk: a run of some nodes through faults, and what must hold at each of its steps.
#pragma once

#include <cstdint>
#include <string>

namespace cpprun::rendezvous::walks {

struct WalkResult {
  std::string fault;  // what did not hold; empty: all did
  std::string trace;  // what happened, where asked for
  int rounds = 0;     // whose workers ran
  int takeovers = 0;  // rounds of another leader than the one before
  bool finished = false;
  bool beyond_promise = false;  // ended there: the first endpoint began another run of that name
};

WalkResult walk(std::uint64_t seed, bool traced);

}  // namespace cpprun::rendezvous::walks
