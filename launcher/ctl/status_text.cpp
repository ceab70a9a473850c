#include "launcher/ctl/status_text.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "rendezvous/text.hpp"

namespace cpprun::launcher {
namespace {

using nlohmann::ordered_json;
using Row = std::vector<std::string>;

constexpr char kNothing[] = "-";

// A value as a word; "-" where there is none.
std::string word(const ordered_json& object, const char* key) {
  const ordered_json value = object.is_object() ? object.value(key, ordered_json()) : ordered_json();
  if (value.is_string()) {
    const std::string text = rendezvous::escaped(value.get_ref<const std::string&>());
    return text.empty() ? kNothing : text;
  }
  return value.is_number_integer() ? value.dump() : kNothing;
}

// "7 s", "3 min 20 s", "2 h 5 min", "4 d 3 h".
std::string duration(const ordered_json& object, const char* key) {
  const ordered_json value = object.is_object() ? object.value(key, ordered_json()) : ordered_json();
  if (!value.is_number()) return kNothing;
  constexpr double kMost = 1e12;
  const std::int64_t seconds = static_cast<std::int64_t>(std::clamp(value.get<double>(), 0.0, kMost));
  const auto pair = [](std::int64_t large, const char* unit, std::int64_t small, const char* lesser) {
    return std::to_string(large) + unit + std::to_string(small) + lesser;
  };
  if (seconds < 60) return std::to_string(seconds) + " s";
  if (seconds < 3600) return pair(seconds / 60, " min ", seconds % 60, " s");
  if (seconds < 86400) return pair(seconds / 3600, " h ", seconds % 3600 / 60, " min");
  return pair(seconds / 86400, " d ", seconds % 86400 / 3600, " h");
}

// Columns two blanks apart, as wide as their longest word that has another behind it.
std::string table(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i + 1 < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line.append(row[i]).append(std::max(widths[i], row[i].size()) - row[i].size() + 2, ' ');
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

// Lines stay lines; what else a terminal would act on is spelled out.
std::string printable(const std::string& text) {
  std::string shown;
  for (const char c : text)
    shown += c == '\n' || c == '\t' ? std::string(1, c) : rendezvous::escaped({&c, 1});
  return shown;
}

ordered_json parsed(const std::string& json) {
  return ordered_json::parse(json, nullptr, false);
}

ordered_json workers_of(const ordered_json& status) {
  const ordered_json workers = status.is_object() ? status.value("workers", ordered_json()) : ordered_json();
  return workers.is_array() ? workers : ordered_json::array();
}

std::string end_of(const ordered_json& worker) {
  const std::string signal = word(worker, "signal");
  if (signal != kNothing) return "ended by " + signal;
  const std::string code = word(worker, "exit_code");
  return code == kNothing ? word(worker, "state") : "ended, exit code " + code;
}

std::string state_of(const ordered_json& worker) {
  if (word(worker, "state") == "ended") return end_of(worker);
  const std::string condemned = word(worker, "condemned");
  std::string text = word(worker, "state");
  if (word(worker, "process_state") != kNothing) text += " (" + word(worker, "process_state") + ")";
  return condemned == kNothing ? text : text + ", " + condemned;
}

// "step=120 phase=train": the worker's own words, in its order.
std::string progress_of(const ordered_json& worker) {
  const ordered_json progress =
      worker.is_object() ? worker.value("progress", ordered_json()) : ordered_json();
  std::string text;
  if (!progress.is_object()) return kNothing;
  for (const auto& [key, value] : progress.items()) {
    if (value.is_null() || value == "") continue;
    const std::string shown = value.is_string() ? value.get<std::string>() : value.dump();
    text.append(text.empty() ? "" : " ").append(rendezvous::escaped(key)).append("=");
    text.append(rendezvous::escaped(shown));
  }
  return text.empty() ? kNothing : text;
}

std::string node_of(const ordered_json& status) {
  const std::string rank = word(status, "group_rank");
  if (rank == kNothing) return kNothing;
  return rank + " of " + word(status, "group_world_size");
}

std::string restarts_of(const ordered_json& status) {
  return word(status, "restarts") + " of " + word(status, "max_restarts");
}

std::string running_workers(const ordered_json& status) {
  const ordered_json workers = workers_of(status);
  const auto running = std::count_if(workers.begin(), workers.end(), [](const ordered_json& worker) {
    return word(worker, "state") != "ended";
  });
  return std::to_string(running) + " of " + std::to_string(workers.size());
}

}  // namespace

std::string job_table(const std::vector<StatusAnswer>& answers) {
  std::vector<Row> rows{{"PID", "RUN", "STATE", "NODE", "ATTEMPT", "WORKERS UP", "SINCE", "PROGRAM"}};
  for (const StatusAnswer& answer : answers) {
    const std::string pid = answer.launcher > 0 ? std::to_string(answer.launcher) : kNothing;
    const ordered_json status = parsed(answer.json);
    if (!status.is_object()) {
      rows.push_back({pid, kNothing, rendezvous::escaped(answer.trouble)});
      continue;
    }
    rows.push_back({pid, word(status, "run_id"), word(status, "state"), node_of(status),
                    word(status, "attempt"), running_workers(status), duration(status, "uptime_s"),
                    word(status, "program")});
  }
  return table(rows);
}

std::string job_text(const std::string& status_json) {
  const ordered_json status = parsed(status_json);
  std::string text = table({{"run:", word(status, "run_id")},
                            {"program:", word(status, "program")},
                            {"state:", word(status, "state") + ", for " + duration(status, "uptime_s")},
                            {"pid:", word(status, "pid") + " (agent " + word(status, "agent_pid") + ")"},
                            {"node:", node_of(status) + ", " + word(status, "host")},
                            {"rendezvous:", word(status, "rendezvous")},
                            {"attempt:", word(status, "attempt")},
                            {"restarts:", restarts_of(status)},
                            {"logs:", word(status, "folder")}});
  std::vector<Row> rows{{"RANK", "LOCAL", "PID", "UP", "STATE", "PROGRESS"}};
  for (const ordered_json& worker : workers_of(status)) {
    rows.push_back({word(worker, "global_rank"), word(worker, "local_rank"), word(worker, "pid"),
                    duration(worker, "uptime_s"), state_of(worker), progress_of(worker)});
  }
  return rows.size() == 1 ? text : text + "\n" + table(rows);
}

std::string jobs_json(const std::vector<StatusAnswer>& answers) {
  ordered_json jobs = ordered_json::array();
  for (const StatusAnswer& answer : answers) {
    ordered_json job = parsed(answer.json);
    if (!job.is_object()) job = {{"pid", answer.launcher}, {"error", answer.trouble}};
    jobs.push_back(std::move(job));
  }
  return jobs.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string stacks_text(const std::string& stacks_json) {
  const ordered_json stacks = parsed(stacks_json);
  if (!stacks.is_object()) return "";
  const ordered_json text = stacks.value("text", ordered_json());
  std::string shown = text.is_string() ? printable(text.get_ref<const std::string&>()) : "";
  if (!shown.empty() && shown.back() != '\n') shown += '\n';
  for (const ordered_json& node : stacks.value("missing", ordered_json::array())) {
    shown += "node " + node.dump() + " did not answer\n";
  }
  return shown;
}

}  // namespace cpprun::launcher
