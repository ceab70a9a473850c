// The evidence of all nodes as files, beside this node's logs of the attempt.
#pragma once

#include <filesystem>

#include "launcher/health/evidence_exchange.hpp"

namespace cpprun::launcher {

// Writes <attempt folder>/evidence_<request>/node_<group rank>.txt for each node that answered, letting
// others run between two files. Trouble is logged.
awaitable<void> write_evidence(std::filesystem::path attempt_folder, int request, Gathered gathered);

}  // namespace cpprun::launcher
