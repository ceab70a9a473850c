#include "launcher/report/post_mortem.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "launcher/text.hpp"
#include "worker_runtime/contract/printable_text.hpp"

namespace cpprun::launcher {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kWidth = 100;
constexpr std::size_t kShownLines = 12;  // of each rank, or of ranks that said the same
constexpr std::size_t kMostGroups = 16;  // of ranks that differ
constexpr std::size_t kMostStackLines = 60;
constexpr std::size_t kRankIndent = 26;  // of what is said of ranks, behind who and how

// ---- building

std::string why(const FailureReport& report) {
  if (report.elsewhere) return "it ended the attempt for all nodes; this node's workers did not cause it";
  const WorkerFailure& root = root_cause(report.failures);
  int followers = 0;
  bool earlier = false;
  int others = 0;
  for (const WorkerFailure& failure : report.failures) {
    if (&failure == &root || failure.stopped_by_agent) continue;
    ++others;
    if (!may_follow_from_another(failure.verdict.cls)) continue;
    ++followers;
    earlier = earlier || failure.batch < root.batch;
  }
  if (may_follow_from_another(root.verdict.cls))
    return "no worker of this node had a cause of its own; this one was noticed first";
  if (others == 0) return "the only worker of this node that failed by itself";
  if (followers == 0) return "the first of those that failed by themselves";
  return std::string("it has a cause of its own, while others only say that somebody was missing") +
         (earlier ? ", though they were noticed earlier" : "");
}

// ---- reading

// Of a value that holds no others; the file may be anybody's.
std::string plain(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_null() || value.is_structured() ? std::string() : value.dump();
}

std::string text_at(const Json& object, const char* key) {
  if (!object.is_object()) return "";
  const Json::const_iterator value = object.find(key);
  return value == object.end() ? std::string() : plain(*value);
}

std::vector<std::string> lines_at(const Json& object, const char* key) {
  std::vector<std::string> lines;
  if (!object.is_object() || !object.contains(key) || !object[key].is_array()) return lines;
  for (const Json& line : object[key]) {
    if (line.is_string()) lines.push_back(line.get<std::string>());
  }
  return lines;
}

const Json& part(const Json& object, const char* key) {
  static const Json nothing;
  return object.is_object() && object.contains(key) ? object[key] : nothing;
}

std::string end_of(const Json& failure) {
  const std::string signal = text_at(failure, "signal");
  const std::string code = text_at(failure, "exit_code");
  return !signal.empty() ? signal : code.empty() ? "-" : "exit code " + code;
}

std::string rank_of(const Json& failure) {
  const std::string rank = text_at(failure, "global_rank");
  return rank.empty() ? "" : "rank " + rank;
}

// "0, 2-5": ranks in their order, runs joined.
std::string rank_list(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(ranks[i]);
    if (last > i) text += "-" + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

// ---- the page

class Page {
 public:
  void title(const std::string& text) { text_ += text + "\n" + std::string(kWidth, '=') + "\n"; }
  void heading(const std::string& text) {
    text_ += "\n" + text + "\n" + std::string(text.size(), '-') + "\n";
  }
  // Wrapped between words.
  void row(const std::string& name, const std::string& value) {
    if (value.empty()) return;
    wrapped(name + std::string(name.size() < kIndent ? kIndent - name.size() : 1, ' '), value, kIndent);
  }
  // Further lines begin `indent` blanks from the left.
  void wrapped(std::string line, const std::string& value, std::size_t indent) {
    std::size_t begin = line.size();
    for (const std::string& word : split(value, ' ')) {
      if (line.size() > begin && line.size() + word.size() > kWidth) {
        end_line(line);
        line = std::string(indent, ' ');
        begin = indent;
      }
      line += word + " ";
    }
    end_line(line);
  }
  void line(const std::string& text) { text_ += "  " + text + "\n"; }
  // The report may be anybody's: a terminal that shows it is not to act on it.
  std::string take() {
    std::string page;
    for (const std::string& line : split(text_, '\n')) page += worker::printable(line) + "\n";
    page.pop_back();
    return page;
  }

 private:
  static constexpr std::size_t kIndent = 13;
  void end_line(std::string& line) {
    line.erase(line.find_last_not_of(' ') + 1);
    text_ += line + "\n";
  }
  std::string text_;
};

void add_verdict(Page& page, const Json& root) {
  const std::string confidence =
      root.contains("confidence") && root["confidence"].is_number()
          ? " (" + std::to_string(std::lround(std::clamp(root["confidence"].get<double>(), 0.0, 1.0) * 100)) +
                " % sure)"
          : "";
  const std::vector<std::string> evidence = lines_at(root, "evidence");
  page.row("Verdict", text_at(root, "class") + confidence);
  for (std::size_t i = 0; i < evidence.size(); ++i) page.row(i == 0 ? "Evidence" : "", evidence[i]);
  page.row("Advice", text_at(root, "advice"));
}

void add_root(Page& page, const Json& report, const Json& root) {
  const std::string rank = rank_of(root);
  std::string who = rank.empty() ? "no worker"
                                 : rank + " (local rank " + text_at(root, "local_rank") + ", pid " +
                                       text_at(root, "pid") + " on " + text_at(root, "host") + ")";
  if (!rank.empty()) who += ": " + end_of(root) + ", " + text_at(root, "time");
  page.row("Root cause", who);
  page.row("Why this one", text_at(report, "why"));
  page.row("Message", text_at(root, "message"));
}

// Ranks by a text that they have in common, in the order of their lowest rank.
std::vector<std::pair<std::string, std::vector<int>>> grouped(
    const Json& failures, const std::function<std::string(const Json&)>& text_of) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  std::map<std::string, std::size_t> known;
  for (const Json& failure : failures) {
    if (!failure.is_object() || !part(failure, "global_rank").is_number_integer()) continue;
    const std::string text = text_of(failure);
    if (text.empty()) continue;
    const auto [place, is_new] = known.emplace(text, groups.size());
    if (is_new) groups.push_back({text, {}});
    groups[place->second].second.push_back(failure["global_rank"].get<int>());
  }
  return groups;
}

std::string row_of(const Json& failure) {
  const bool stopped =
      part(failure, "stopped_by_agent").is_boolean() && failure["stopped_by_agent"].get<bool>();
  if (stopped) return end_of(failure) + "\tstopped because of the root cause";
  const std::vector<std::string> evidence = lines_at(failure, "evidence");
  return end_of(failure) + "\t" + text_at(failure, "class") +
         (evidence.empty() ? "" : ": " + evidence.front());
}

void add_ranks(Page& page, const Json& failures) {
  page.heading("Ranks of this node that did not end well");
  std::size_t shown = 0;
  for (const auto& [text, ranks] : grouped(failures, row_of)) {
    if (++shown > kMostGroups) return page.line("... more, in failure.json");
    const std::size_t tab = text.find('\t');
    std::string who = rank_list(ranks) + "  ";
    if (who.size() < 10) who.resize(10, ' ');
    std::string how = text.substr(0, tab) + "  ";
    if (how.size() < 14) how.resize(14, ' ');
    page.wrapped(who.insert(0, "  ").append(how), text.substr(tab + 1), kRankIndent);
  }
}

void add_words(Page& page, const Json& failures) {
  const auto words = [](const Json& failure) {
    std::vector<std::string> lines = lines_at(failure, "stderr_tail");
    if (lines.size() > kShownLines) lines.erase(lines.begin(), lines.end() - kShownLines);
    std::string text;
    for (const std::string& line : lines) text += "    " + line + "\n";
    return text;
  };
  std::size_t shown = 0;
  for (const auto& [text, ranks] : grouped(failures, words)) {
    if (shown == 0) page.heading("Last lines on stderr");
    if (++shown > kMostGroups) return page.line("... more, in failure.json");
    page.line((ranks.size() == 1 ? "rank " : "ranks ") + rank_list(ranks) + ":\n" +
              text.substr(0, text.size() - 1));
  }
}

void add_progress(Page& page, const Json& failures) {
  const auto progress = [](const Json& failure) {
    // Older reports have the object alone.
    const Json& sentence = part(failure, "progress_text");
    if (sentence.is_string()) return sentence.get<std::string>();
    const Json& value = part(failure, "progress");
    if (!value.is_object()) return value.is_string() ? value.get<std::string>() : std::string();
    std::string text;
    for (const auto& [key, entry] : value.items()) {
      const std::string shown = plain(entry);
      if (!shown.empty()) text.append(text.empty() ? "" : ", ").append(key).append(" ").append(shown);
    }
    return text;
  };
  bool any = false;
  for (const auto& [text, ranks] : grouped(failures, progress)) {
    if (!any) page.heading("Progress");
    any = true;
    const std::string who = "  " + rank_list(ranks) + ": ";
    page.wrapped(who, text, who.size());
  }
}

void add_lost_nodes(Page& page, const Json& lost) {
  if (!lost.is_array()) return;
  for (const Json& node : lost) {
    page.heading("Last words of node " + text_at(node, "node") + " (" + text_at(node, "host") + "), " +
                 text_at(node, "time"));
    const Json& ranks = part(node, "ranks");
    if (!ranks.is_array() || ranks.empty()) page.line("none of its workers had opened its progress page");
    for (std::size_t i = 0; ranks.is_array() && i < ranks.size(); ++i) {
      if (i == kMostGroups) return page.line("... more, in failure.json");
      page.line(rank_of(ranks[i]) + ": " + text_at(ranks[i], "text"));
    }
  }
}

void add_stacks(Page& page, const Json& report) {
  const std::string stacks = text_at(report, "stacks");
  if (stacks.empty()) return;
  page.heading("Stacks");
  std::vector<std::string> lines = split(stacks, '\n');
  while (lines.back().empty() && lines.size() > 1) lines.pop_back();
  const bool cut = lines.size() > kMostStackLines;
  if (cut) lines.resize(kMostStackLines);
  for (const std::string& line : lines) page.line(line);
  if (cut) page.line("... more, in stacks.txt");
}

void add_differences(Page& page, const std::vector<std::string>& lines) {
  if (!lines.empty()) page.heading("Differences between nodes");
  for (const std::string& line : lines) page.line(line);
}

void add_node(Page& page, const Json& report) {
  const Json& node = part(report, "node");
  if (!node.is_object()) return;
  page.heading("This node");
  for (const char* key : {"versions", "limits"}) {
    std::string text;
    for (const auto& [name, value] : part(node, key).items()) {
      text += (text.empty() ? "" : ", ") + name + " " + plain(value);
    }
    page.row(key, text);
  }
  for (const auto& [name, value] : part(node, "environment").items()) {
    page.line(name + "=" + plain(value));
  }
}

Json parsed(const std::string& text) {
  Json report = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (report.is_discarded()) throw std::invalid_argument("it is no JSON: it was cut short or changed");
  if (!report.is_object() || !part(report, "root_cause").is_object()) {
    throw std::invalid_argument("it is no report of cpprun: it has no 'root_cause'");
  }
  return report;
}

}  // namespace

std::string post_mortem_json(const FailureReport& report, const NodeFacts& node, const std::string& stacks) {
  Json object = Json::parse(to_json(report));
  object["host"] = report.host;
  object["interpreter"] = report.interpreter;
  object["why"] = why(report);
  object["stacks"] = stacks;
  object["differences"] =
      report.first_node ? differences(node, *report.first_node) : std::vector<std::string>();
  object["node"] = Json::parse(to_json(node));
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string post_mortem_page(const std::string& json) {
  const Json report = parsed(json);
  const Json& root = report["root_cause"];
  const Json& failures = part(report, "failures");
  Page page;
  page.title(text_at(report, "name") + " failed: run " + text_at(report, "run_id") + ", attempt " +
             text_at(report, "attempt") +
             (report.contains("host") ? ", as seen by " + text_at(report, "host") : ""));
  add_verdict(page, root);
  add_root(page, report, root);
  if (failures.is_array() && !failures.empty()) {
    add_ranks(page, failures);
    add_progress(page, failures);
    add_stacks(page, report);
    add_words(page, failures);
  }
  add_lost_nodes(page, part(report, "lost_nodes"));
  add_differences(page, lines_at(report, "differences"));
  add_node(page, report);
  return page.take();
}

std::string time_of_failure(const std::string& json) {
  const Json report = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  return report.is_discarded() ? "" : text_at(part(report, "root_cause"), "time");
}

}  // namespace cpprun::launcher
