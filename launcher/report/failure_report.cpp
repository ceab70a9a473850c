#include "launcher/report/failure_report.hpp"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <nlohmann/json.hpp>
#include <system_error>
#include <tuple>

#include "launcher/report/utc_time.hpp"
#include "launcher/text.hpp"

namespace cpprun::launcher {
namespace {

using nlohmann::json;
using TimePoint = std::chrono::system_clock::time_point;

constexpr std::size_t kRuleWidth = 60;
constexpr std::size_t kTextTailLines = 20;
constexpr std::size_t kLongestShown = 1'000;
constexpr std::size_t kJsonTailLines = 200;
constexpr const char* kAdviceOnNode =
    "Look at that node: whether it runs and can be reached, and what its own cpprun said last.";
constexpr const char* kAdviceOnStore =
    "Look at the host that leads the run (its endpoint, cpprund or etcd): whether it runs and can be "
    "reached.";
constexpr const char* kAdviceOnAgent =
    "Ask who ends processes here: the scheduler's limits, a person, or the kernel for want of memory.";

const char* advice_without_worker(FailureClass cls) {
  if (cls == FailureClass::NodeLost) return kAdviceOnNode;
  return cls == FailureClass::StoreLost ? kAdviceOnStore : kAdviceOnAgent;
}

std::string local_time(TimePoint when) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(when);
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d_%H:%M:%S", &parts);
  return text;
}

std::vector<std::string> last_lines(const std::string& text, std::size_t most) {
  std::vector<std::string> lines = split(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  if (lines.size() > most) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(most));
  return lines;
}

// A line of a terminal's few; the files have it whole.
std::string shortened(const std::string& line) {
  if (line.size() <= kLongestShown) return line;
  std::size_t end = kLongestShown;
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0U) == 0x80U) --end;  // no half character
  return line.substr(0, end) + "... (" + std::to_string(line.size()) + " bytes)";
}

std::string indented(const std::string& text) {
  std::string result;
  for (const std::string& line : split(text, '\n'))
    result += (result.empty() ? "" : "\n  ") + shortened(line);
  return result;
}

std::string traceback(const WorkerFailure& failure) {
  if (failure.condemned.empty() && failure.record && !failure.record->callstack.empty())
    return indented(failure.record->callstack);
  return indented(failure_message(failure));
}

// torchrun's spelling: a signal is a negative exit code with its name behind it.
std::string exit_code_text(const WorkerFailure& failure) {
  const std::string pid = " (pid: " + std::to_string(failure.pid) + ") ";
  if (!failure.ended) return "<none yet>" + pid;
  if (const Exited* exited = std::get_if<Exited>(&failure.status)) return std::to_string(exited->code) + pid;
  const int signal = std::get<Signaled>(failure.status).signal;
  return std::to_string(-signal) + pid + "(" + signal_name(signal) + ")";
}

void append_field(std::string& text, const char* name, const std::string& value) {
  text += "  ";
  text += name;
  text += value;
  text += '\n';
}

// The verdict in two lines: what it was and by which evidence, and what to do.
void append_verdict(std::string& text, const Verdict& verdict) {
  const std::string evidence = verdict.evidence.empty() ? "" : ": " + verdict.evidence.front();
  append_field(text, "cause     : ", class_name(verdict.cls) + evidence);
  if (!verdict.advice.empty()) append_field(text, "advice    : ", verdict.advice);
}

void append_failure(std::string& text, std::size_t index, const WorkerFailure& failure,
                    const std::string& host) {
  text += '[';
  text += std::to_string(index);
  text += "]:\n";
  append_field(text, "time      : ", local_time(failure.when));
  append_field(text, "host      : ", host);
  append_field(
      text, "rank      : ",
      std::to_string(failure.ranks.global) + " (local_rank: " + std::to_string(failure.ranks.local) + ")");
  append_field(text, "exitcode  : ", exit_code_text(failure));
  append_field(text, "error_file: ", failure.error_file.empty() ? "<N/A>" : failure.error_file);
  if (failure.progress) {
    append_field(text, "progress  : ", worker::to_text(*failure.progress, failure.moment));
  }
  append_field(text, "traceback : ", traceback(failure));
}

std::string root_text(const FailureReport& report, const WorkerFailure& root) {
  std::string text;
  append_failure(text, static_cast<std::size_t>(&root - report.failures.data()), root, report.host);
  append_verdict(text, root.verdict);
  const std::vector<std::string> tail = last_lines(root.stderr_tail, kTextTailLines);
  if (!tail.empty()) {
    text += "  stderr    : (last lines)\n";
    for (const std::string& line : tail) text += "    " + shortened(line) + "\n";
  }
  return text;
}

std::string dump(const json& object, int indent) {
  // Workers write any bytes; those that are no UTF-8 are replaced.
  return object.dump(indent, ' ', false, json::error_handler_t::replace);
}

json to_object(const WorkerFailure& failure, const std::string& host) {
  json object = {
      {"global_rank", failure.ranks.global},
      {"local_rank", failure.ranks.local},
      {"role_rank", failure.ranks.role},
      {"host", host},
      {"pid", failure.pid},
      {"exit_code", nullptr},
      {"signal", nullptr},
      {"class", class_name(failure.verdict.cls)},
      {"evidence", failure.verdict.evidence},
      {"advice", failure.verdict.advice},
      {"confidence", failure.verdict.confidence},
      {"message", failure_message(failure)},
      {"error_file", failure.error_file.empty() ? json(nullptr) : json(failure.error_file)},
      {"stderr_tail", last_lines(failure.stderr_tail, kJsonTailLines)},
      {"time", utc_time(failure.when)},
      {"progress",
       failure.progress ? json::parse(worker::to_json(*failure.progress, failure.moment)) : json(nullptr)},
      {"progress_text",
       failure.progress ? json(worker::to_text(*failure.progress, failure.moment)) : json(nullptr)},
  };
  if (!failure.ended) return object;
  if (const Exited* exited = std::get_if<Exited>(&failure.status)) {
    object["exit_code"] = exited->code;
  } else {
    object["signal"] = signal_name(std::get<Signaled>(failure.status).signal);
  }
  return object;
}

// A node that was lost or stopped, or a lost rendezvous: no worker's figures.
json node_object(const JobCause& cause) {
  json object = {{"class", class_name(cause.cls)},
                 {"message", cause.sentence},
                 {"evidence", json::array({cause.sentence})},
                 {"advice", advice_without_worker(cause.cls)},
                 {"confidence", 0.9},
                 {"stderr_tail", json::array()}};
  for (const char* key : {"global_rank", "local_rank", "role_rank", "host", "pid", "exit_code", "signal",
                          "error_file", "time", "progress", "progress_text"}) {
    object[key] = nullptr;
  }
  return object;
}

std::string node_text(const JobCause& cause) {
  std::string text = "  " + cause.sentence + "\n";
  append_field(text, "cause     : ", class_name(cause.cls));
  append_field(text, "advice    : ", advice_without_worker(cause.cls));
  return text;
}

json root_object(const FailureReport& report) {
  if (!report.elsewhere) return to_object(root_cause(report.failures), report.host);
  json object = json::parse(report.elsewhere->record, nullptr, false);
  return object.is_object() ? object : node_object(*report.elsewhere);
}

json to_object(const NodeWords& words) {
  json ranks = json::array();
  for (const RankWords& rank : words.ranks) {
    ranks.push_back({{"global_rank", rank.rank},
                     {"text", rank.text},
                     {"progress", json::parse(rank.progress, nullptr, false)}});
    if (ranks.back()["progress"].is_discarded()) ranks.back()["progress"] = nullptr;
  }
  return {{"node", words.node}, {"host", words.host}, {"time", words.time}, {"ranks", std::move(ranks)}};
}

std::string last_words_text(const NodeWords& words) {
  std::string text =
      "Last words of node " + std::to_string(words.node) + " (" + words.host + "), " + words.time + ":\n";
  for (const RankWords& rank : words.ranks)
    text += "  rank " + std::to_string(rank.rank) + ": " + rank.text + "\n";
  return text;
}

// How far from the cause a failure speaks: of its own, of a wait in vain, of a peer that was gone.
int remoteness(FailureClass cls) {
  if (!may_follow_from_another(cls)) return 0;
  return cls == FailureClass::PeerFailure ? 2 : 1;
}

}  // namespace

const WorkerFailure& root_cause(const std::vector<WorkerFailure>& failures) {
  const auto order = [](const WorkerFailure& failure) {
    const std::int64_t recorded =
        failure.record && failure.record->timestamp > 0 ? failure.record->timestamp : INT64_MAX;
    return std::make_tuple(failure.stopped_by_agent, remoteness(failure.verdict.cls), failure.batch,
                           !std::holds_alternative<Signaled>(failure.status), recorded, failure.ranks.local);
  };
  return *std::min_element(
      failures.begin(), failures.end(),
      [&](const WorkerFailure& a, const WorkerFailure& b) { return order(a) < order(b); });
}

bool refused_configuration(const WorkerFailure& failure) {
  const Exited* exited = std::get_if<Exited>(&failure.status);
  return exited && exited->code == 2 && failure.record && failure.record->error_code == 2;
}

std::string why_no_restart(const WorkerFailure& failure) {
  if (refused_configuration(failure)) return "its configuration is wrong";
  if (failure.stuck) return "the kernel holds it";
  return "";
}

std::string failure_message(const WorkerFailure& failure) {
  if (failure.exec_error != 0) {
    return "the program could not be executed: " + std::generic_category().message(failure.exec_error) +
           (failure.exec_error == ENOENT ? " (it, or the interpreter that its first line names)" : "");
  }
  if (!failure.condemned.empty()) return failure.condemned;
  if (failure.record) return failure.record->message;
  if (const Signaled* signaled = std::get_if<Signaled>(&failure.status)) {
    return "Signal " + std::to_string(signaled->signal) + " (" + signal_name(signaled->signal) +
           ") received by PID " + std::to_string(failure.pid) +
           (failure.stopped_by_agent ? ", stopped because of the root cause" : "");
  }
  const char* left = failure.error_file.empty() ? "; the worker left no error record"
                                                : "; the worker's error file holds no error record";
  return describe(failure.status) + left +
         (failure.stopped_by_agent ? ", stopped because of the root cause" : "");
}

std::string summary(const WorkerFailure& failure) {
  return "rank " + std::to_string(failure.ranks.global) + " (local_rank " +
         std::to_string(failure.ranks.local) + ", pid " + std::to_string(failure.pid) +
         "): " + (failure.condemned.empty() ? describe(failure.status) : failure.condemned);
}

std::string to_text(const FailureReport& report) {
  const WorkerFailure* root = report.elsewhere ? nullptr : &root_cause(report.failures);
  const std::string heavy(kRuleWidth, '=');
  const std::string light(kRuleWidth, '-');
  std::string text = heavy + "\n" + report.name + " FAILED\n";
  if (!report.interpreter.empty()) text += "  interpreter: " + report.interpreter + "\n";
  text += light + "\nFailures:\n";
  bool others = false;
  for (std::size_t i = 0; i < report.failures.size(); ++i) {
    if (&report.failures[i] == root) continue;
    others = true;
    append_failure(text, i, report.failures[i], report.host);
  }
  if (!others) text += "  <NO_OTHER_FAILURES>\n";
  text += light + "\nRoot Cause (first observed failure):\n";
  if (root) {
    text += root_text(report, *root);
  } else {
    text += report.elsewhere->text.empty() ? node_text(*report.elsewhere) : report.elsewhere->text;
  }
  for (const NodeWords& words : report.lost_nodes) text += last_words_text(words);
  return text + heavy + "\n";
}

std::string to_json(const FailureReport& report) {
  json failures = json::array();
  for (const WorkerFailure& failure : report.failures) {
    json object = to_object(failure, report.host);
    object["stopped_by_agent"] = failure.stopped_by_agent;
    failures.push_back(std::move(object));
  }
  json lost = json::array();
  for (const NodeWords& words : report.lost_nodes) lost.push_back(to_object(words));
  const json root = {
      {"name", report.name},
      {"run_id", report.run_id},
      {"attempt", report.attempt},
      {"root_cause", root_object(report)},
      {"failures", std::move(failures)},
      {"lost_nodes", std::move(lost)},
  };
  return dump(root, 2) + "\n";
}

JobCause JobCause::of(const FailureReport& report) {
  const WorkerFailure& root = root_cause(report.failures);
  return {summary(root) + " on " + report.host, root_text(report, root),
          dump(to_object(root, report.host), -1), root.verdict.cls};
}

JobCause JobCause::lost_rendezvous(const std::string& sentence) {
  return {sentence, "", "", FailureClass::StoreLost};
}

JobCause JobCause::lost_agent(const std::string& sentence) {
  return {sentence, "", "", FailureClass::KilledExternally};
}

std::string JobCause::to_json() const {
  return dump(json{{"sentence", sentence}, {"text", text}, {"record", record}}, -1);
}

JobCause JobCause::from_json(const std::string& text, const std::string& sentence) {
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object()) return {sentence, "", "", FailureClass::NodeLost};
  const auto value = [&](const char* key) {
    const json::const_iterator entry = object.find(key);
    return entry != object.end() && entry->is_string() ? entry->get<std::string>() : std::string();
  };
  return {sentence, value("text"), value("record"), FailureClass::NodeLost};
}

}  // namespace cpprun::launcher
