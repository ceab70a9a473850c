#include "launcher/report/event.hpp"

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace cpprun::launcher {
namespace {

using Json = nlohmann::ordered_json;  // readers by eye expect torchrun's order

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// torchrun's spelling: a signal is a negative exit code.
Json exit_code(const std::optional<ExitStatus>& status) {
  if (!status) return nullptr;
  const Exited* exited = std::get_if<Exited>(&*status);
  return exited ? exited->code : -std::get<Signaled>(*status).signal;
}

std::string dump(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Text within the text, and lists of one element: torchrun's shape.
std::string inner_metadata(const EventSource& source, const Event& event) {
  Json metadata;
  metadata["group_world_size"] = or_null(event.group_world_size);
  metadata["entry_point"] = source.entry_point;
  if (event.worker) {
    const EventWorker& worker = *event.worker;
    metadata["local_rank"] = Json::array({worker.ranks.local});
    metadata["role_rank"] = Json::array({worker.ranks.role});
    metadata["role_world_size"] = Json::array({worker.ranks.role_world_size});
    metadata["exit_code"] = Json::array({exit_code(worker.status)});
    metadata["worker_pid"] = Json::array({worker.status ? Json(worker.pid) : Json(nullptr)});
  }
  return dump(metadata);
}

}  // namespace

EventDestination EventDestination::parse(const std::string& name) {
  if (name == "null" || name == "dynamic_rendezvous") return {};
  if (name == "console") return {true, ""};
  if (name.rfind("file:", 0) == 0 && name.size() > 5) return {false, name.substr(5)};
  throw std::invalid_argument("'" + name + "' is none of null, console, dynamic_rendezvous and file:PATH");
}

std::string to_json(const EventSource& source, const Event& event) {
  Json metadata;
  metadata["run_id"] = source.run_id;
  metadata["global_rank"] = event.worker ? Json(event.worker->ranks.global) : Json(nullptr);
  metadata["group_rank"] = or_null(event.group_rank);
  metadata["worker_id"] = event.worker ? Json(std::to_string(event.worker->pid)) : Json(nullptr);
  metadata["role"] = source.role;
  metadata["hostname"] = source.hostname;
  metadata["state"] = event.state;
  metadata["total_run_time"] = event.total_run_time.count();
  metadata["rdzv_backend"] = source.rdzv_backend;
  metadata["raw_error"] = event.raw_error.empty() ? Json(nullptr) : Json(event.raw_error);
  metadata["metadata"] = inner_metadata(source, event);
  metadata["agent_restarts"] = event.agent_restarts;
  metadata["duration_ms"] = event.duration ? Json(event.duration->count()) : Json(nullptr);
  Json root;
  root["name"] = "torchelastic.worker.status." + event.state;
  root["source"] = event.worker ? "WORKER" : "AGENT";
  root["timestamp"] =
      std::chrono::duration_cast<std::chrono::milliseconds>(event.when.time_since_epoch()).count();
  root["metadata"] = std::move(metadata);
  return dump(root);
}

}  // namespace cpprun::launcher
