#include "launcher/device_count.hpp"

#include <sched.h>

#include <algorithm>
#include <filesystem>

#include "launcher/text.hpp"

namespace cpprun::launcher {
namespace {

int count_installed_gpus() {
  std::error_code error;
  int gpus = 0;
  for (std::filesystem::directory_iterator entry("/proc/driver/nvidia/gpus", error), end;
       !error && entry != end; entry.increment(error)) {
    ++gpus;
  }
  return gpus;
}

// As CUDA reads it: the list ends at the first entry that names no device.
int count_visible(const std::string& visible, int installed) {
  int gpus = 0;
  for (const std::string& entry : split(visible, ',')) {
    const std::string name = trim(entry);
    if (const std::optional<int> index = whole_number(name)) {
      if (*index < 0 || *index >= installed) break;
    } else if (name.rfind("GPU-", 0) != 0 && name.rfind("MIG-", 0) != 0) {
      break;
    }
    ++gpus;
  }
  return gpus;
}

}  // namespace

int count_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

int count_gpus(const char* visible) {
  const int installed = count_installed_gpus();
  return visible && installed > 0 ? count_visible(visible, installed) : installed;
}

}  // namespace cpprun::launcher
