// A background task that the agent cannot do without.
#pragma once

#include "rendezvous/async/tokens.hpp"

namespace cpprun::launcher {

// Runs `task`. One that fails (memory, descriptors) ends this process at once with kSystemRefused and a
// sentence: the guardian ends what is left below it, and no cleanup of a broken agent could be relied on.
awaitable<void> vital(awaitable<void> task);

}  // namespace cpprun::launcher
