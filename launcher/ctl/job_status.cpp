#include "launcher/ctl/job_status.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace cpprun::launcher {
namespace {

using nlohmann::ordered_json;
using Time = std::chrono::system_clock::time_point;

// The clock may have been set back.
double seconds_between(Time from, Time to) {
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(to - from);
  return static_cast<double>(std::max<std::int64_t>(milliseconds.count(), 0)) / 1000;
}

ordered_json text_or_null(const std::string& text) {
  return text.empty() ? ordered_json() : ordered_json(text);
}

const char* name_of(AgentPhase phase) {
  switch (phase) {
    case AgentPhase::Rendezvous:
      return "rendezvous";
    case AgentPhase::Running:
      return "running";
    case AgentPhase::Stopping:
      return "stopping";
    case AgentPhase::Finishing:
      return "finishing";
    case AgentPhase::Deciding:
      break;
  }
  return "deciding";
}

const char* state_of(const WorkerStatus& worker) {
  if (worker.end) return "ended";
  return worker.process_state == 'T' || worker.process_state == 't' ? "stopped" : "running";
}

ordered_json to_object(const WorkerStatus& worker, Time now) {
  ordered_json object = {
      {"global_rank", worker.ranks.global},
      {"local_rank", worker.ranks.local},
      {"role_rank", worker.ranks.role},
      {"pid", worker.pid},
      {"state", state_of(worker)},
      {"process_state", text_or_null(worker.process_state ? std::string(1, worker.process_state) : "")},
      {"uptime_s", seconds_between(worker.started, worker.end ? worker.end->when : now)},
      {"exit_code", nullptr},
      {"signal", nullptr},
      {"condemned", text_or_null(worker.condemned)},
      {"progress", nullptr},
  };
  if (worker.end) {
    if (const Exited* exited = std::get_if<Exited>(&worker.end->status)) object["exit_code"] = exited->code;
    if (const Signaled* killed = std::get_if<Signaled>(&worker.end->status))
      object["signal"] = signal_name(killed->signal);
  }
  const ordered_json progress = ordered_json::parse(worker.progress, nullptr, false);
  if (progress.is_object()) object["progress"] = progress;
  return object;
}

}  // namespace

std::string to_json(const JobStatus& status, Time now) {
  ordered_json object = {
      {"version", status.version},
      {"run_id", status.run_id},
      {"program", status.program},
      {"host", status.host},
      {"pid", status.launcher},
      {"agent_pid", status.agent},
      {"state", name_of(status.phase)},
      {"uptime_s", seconds_between(status.started, now)},
      {"folder", text_or_null(status.folder)},
      {"rendezvous", text_or_null(status.rendezvous)},
      {"max_restarts", status.max_restarts},
      {"attempt", nullptr},
      {"restarts", nullptr},
      {"group_rank", nullptr},
      {"group_world_size", nullptr},
      {"address", nullptr},
      {"workers", ordered_json::array()},
  };
  if (status.round) {
    object["attempt"] = status.round->attempt;
    object["restarts"] = status.round->restarts;
    object["group_rank"] = status.round->group_rank;
    object["group_world_size"] = status.round->group_world_size;
    object["address"] = text_or_null(status.round->address);
  }
  for (const WorkerStatus& worker : status.workers) object["workers"].push_back(to_object(worker, now));
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace cpprun::launcher
