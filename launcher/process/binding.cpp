#include "launcher/process/binding.hpp"

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "launcher/text.hpp"

namespace cpprun::launcher {
namespace {

constexpr int kMostCpus = 65'536;

CpuSet common(const CpuSet& a, const CpuSet& b) {
  CpuSet result;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::inserter(result, result.end()));
  return result;
}

std::string plural(std::size_t count, const std::string& thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

CpuSet cpus_of_node(const BindingInput& input, int node) {
  const std::map<int, CpuSet>::const_iterator found = input.topology.nodes.find(node);
  return found == input.topology.nodes.end() ? CpuSet() : common(found->second, input.allowed);
}

// `cpus` in the groups that `group_of` names, each by its lowest CPU in order.
std::vector<CpuSet> groups(const CpuSet& cpus, const std::map<int, CpuSet>& group_of) {
  std::vector<CpuSet> result;
  CpuSet left = cpus;
  while (!left.empty()) {
    const int first = *left.begin();
    const std::map<int, CpuSet>::const_iterator found = group_of.find(first);
    CpuSet group = found == group_of.end() ? CpuSet() : common(found->second, left);
    group.insert(first);
    for (const int cpu : group) left.erase(cpu);
    result.push_back(std::move(group));
  }
  return result;
}

int package_of(const Topology& topology, const CpuSet& cpus) {
  const std::map<int, int>::const_iterator found = topology.package.find(*cpus.begin());
  return found == topology.package.end() ? 0 : found->second;
}

// Each physical core that we may use, by the node that it belongs to: the place of a worker without a GPU.
std::vector<int> nodes_of_cores(const BindingInput& input) {
  std::vector<int> nodes;
  for (const auto& [node, all] : input.topology.nodes) {
    const std::size_t cores = groups(common(all, input.allowed), input.topology.siblings).size();
    nodes.insert(nodes.end(), cores, node);
  }
  if (nodes.empty())
    throw std::invalid_argument("--numa-binding: no NUMA node has a CPU that cpprun may use");
  return nodes;
}

// The NUMA node of every seat. A seat is a worker's place, or a GPU's that has no worker: it keeps its share.
std::vector<int> seat_nodes(const BindingInput& input) {
  const std::size_t workers = static_cast<std::size_t>(input.local_world_size);
  std::vector<int> seats;
  if (!input.device_nodes.empty()) {
    const std::size_t devices = input.device_nodes.size();
    for (std::size_t seat = 0; seat < std::max(workers, devices); ++seat) {
      seats.push_back(std::max(0, input.device_nodes[seat % devices]));
    }
    return seats;
  }
  const std::vector<int> cores = nodes_of_cores(input);
  for (std::size_t rank = 0; rank < workers; ++rank) {
    seats.push_back(cores[(2 * rank + 1) * cores.size() / (2 * workers)]);
  }
  return seats;
}

CpuSet whole_socket(const BindingInput& input, const CpuSet& of_node) {
  const int package = package_of(input.topology, of_node);
  CpuSet result;
  for (const auto& [node, all] : input.topology.nodes) {
    const CpuSet cpus = common(all, input.allowed);
    if (!cpus.empty() && package_of(input.topology, cpus) == package) result.insert(cpus.begin(), cpus.end());
  }
  return result;
}

// The share of the seat that is `index` of `count` on its node.
CpuSet own_cores(const BindingInput& input, const CpuSet& of_node, int node, std::size_t index,
                 std::size_t count) {
  const std::vector<CpuSet> cores = groups(of_node, input.topology.siblings);
  if (cores.size() < count) {
    throw std::invalid_argument("--numa-binding exclusive: NUMA node " + std::to_string(node) + " has " +
                                plural(cores.size(), "physical core") + " that cpprun may use, too few for " +
                                plural(count, input.device_nodes.empty() ? "worker" : "GPU or worker") +
                                " there; take fewer workers or --numa-binding node");
  }
  const std::size_t share = cores.size() / count;
  const std::size_t larger = cores.size() % count;  // the first seats get one more
  const std::size_t begin = index * share + std::min(index, larger);
  const std::size_t end = begin + share + (index < larger ? 1 : 0);
  CpuSet result;
  for (std::size_t core = begin; core < end; ++core) result.insert(cores[core].begin(), cores[core].end());
  return result;
}

CpuSet core_complex(const BindingInput& input, const CpuSet& of_node, std::size_t index) {
  std::vector<CpuSet> complexes = groups(of_node, input.topology.cache);
  std::stable_sort(complexes.begin(), complexes.end(),
                   [](const CpuSet& a, const CpuSet& b) { return a.size() > b.size(); });
  return complexes[index % complexes.size()];
}

}  // namespace

std::optional<CpuSet> parse_cpu_list(const std::string& text) {
  CpuSet cpus;
  const std::string list = trim(text);
  if (list.empty()) return cpus;
  for (const std::string& range : split(list, ',')) {
    const std::vector<std::string> ends = split(range, '-');
    const std::optional<int> first = whole_number(ends.front());
    const std::optional<int> last = whole_number(ends.back());
    if (ends.size() > 2 || !first || !last || *first < 0 || *last < *first || *last >= kMostCpus) {
      return std::nullopt;
    }
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.insert(cpus.end(), cpu);
  }
  return cpus;
}

std::string to_text(const CpuSet& cpus) {
  std::string text;
  for (CpuSet::const_iterator at = cpus.begin(); at != cpus.end();) {
    const int first = *at;
    int last = first;
    while (++at != cpus.end() && *at == last + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(first);
    if (last > first) text += "-" + std::to_string(last);
  }
  return text;
}

std::optional<NumaBinding> parse_numa_binding(const std::string& name) {
  if (name == "node") return NumaBinding::Node;
  if (name == "socket") return NumaBinding::Socket;
  if (name == "exclusive") return NumaBinding::Exclusive;
  if (name == "core-complex") return NumaBinding::CoreComplex;
  return std::nullopt;
}

std::vector<CpuSet> decide_binding(const BindingInput& input) {
  const std::vector<int> seats = seat_nodes(input);
  std::vector<CpuSet> result;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(input.local_world_size); ++rank) {
    const int node = seats[rank];
    const CpuSet of_node = cpus_of_node(input, node);
    if (of_node.empty()) {
      throw std::invalid_argument("--numa-binding: local rank " + std::to_string(rank) +
                                  " belongs to NUMA node " + std::to_string(node) +
                                  ", of which cpprun may use no CPU (its own are " + to_text(input.allowed) +
                                  ")");
    }
    const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(rank);
    const std::size_t index = static_cast<std::size_t>(std::count(seats.begin(), seats.begin() + at, node));
    const std::size_t count = static_cast<std::size_t>(std::count(seats.begin(), seats.end(), node));
    switch (input.mode) {
      case NumaBinding::Node:
        result.push_back(of_node);
        break;
      case NumaBinding::Socket:
        result.push_back(whole_socket(input, of_node));
        break;
      case NumaBinding::Exclusive:
        result.push_back(own_cores(input, of_node, node, index, count));
        break;
      case NumaBinding::CoreComplex:
        result.push_back(core_complex(input, of_node, index));
        break;
    }
  }
  return result;
}

}  // namespace cpprun::launcher
