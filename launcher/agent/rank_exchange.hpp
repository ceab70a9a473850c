// The agents of one round tell each other what workers they bring, and learn their ranks and where the
// workers' store is. One value written and one read by each agent; the agent of group rank 0 reads all and
// writes all.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "launcher/agent/rank_assignment.hpp"
#include "rendezvous/rendezvous_handler.hpp"

namespace cpprun::launcher {

// Where an attempt's workers find their store.
struct StoreEndpoint {
  std::string address;
  std::uint16_t port;
};
// Opens the worker store for a new attempt: empty, and closed to the workers of earlier ones. `own_address`
// is this node's as its peers reach it.
using OpenWorkerStore = std::function<StoreEndpoint(const std::string& own_address)>;

struct RankExchange {
  std::vector<WorkerRanks> workers;  // in the order of local ranks
  StoreEndpoint store;
};

// Throws store::StoreError, rendezvous::RendezvousError when a peer is silent for too long, std::system_error
// when the worker store cannot be opened.
awaitable<RankExchange> exchange_ranks(store::Store& round_store, rendezvous::RendezvousInfo info,
                                       NodeWorkers mine, OpenWorkerStore open_store);

}  // namespace cpprun::launcher
