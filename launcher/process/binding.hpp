// --numa-binding: which CPUs each worker may run on. Pure.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace cpprun::launcher {

using CpuSet = std::set<int>;

// "0-3,8" as the kernel writes it, with or without a newline; nothing for any other text.
std::optional<CpuSet> parse_cpu_list(const std::string& text);
std::string to_text(const CpuSet& cpus);

// What the kernel says of this machine's CPUs. A CPU that a map lacks is a core, a socket 0, a cache of its
// own.
struct Topology {
  std::map<int, CpuSet> nodes;     // CPUs of each NUMA node; a node with memory alone has none
  std::map<int, int> package;      // socket of a CPU
  std::map<int, CpuSet> siblings;  // CPUs that are the same physical core, the CPU itself among them
  std::map<int, CpuSet> cache;     // CPUs that share its highest-level data cache, itself among them
};

enum class NumaBinding {
  Node,        // all CPUs of the NUMA node
  Socket,      // all CPUs of the nodes of the same socket
  Exclusive,   // whole physical cores of the node that no other worker gets
  CoreComplex  // CPUs of the node that share a cache
};
std::optional<NumaBinding> parse_numa_binding(const std::string& name);

struct BindingInput {
  NumaBinding mode = NumaBinding::Node;
  Topology topology;
  CpuSet allowed;                 // what this process itself may run on: nobody gets more
  std::vector<int> device_nodes;  // NUMA node of each GPU that a worker would see, -1 unknown; empty: no GPU
  int local_world_size = 1;
};

// The CPUs of each local rank. A worker's node is that of the GPU numbered as its local rank (counted round
// when there are fewer GPUs than workers); without GPUs the workers are spread over the nodes in blocks, as
// the physical cores that we may use are. Throws std::invalid_argument with a sentence when a worker would
// get none.
std::vector<CpuSet> decide_binding(const BindingInput& input);

}  // namespace cpprun::launcher
