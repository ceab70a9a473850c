#include "launcher/process/topology.hpp"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>

#include "launcher/text.hpp"

namespace cpprun::launcher {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBits = sizeof(unsigned long) * CHAR_BIT;

// Empty where there is no such file.
std::string content(const fs::path& path) {
  std::ifstream file(path);
  return trim({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
}

// Numbers n of the entries "<prefix>n" of `folder`, in order.
std::vector<int> numbered(const fs::path& folder, const std::string& prefix) {
  std::vector<int> numbers;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.rfind(prefix, 0) != 0) continue;
    if (const std::optional<int> number = whole_number(name.substr(prefix.size())))
      numbers.push_back(*number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

// The CPUs that share the data cache of the highest level.
std::optional<CpuSet> widest_cache(const fs::path& cpu) {
  std::optional<CpuSet> widest;
  int highest = 0;
  for (const int index : numbered(cpu / "cache", "index")) {
    const fs::path cache = cpu / "cache" / ("index" + std::to_string(index));
    const std::string type = content(cache / "type");
    const int level = whole_number(content(cache / "level")).value_or(0);
    if ((type != "Unified" && type != "Data") || level <= highest) continue;
    const std::optional<CpuSet> shared = parse_cpu_list(content(cache / "shared_cpu_list"));
    if (!shared || shared->empty()) continue;
    highest = level;
    widest = shared;
  }
  return widest;
}

struct Gpu {
  std::string address;
  std::string uuid;  // "GPU-..."
};

std::vector<Gpu> installed_gpus(const fs::path& root) {
  std::vector<Gpu> gpus;
  std::error_code error;
  for (fs::directory_iterator entry(root / "proc/driver/nvidia/gpus", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string about = content(entry->path() / "information");
    const std::size_t begin = about.find("GPU-");
    const std::size_t length = begin == std::string::npos ? 0 : about.find_first_of(" \t\r\n", begin) - begin;
    gpus.push_back(
        {entry->path().filename().string(), begin == std::string::npos ? "" : about.substr(begin, length)});
  }
  std::sort(gpus.begin(), gpus.end(), [](const Gpu& a, const Gpu& b) { return a.address < b.address; });
  return gpus;
}

// As CUDA reads the list: it ends at the first entry that names no device; a UUID may be cut short.
std::vector<Gpu> visible_gpus(const std::vector<Gpu>& installed, const std::string& list) {
  std::vector<Gpu> gpus;
  for (const std::string& entry : split(list, ',')) {
    const std::string name = trim(entry);
    if (name.rfind("MIG-", 0) == 0) {
      throw std::invalid_argument("--numa-binding: CUDA_VISIBLE_DEVICES names '" + name +
                                  "', and the NUMA node of a MIG instance cannot be told");
    }
    if (name.rfind("GPU-", 0) == 0) {
      const std::vector<Gpu>::const_iterator found = std::find_if(
          installed.begin(), installed.end(), [&](const Gpu& gpu) { return gpu.uuid.rfind(name, 0) == 0; });
      if (found == installed.end()) break;
      gpus.push_back(*found);
      continue;
    }
    const std::optional<int> index = whole_number(name);
    if (!index || *index < 0 || *index >= static_cast<int>(installed.size())) break;
    gpus.push_back(installed[static_cast<std::size_t>(*index)]);
  }
  return gpus;
}

}  // namespace

Topology read_topology(const fs::path& root) {
  Topology topology;
  CpuSet all;
  const fs::path cpus = root / "sys/devices/system/cpu";
  for (const int number : numbered(cpus, "cpu")) {
    const fs::path cpu = cpus / ("cpu" + std::to_string(number));
    all.insert(number);
    const std::optional<int> package = whole_number(content(cpu / "topology/physical_package_id"));
    if (package) topology.package[number] = *package;
    const std::optional<CpuSet> siblings = parse_cpu_list(content(cpu / "topology/thread_siblings_list"));
    if (siblings) topology.siblings[number] = *siblings;
    const std::optional<CpuSet> cache = widest_cache(cpu);
    if (cache) topology.cache[number] = *cache;
  }
  const fs::path nodes = root / "sys/devices/system/node";
  for (const int node : numbered(nodes, "node")) {
    topology.nodes[node] =
        parse_cpu_list(content(nodes / ("node" + std::to_string(node)) / "cpulist")).value_or(CpuSet());
  }
  if (topology.nodes.empty()) topology.nodes[0] = all;
  return topology;
}

std::vector<int> read_gpu_nodes(const std::optional<std::string>& visible, const fs::path& root) {
  std::vector<Gpu> gpus = installed_gpus(root);
  if (visible && !gpus.empty()) gpus = visible_gpus(gpus, *visible);
  std::vector<int> nodes;
  for (const Gpu& gpu : gpus) {
    const fs::path file = root / "sys/bus/pci/devices" / gpu.address / "numa_node";
    nodes.push_back(whole_number(content(file)).value_or(-1));
  }
  return nodes;
}

CpuSet own_cpus() {
  // The C library's cpu_set_t ends at 1024 CPUs; the kernel says when the mask is too small for its own.
  std::vector<unsigned long> mask(1024 / kBits);
  long bytes = -1;
  while ((bytes = ::syscall(SYS_sched_getaffinity, 0, mask.size() * sizeof(unsigned long), mask.data())) <
         0) {
    if (errno != EINVAL || mask.size() > 4096) {
      throw std::system_error(errno, std::generic_category(), "cannot ask for our own CPUs");
    }
    mask.resize(mask.size() * 2);
  }
  CpuSet cpus;
  const std::size_t known = static_cast<std::size_t>(bytes) * CHAR_BIT;
  for (std::size_t cpu = 0; cpu < known; ++cpu) {
    if ((mask[cpu / kBits] >> (cpu % kBits) & 1UL) != 0) cpus.insert(cpus.end(), static_cast<int>(cpu));
  }
  return cpus;
}

std::vector<unsigned long> affinity_mask(const CpuSet& cpus) {
  std::vector<unsigned long> mask;
  if (!cpus.empty()) mask.resize(static_cast<std::size_t>(*cpus.rbegin()) / kBits + 1);
  for (const int cpu : cpus)
    mask[static_cast<std::size_t>(cpu) / kBits] |= 1UL << (static_cast<std::size_t>(cpu) % kBits);
  return mask;
}

}  // namespace cpprun::launcher
