#include "launcher/report/verdict_rules.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "launcher/process/exit_status.hpp"
#include "launcher/report/built_in_rules.hpp"
#include "launcher/text.hpp"

namespace cpprun::launcher {
namespace {

using nlohmann::json;

constexpr std::pair<Fact, const char*> kFacts[] = {
    {Fact::StoppedByAgent, "stopped_by_agent"},
    {Fact::Hang, "hang"},
    {Fact::ExecError, "exec_error"},
    {Fact::ErrorRecord, "error_record"},
    {Fact::OomKill, "oom_kill"},
    {Fact::MachineOomKill, "machine_oom_kill"},
    {Fact::DiskFull, "disk_full"},
    {Fact::SharedMemoryFull, "shared_memory_full"},
    {Fact::Signaled, "signaled"},
};

// Reads one rule; every refusal begins with where it is.
class RuleReader {
 public:
  RuleReader(const json& rule, std::string where) : rule_(rule), where_(std::move(where)) {}

  VerdictRule read() {
    if (!rule_.is_object()) refuse("it is no object");
    VerdictRule rule;
    rule.name = text(rule_, "name", true);
    where_ += " ('" + rule.name + "')";
    check_keys(rule_, {"name", "class", "when", "confidence", "evidence", "advice"}, "");
    const std::string cls = text(rule_, "class", true);
    const std::optional<FailureClass> known = class_called(cls);
    if (!known) refuse("'class' is '" + cls + "', which is no class of failures");
    rule.cls = *known;
    rule.when = condition();
    rule.evidence = text(rule_, "evidence", false);
    rule.advice = text(rule_, "advice", false);
    rule.confidence = confidence();
    return rule;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const { throw VerdictRuleError(where_ + ": " + why); }

  void check_keys(const json& object, const std::vector<std::string>& known, const std::string& of) const {
    for (const auto& [key, value] : object.items()) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      std::string named = of;
      named += key;
      refuse("'" + named + "' is no key of a rule" + did_you_mean(key, known));
    }
  }

  std::string text(const json& object, const char* key, bool needed) const {
    const json::const_iterator value = object.find(key);
    if (value == object.end()) {
      if (needed) refuse(std::string("the key '") + key + "' is missing");
      return "";
    }
    if (!value->is_string()) refuse(std::string("'") + key + "' is no text");
    return value->get<std::string>();
  }

  double confidence() const {
    const json::const_iterator value = rule_.find("confidence");
    if (value == rule_.end()) return 0.9;
    const double number = value->is_number() ? value->get<double>() : -1;
    if (number < 0 || number > 1) refuse("'confidence' is no number from 0 to 1");
    return number;
  }

  RuleCondition condition() const {
    RuleCondition when;
    const json::const_iterator found = rule_.find("when");
    if (found == rule_.end()) refuse("the key 'when' is missing ({} fits everything)");
    if (!found->is_object()) refuse("'when' is no object");
    check_keys(*found, {"exit_code", "signal", "exec_error", "fact", "text", "stderr", "kernel"}, "when.");
    for (const json& code : list(*found, "exit_code")) {
      if (!code.is_number_integer()) refuse("'when.exit_code' holds something that is no whole number");
      when.exit_codes.push_back(code.get<int>());
    }
    for (const std::string& name : texts(*found, "signal")) {
      when.signals.push_back(signal_number(name));
      if (when.signals.back() == 0) refuse("'when.signal' names '" + name + "', which is no signal");
    }
    for (const std::string& name : texts(*found, "fact")) when.facts.push_back(fact(name));
    when.exec_errors = texts(*found, "exec_error");
    when.words = texts(*found, "text");
    when.stderr_lines = texts(*found, "stderr");
    when.kernel_lines = texts(*found, "kernel");
    return when;
  }

  Fact fact(const std::string& name) const {
    std::vector<std::string> names;
    for (const auto& [known, called] : kFacts) {
      if (name == called) return known;
      names.emplace_back(called);
    }
    refuse("'when.fact' names '" + name + "', which is no fact" + did_you_mean(name, names));
  }

  // A value by itself is a list of one.
  json list(const json& object, const char* key) const {
    const json::const_iterator value = object.find(key);
    if (value == object.end()) return json::array();
    if (!value->is_array()) return json::array({*value});
    if (value->empty()) refuse(std::string("'when.") + key + "' is an empty list");
    return *value;
  }

  std::vector<std::string> texts(const json& object, const char* key) const {
    std::vector<std::string> result;
    for (const json& value : list(object, key)) {
      if (!value.is_string() || value.get<std::string>().empty()) {
        refuse(std::string("'when.") + key + "' holds something that is no text");
      }
      result.push_back(value.get<std::string>());
    }
    return result;
  }

  const json& rule_;
  std::string where_;
};

}  // namespace

VerdictRules VerdictRules::parse(const std::string& text, const std::string& file) {
  const json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded()) throw VerdictRuleError(file + " is no JSON");
  if (!root.is_object() || !root.contains("rules") || !root["rules"].is_array()) {
    throw VerdictRuleError(file + " holds no object with a list 'rules'");
  }
  VerdictRules result;
  std::size_t number = 0;
  for (const json& rule : root["rules"]) {
    result.rules_.push_back(RuleReader(rule, file + ", rule " + std::to_string(++number)).read());
  }
  return result;
}

const VerdictRules& VerdictRules::built_in() {
  static const VerdictRules rules = parse(kBuiltInRules, "the built-in table");
  return rules;
}

VerdictRules VerdictRules::before(const VerdictRules& others) const {
  VerdictRules all = *this;
  all.rules_.insert(all.rules_.end(), others.rules_.begin(), others.rules_.end());
  return all;
}

bool occurs(const std::string& glob, const std::string& line) {
  const std::string_view pieces(glob);
  const std::string_view text(line);
  std::size_t from = 0;
  for (std::size_t begin = 0; begin <= pieces.size();) {
    const std::size_t end = std::min(pieces.find('*', begin), pieces.size());
    const std::string_view piece = pieces.substr(begin, end - begin);
    const std::size_t found = text.find(piece, from);
    if (found == std::string_view::npos) return false;
    from = found + piece.size();
    begin = end + 1;
  }
  return true;
}

}  // namespace cpprun::launcher
