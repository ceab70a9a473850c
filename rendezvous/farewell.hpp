// The part of a process in leading its run, as its own agent sees it at the end.
#pragma once

#include <string>

#include "rendezvous/async/tokens.hpp"

namespace cpprun::rendezvous {

class Farewell {
 public:
  virtual ~Farewell() = default;

  // The end of this process, whose own agent has gone already: the other agents get their last word, which is
  // `why` where there was none and no other can lead, or another leader. Bounded; never throws.
  virtual awaitable<void> say_farewell(std::string why) = 0;
};

}  // namespace cpprun::rendezvous
