// Where a store's port leads to something else: an agent names its run in an OPEN request, and its connection
// leaves the store.
#pragma once

#include <cstdint>
#include <string>

namespace cpprun::store {

// What an agent says in OPEN.
struct Opening {
  std::string run;
  std::string rules;  // of the run, as the agent would have them; the store does not read them
};

struct OpenedConnection;  // run_desk.hpp

// Who answers OPEN. Called by the server, on its thread.
class AgentDesk {
 public:
  virtual ~AgentDesk() = default;

  // The answer: kOpened, or why not.
  virtual std::uint8_t admit(const Opening& opening) = 0;
  // After kOpened, in the same turn of the loop.
  virtual void take(const Opening& opening, OpenedConnection&& connection) = 0;
};

}  // namespace cpprun::store
