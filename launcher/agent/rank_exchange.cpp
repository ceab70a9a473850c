#include "launcher/agent/rank_exchange.hpp"

#include <nlohmann/json.hpp>
#include <utility>

namespace cpprun::launcher {
namespace {

using async::Deadline;
using nlohmann::json;
using rendezvous::RendezvousError;

// Of one agent for the others of a complete round: all are there, and only have to write a few bytes.
constexpr std::chrono::seconds kPeerLimit(60);

std::string brought(int group_rank) {
  return "workers/" + std::to_string(group_rank);
}
std::string assigned(int group_rank) {
  return "assigned/" + std::to_string(group_rank);
}

RendezvousError corrupt(const std::string& key) {
  return RendezvousError(RendezvousError::Kind::Corrupt,
                         "the rendezvous store holds at " + key + " something that no cpprun agent wrote");
}

NodeWorkers workers_from(const std::string& text, const std::string& key) {
  try {
    const json object = json::parse(text);
    return {object.at("role").get<std::string>(), object.at("count").get<int>()};
  } catch (const json::exception&) {
    throw corrupt(key);
  }
}

awaitable<void> wait_for(store::Store& store, std::vector<store::Key> keys, std::string whom) {
  const store::WaitResult result = co_await store.wait(std::move(keys), Deadline::after(kPeerLimit));
  if (result == store::WaitResult::Ready) co_return;
  throw RendezvousError(RendezvousError::Kind::Timeout, whom + " did not say what workers it has within " +
                                                            std::to_string(kPeerLimit.count()) + " s");
}

// Group rank 0: from what all bring to what each gets.
awaitable<void> assign_all(store::Store& store, int nodes, StoreEndpoint endpoint) {
  std::vector<store::Key> keys;
  keys.reserve(static_cast<std::size_t>(nodes));
  for (int rank = 0; rank < nodes; ++rank) keys.push_back(brought(rank));
  co_await wait_for(store, keys, "a node");
  const std::vector<store::Bytes> texts = co_await store.multi_get(keys);
  std::vector<NodeWorkers> all;
  for (std::size_t i = 0; i < texts.size(); ++i) all.push_back(workers_from(texts[i], keys[i]));
  for (int rank = 0; rank < nodes; ++rank) {
    const WorkerRanks first = assign_ranks(all, rank).front();
    const json object = {{"rank", first.global},
                         {"world_size", first.world_size},
                         {"role_rank", first.role},
                         {"role_world_size", first.role_world_size},
                         {"master_addr", endpoint.address},
                         {"master_port", endpoint.port}};
    std::string text = object.dump(-1, ' ', false, json::error_handler_t::replace);
    co_await store.set(assigned(rank), std::move(text));
  }
}

RankExchange exchange_from(const std::string& text, const std::string& key, int local_world_size) {
  try {
    const json object = json::parse(text);
    RankExchange result;
    for (int local = 0; local < local_world_size; ++local) {
      result.workers.push_back({local, object.at("rank").get<int>() + local,
                                object.at("role_rank").get<int>() + local, object.at("world_size").get<int>(),
                                object.at("role_world_size").get<int>()});
    }
    result.store = {object.at("master_addr").get<std::string>(),
                    object.at("master_port").get<std::uint16_t>()};
    return result;
  } catch (const json::exception&) {
    throw corrupt(key);
  }
}

}  // namespace

awaitable<RankExchange> exchange_ranks(store::Store& round_store, rendezvous::RendezvousInfo info,
                                       NodeWorkers mine, OpenWorkerStore open_store) {
  const json object = {{"role", mine.role}, {"count", mine.local_world_size}};
  std::string text = object.dump(-1, ' ', false, json::error_handler_t::replace);
  co_await round_store.set(brought(info.group_rank), std::move(text));
  if (info.group_rank == 0) {
    // Every agent is in this round, so no worker of an earlier one is left that could still use the old
    // table.
    StoreEndpoint endpoint = open_store(info.address);
    co_await assign_all(round_store, info.group_world_size, std::move(endpoint));
  }
  const std::string key = assigned(info.group_rank);
  std::vector<store::Key> keys{key};
  co_await wait_for(round_store, std::move(keys), "node 0");
  const store::Bytes answer = co_await round_store.get(key);
  co_return exchange_from(answer, key, mine.local_world_size);
}

}  // namespace cpprun::launcher
