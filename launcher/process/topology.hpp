// What this machine tells of its CPUs and GPUs in /sys and /proc. `root` is the folder in which these two
// lie; it is another one in tests.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "launcher/process/binding.hpp"

namespace cpprun::launcher {

// A machine that tells of no NUMA nodes is one node, 0, with all its CPUs.
Topology read_topology(const std::filesystem::path& root = "/");

// The NUMA node of each NVIDIA GPU that a worker would see (-1 where unknown), in the order of its numbers:
// the driver's GPUs by PCI address, cut down and ordered by CUDA_VISIBLE_DEVICES (`visible`). Empty without
// the driver. Throws std::invalid_argument for an entry whose GPU cannot be told, such as a MIG instance.
std::vector<int> read_gpu_nodes(const std::optional<std::string>& visible,
                                const std::filesystem::path& root = "/");

// The CPUs that this process may run on. Throws std::system_error.
CpuSet own_cpus();

// As sched_setaffinity(2) takes it.
std::vector<unsigned long> affinity_mask(const CpuSet& cpus);

}  // namespace cpprun::launcher
