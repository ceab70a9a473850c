// What an agent is about, for those who ask.
#pragma once

namespace cpprun::launcher {

enum class AgentPhase {
  Rendezvous,  // waits for the other nodes
  Running,     // its workers run
  Stopping,    // ends its workers
  Finishing,   // its workers ended well, others' run
  Deciding,    // waits for the verdict: start again, or end
};

}  // namespace cpprun::launcher
