#include "rendezvous/daemon/metrics.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string_view>

namespace cpprun::rendezvous {
namespace {

using store::StoreUse;

constexpr std::array<const char*, store::kLastOp + 1> kOpNames{
    "validate",   "set",        "compare_set", "get",       "add",       "check",       "wait",
    "num_keys",   "delete_key", "append",      "multi_get", "multi_set", "cancel_wait", "ping",
    "queue_push", "queue_pop",  "queue_len",   "list_keys", "barrier"};

void head(std::string& out, const char* name, const char* type, const char* help) {
  out.append("# HELP ").append(name).append(" ").append(help).append("\n");
  out.append("# TYPE ").append(name).append(" ").append(type).append("\n");
}

void sample(std::string& out, const std::string& series, const std::string& value) {
  out.append(series).append(" ").append(value).append("\n");
}

template <typename T>
void single(std::string& out, const char* name, const char* type, const char* help, T value) {
  head(out, name, type, help);
  sample(out, name, std::to_string(value));
}

std::string seconds(std::chrono::nanoseconds time) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.9g", std::chrono::duration<double>(time).count());
  return text.data();
}

// As a label's value; bytes that are no printable ASCII, which the format wants to be UTF-8, become '?'.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') out += '\\';
    out += letter >= ' ' && letter < 0x7F ? letter : '?';
  }
  return out + "\"";
}

// A series of a store, with what else tells it from others.
std::string series(const std::string& name, const StoreReading& store, const std::string& label = "") {
  std::string labels = store.name.empty() ? "" : "store=" + quoted(store.name);
  if (!labels.empty() && !label.empty()) labels += ",";
  labels += label;
  return labels.empty() ? name : name + "{" + labels + "}";
}

template <typename Value>
void put_by_store(std::string& out, const std::vector<StoreReading>& stores, const char* name,
                  const char* type, const char* help, Value value) {
  head(out, name, type, help);
  for (const StoreReading& store : stores) sample(out, series(name, store), std::to_string(value(store.use)));
}

void put_requests(std::string& out, const std::vector<StoreReading>& stores) {
  const char* name = "cpprund_store_requests_total";
  head(out, name, "counter", "Requests of store clients by kind.");
  for (const StoreReading& store : stores) {
    for (std::size_t op = 1; op < kOpNames.size(); ++op) {
      sample(out, series(name, store, std::string("op=\"") + kOpNames[op] + "\""),
             std::to_string(store.use.requests[op]));
    }
  }
}

void put_turns(std::string& out, const std::vector<StoreReading>& stores) {
  const std::string name = "cpprund_store_turn_seconds";
  head(out, name.c_str(), "histogram", "From a read of a client's requests to the sending of their replies.");
  for (const StoreReading& store : stores) {
    const StoreUse& use = store.use;
    for (std::size_t i = 0; i < StoreUse::kTurnBounds.size(); ++i) {
      sample(out, series(name + "_bucket", store, "le=\"" + seconds(StoreUse::kTurnBounds[i]) + "\""),
             std::to_string(use.turns_within[i]));
    }
    sample(out, series(name + "_bucket", store, "le=\"+Inf\""), std::to_string(use.turns));
    sample(out, series(name + "_sum", store), seconds(use.turn_time));
    sample(out, series(name + "_count", store), std::to_string(use.turns));
  }
}

template <typename Value>
void put_by_run(std::string& out, const std::vector<RunReading>& runs, const char* name, const char* help,
                Value value) {
  head(out, name, "gauge", help);
  for (const RunReading& run : runs) {
    sample(out, std::string(name) + "{run=" + quoted(run.run) + "}", std::to_string(value(run)));
  }
}

}  // namespace

std::string to_prometheus(const DaemonReading& reading) {
  std::string out;
  put_by_store(out, reading.stores, "cpprund_store_connections", "gauge",
               "Connections of store clients, and of agents not yet led on.",
               [](const StoreUse& use) { return use.connections; });
  put_by_store(out, reading.stores, "cpprund_store_accepted_total", "counter", "Connections accepted.",
               [](const StoreUse& use) { return use.accepted; });
  put_by_store(out, reading.stores, "cpprund_store_faults_total", "counter",
               "Connections closed for a fault of the client.",
               [](const StoreUse& use) { return use.faults; });
  put_by_store(out, reading.stores, "cpprund_store_waiting", "gauge", "Connections with an open wait.",
               [](const StoreUse& use) { return use.waiting; });
  put_by_store(out, reading.stores, "cpprund_store_keys", "gauge", "Keys that have a value.",
               [](const StoreUse& use) { return use.keys; });
  put_by_store(out, reading.stores, "cpprund_store_bytes", "gauge",
               "Bytes of keys and values, queues included.", [](const StoreUse& use) { return use.bytes; });
  put_requests(out, reading.stores);
  put_turns(out, reading.stores);
  single(out, "cpprund_runs", "gauge", "Runs that are open.", reading.runs.size());
  single(out, "cpprund_runs_opened_total", "counter", "Runs that were opened.", reading.runs_opened);
  single(out, "cpprund_openings_refused_total", "counter", "Agents' connections that were refused a run.",
         reading.openings_refused);
  put_by_run(out, reading.runs, "cpprund_run_agents", "Agents connected.",
             [](const RunReading& run) { return run.agents; });
  put_by_run(out, reading.runs, "cpprund_run_nodes", "Nodes of the last round.",
             [](const RunReading& run) { return run.view.nodes; });
  put_by_run(out, reading.runs, "cpprund_run_round", "Number of the last round; -1 before the first.",
             [](const RunReading& run) { return run.view.round; });
  put_by_run(out, reading.runs, "cpprund_run_restarts", "Restarts charged.",
             [](const RunReading& run) { return run.view.restarts; });
  put_by_run(out, reading.runs, "cpprund_run_running", "Whether a round runs.",
             [](const RunReading& run) { return run.view.running ? 1 : 0; });
  return out;
}

}  // namespace cpprun::rendezvous
