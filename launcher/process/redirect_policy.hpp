// Where a worker's stdout and stderr go, by torchrun's --redirects and --tee. Pure.
#pragma once

#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace cpprun::launcher {

struct Streams {
  bool out = false;
  bool err = false;
};

// "0".."3" for all workers, or a map "<local rank>:<0-3>,..."; ranks that the map does not name get 0. Unlike
// torchrun's, a rank may have any number of digits. Throws std::invalid_argument with a sentence.
class StreamSelection {
 public:
  StreamSelection() = default;
  static StreamSelection parse(const std::string& text);
  Streams of(int local_rank) const;
  int highest_rank() const { return by_rank_.empty() ? -1 : by_rank_.rbegin()->first; }  // that the map names

 private:
  Streams all_;
  std::map<int, Streams> by_rank_;
};

// What happens to one stream of one worker.
struct StreamRoute {
  bool file = false;      // written to its log file
  bool console = false;   // shown on the agent's own stream
  bool prefixed = false;  // shown line by line, each with the prefix
  bool filtered = false;  // lines that the user's filters want go to the filtered log too
};
struct WorkerRoutes {
  StreamRoute out;
  StreamRoute err;
};

struct RedirectPolicy {
  StreamSelection redirects;
  StreamSelection tee;
  std::set<int> shown_ranks;  // local ranks shown on the console; empty: all
  std::vector<std::string>
      out_filters;  // lines of teed, shown streams that contain one go to the filtered log
  std::vector<std::string> err_filters;
  bool files = true;  // false (--log-dir /dev/null): nothing is redirected
};

WorkerRoutes routes_of(const RedirectPolicy& policy, int local_rank);

// Fills $name and ${name} of --log-line-prefix-template; unknown names stay. An empty template gives
// "[<role><local rank>]:".
struct PrefixValues {
  std::string role_name;
  int rank;
  int local_rank;
  std::string hostname;
};
std::string line_prefix(const std::string& prefix_template, const PrefixValues& values);

}  // namespace cpprun::launcher
