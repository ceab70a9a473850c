// The way between an agent and whoever leads its run: carries the agent's report there and its orders back.
#pragma once

#include <string>

#include "rendezvous/async/deadline.hpp"
#include "rendezvous/async/tokens.hpp"

namespace cpprun::rendezvous {

class LeaderLink {
 public:
  virtual ~LeaderLink() = default;

  // Until cancelled, or until there can be no leader for this agent: see refusal(). Never throws.
  virtual awaitable<void> run() = 0;

  // The agent's report has changed.
  virtual void report_changed() = 0;
  // Returns when the present report has been sent, or at the limit.
  virtual awaitable<void> flush(async::Deadline limit) = 0;

  // Why there is no leader to talk to at present, in a phrase; empty if there is one.
  virtual const std::string& problem() const = 0;
  // A sentence if trying on is of no use.
  virtual const std::string& refusal() const = 0;
};

}  // namespace cpprun::rendezvous
