#include "launcher/process/redirect_policy.hpp"

#include "launcher/text.hpp"

namespace cpprun::launcher {
namespace {

[[noreturn]] void refuse(const std::string& text) {
  throw std::invalid_argument(
      "'" + text +
      "' is neither 0 (none), 1 (stdout), 2 (stderr), 3 (both) nor a map of local ranks to "
      "these, such as 0:3,1:2");
}

Streams parse_streams(const std::string& digit, const std::string& whole) {
  if (digit.size() != 1 || digit[0] < '0' || digit[0] > '3') refuse(whole);
  const int bits = digit[0] - '0';
  return {(bits & 1) != 0, (bits & 2) != 0};
}

StreamRoute route(bool redirect, bool tee, bool shown, bool files, bool filters) {
  StreamRoute result;
  result.file = files && (redirect || tee);
  result.prefixed = files && tee;
  result.console = shown && (result.prefixed || !result.file);
  result.filtered = result.prefixed && shown && filters;
  return result;
}

}  // namespace

StreamSelection StreamSelection::parse(const std::string& text) {
  StreamSelection selection;
  if (text.find(':') == std::string::npos) {
    selection.all_ = parse_streams(text, text);
    return selection;
  }
  for (const std::string& entry : split(text, ',')) {
    const std::size_t colon = entry.find(':');
    if (colon == std::string::npos) refuse(text);
    const std::optional<int> rank = whole_number(entry.substr(0, colon));
    if (!rank || *rank < 0) refuse(text);
    selection.by_rank_[*rank] = parse_streams(entry.substr(colon + 1), text);
  }
  return selection;
}

Streams StreamSelection::of(int local_rank) const {
  const auto found = by_rank_.find(local_rank);
  return found == by_rank_.end() ? all_ : found->second;
}

WorkerRoutes routes_of(const RedirectPolicy& policy, int local_rank) {
  const Streams redirects = policy.redirects.of(local_rank);
  const Streams tee = policy.tee.of(local_rank);
  const bool shown = policy.shown_ranks.empty() || policy.shown_ranks.count(local_rank) != 0;
  return {route(redirects.out, tee.out, shown, policy.files, !policy.out_filters.empty()),
          route(redirects.err, tee.err, shown, policy.files, !policy.err_filters.empty())};
}

std::string line_prefix(const std::string& prefix_template, const PrefixValues& values) {
  if (prefix_template.empty()) return "[" + values.role_name + std::to_string(values.local_rank) + "]:";
  return substitute(prefix_template, {{"role_name", values.role_name},
                                      {"rank", std::to_string(values.rank)},
                                      {"local_rank", std::to_string(values.local_rank)},
                                      {"hostname", values.hostname}});
}

}  // namespace cpprun::launcher
