#include "launcher/process/visible_device.hpp"

#include <stdexcept>

#include "launcher/text.hpp"

namespace cpprun::launcher {
namespace {

constexpr const char* kCuda = "CUDA_VISIBLE_DEVICES";
constexpr const char* kHip = "HIP_VISIBLE_DEVICES";

[[noreturn]] void refuse(const char* name, const std::string& list, std::size_t devices, int workers) {
  throw std::invalid_argument(std::string(name) + "='" + list + "' names " + std::to_string(devices) +
                              (devices == 1 ? " device" : " devices") + ", too few to give each of " +
                              std::to_string(workers) + " workers one of its own");
}

}  // namespace

std::vector<worker::Variables> one_device_each(int local_world_size, const DeviceLists& lists) {
  const bool hip = lists.hip && !lists.hip->empty();
  const std::optional<std::string>& list = hip ? lists.hip : lists.cuda;
  std::vector<std::string> devices;
  if (list) devices = split(*list, ',');
  if (list && devices.size() < static_cast<std::size_t>(local_world_size)) {
    refuse(hip ? kHip : kCuda, *list, devices.size(), local_world_size);
  }
  std::vector<worker::Variables> variables;
  for (int local_rank = 0; local_rank < local_world_size; ++local_rank) {
    const std::string device =
        list ? trim(devices[static_cast<std::size_t>(local_rank)]) : std::to_string(local_rank);
    variables.push_back({{"LOCAL_RANK", "0"}, {kCuda, device}});
    if (hip) variables.back().emplace_back(kHip, device);
  }
  return variables;
}

}  // namespace cpprun::launcher
