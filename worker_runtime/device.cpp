#include "worker_runtime/device.hpp"

#include <dlfcn.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "worker_runtime/cuda/cuda_plugin.hpp"
#include "worker_runtime/log.hpp"
#include "worker_runtime/recorded_main.hpp"

namespace cpprun::worker {
namespace {

namespace fs = std::filesystem;

int count_gpus() {
  std::error_code error;
  int count = 0;
  for (fs::directory_iterator entry("/proc/driver/nvidia/gpus", error), end; !error && entry != end;
       entry.increment(error)) {
    ++count;
  }
  if (count > 0) {
    return count;
  }
  // Some containers show the device files only.
  while (fs::exists("/dev/nvidia" + std::to_string(count), error)) {
    ++count;
  }
  return count;
}

GpuSurroundings read_surroundings() {
  const char* use_cpu = std::getenv("USE_CPU");
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  GpuSurroundings surroundings;
  surroundings.use_cpu = use_cpu != nullptr && std::string_view(use_cpu) == "1";
  if (visible != nullptr) {
    surroundings.cuda_visible_devices = visible;
  }
  surroundings.gpus = count_gpus();
  return surroundings;
}

// CUDA's own rule: the list ends at its first entry that is no device.
int count_visible(const std::string& list, int gpus) {
  int count = 0;
  for (std::size_t begin = 0; begin <= list.size() && count < gpus;) {
    const std::size_t comma = std::min(list.find(',', begin), list.size());
    const std::string_view entry = std::string_view(list).substr(begin, comma - begin);
    int number = 0;
    const std::from_chars_result parsed = std::from_chars(entry.data(), entry.data() + entry.size(), number);
    const bool is_number = parsed.ec == std::errc{} && parsed.ptr == entry.data() + entry.size();
    const bool is_name = entry.starts_with("GPU-") || entry.starts_with("MIG-");
    if (!is_name && !(is_number && number >= 0 && number < gpus)) {
      break;
    }
    ++count;
    begin = comma + 1;
  }
  return count;
}

// The module lies in lib/ beside the program's bin/, built and installed alike.
fs::path find_plugin() {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& candidate : {folder / kCudaPluginFile, folder / "../lib" / kCudaPluginFile,
                                    folder / "../lib/cpprun" / kCudaPluginFile}) {
    if (fs::exists(candidate, error)) {
      return candidate;
    }
  }
  return {};
}

CudaPlugin* open_plugin(const fs::path& path) {
  // Global, so that LibTorch finds what torch_cuda registers; never closed, as its objects live on.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  void* symbol = library == nullptr ? nullptr : dlsym(library, kCudaPluginSymbol);
  if (symbol == nullptr) {
    throw ConfigError("the CUDA module " + path.string() + " does not open (" + dlerror() +
                      "): run scripts/setup.sh and build again, or set USE_CPU=1 to train on the CPU");
  }
  return reinterpret_cast<CudaPluginFunction>(symbol)();
}

}  // namespace

void WorkerDevice::synchronize() const {
  if (cuda != nullptr) {
    cuda->synchronize(device.index());
  }
}

std::optional<int> decide_cuda_index(const GpuSurroundings& surroundings, int local_rank) {
  if (surroundings.use_cpu || surroundings.gpus == 0) {
    return std::nullopt;
  }
  const std::optional<std::string>& list = surroundings.cuda_visible_devices;
  const int visible = list ? count_visible(*list, surroundings.gpus) : surroundings.gpus;
  if (visible == 0) {
    return std::nullopt;
  }
  if (local_rank >= visible) {
    throw ConfigError("local rank " + std::to_string(local_rank) +
                      " has no GPU of its own, as this machine shows " + std::to_string(visible) +
                      (list ? " (CUDA_VISIBLE_DEVICES=" + *list + ")" : "") +
                      ": start at most that many workers a machine, or set USE_CPU=1");
  }
  return local_rank;
}

WorkerDevice choose_device(const WorkerEnv& env) {
  const std::optional<int> index = decide_cuda_index(read_surroundings(), env.local_rank);
  if (!index) {
    return {};
  }
  const fs::path path = find_plugin();
  if (path.empty()) {
    log_warning("this machine has a GPU, but this build has no CUDA module (" + std::string(kCudaPluginFile) +
                "): training on the CPU");
    return {};
  }
  CudaPlugin* cuda = open_plugin(path);
  const int usable = cuda->device_count();
  if (usable == 0) {
    log_warning("CUDA finds no GPU that it can use (is the driver new enough?): training on the CPU");
    return {};
  }
  if (*index >= usable) {
    throw ConfigError("local rank " + std::to_string(env.local_rank) +
                      " has no GPU of its own, as CUDA can use " + std::to_string(usable) +
                      ": start at most that many workers a machine, or set USE_CPU=1");
  }
  cuda->set_device(*index);
  return WorkerDevice{c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(*index)), cuda};
}

}  // namespace cpprun::worker
