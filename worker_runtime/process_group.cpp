#include "worker_runtime/process_group.hpp"

// Compiles c10d's Gloo class against the declarations in gloo_declarations/ (see README.md there).
#define USE_C10D_GLOO
#include <exception>
#include <string>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "worker_runtime/collectives.hpp"
#include "worker_runtime/contract/cpprun_progress.hpp"
#include "worker_runtime/cuda/cuda_plugin.hpp"
#include "worker_runtime/error_text.hpp"
#include "worker_runtime/log.hpp"

namespace cpprun::worker {
namespace {

// Python's name for the default group; its store keys and functional collectives use it.
const std::string kGroupName = "0";

c10::intrusive_ptr<c10d::Store> open_store(const WorkerEnv& env, std::chrono::milliseconds timeout) {
  if (env.world_size == 1) {
    return c10::make_intrusive<c10d::HashStore>();
  }
  c10d::TCPStoreOptions options;
  options.port = env.master_port;
  options.isServer = env.rank == 0 && !env.use_agent_store;
  options.numWorkers = static_cast<std::size_t>(env.world_size);
  options.timeout = timeout;
  options.multiTenant = true;
  return c10::make_intrusive<c10d::TCPStore>(env.master_addr, options);
}

c10::intrusive_ptr<c10d::PrefixStore> prefixed(const std::string& prefix,
                                               c10::intrusive_ptr<c10d::Store> store) {
  return c10::make_intrusive<c10d::PrefixStore>(prefix, std::move(store));
}

// The order of calls and the prefixes are those of Python's _new_process_group_helper.
c10::intrusive_ptr<c10d::ProcessGroup> join_group(const WorkerEnv& env, const WorkerDevice& device,
                                                  c10::intrusive_ptr<c10d::Store> store,
                                                  std::chrono::milliseconds timeout) {
  using Type = c10d::ProcessGroup::BackendType;
  const c10::intrusive_ptr<c10d::Store> group_store =
      prefixed(kGroupName + "/", prefixed("default_pg", std::move(store)));
  const c10::intrusive_ptr<c10d::ProcessGroup> group =
      c10::make_intrusive<c10d::ProcessGroup>(group_store, env.rank, env.world_size);
  if (device.cuda != nullptr) {
    group->setDefaultBackend(Type::NCCL);
    group->setBoundDeviceId(device.device);
    group->setBackend(c10::DeviceType::CUDA, Type::NCCL,
                      device.cuda->make_nccl_backend(prefixed("cuda/", group_store), env.rank, env.world_size,
                                                     device.device.index(), timeout));
  } else {
    group->setDefaultBackend(Type::GLOO);
    const c10::intrusive_ptr<c10d::Backend> gloo =
        c10::make_intrusive<c10d::ProcessGroupGloo>(prefixed("cpu/", group_store), env.rank, env.world_size,
                                                    c10d::ProcessGroupGloo::Options::create_default(timeout));
    group->setBackend(c10::DeviceType::CPU, Type::GLOO, gloo);
  }
  group->setGroupName(kGroupName);
  group->setGroupDesc("default_pg");
  return group;
}

}  // namespace

ProcessGroup::ProcessGroup(const WorkerEnv& env, const WorkerDevice& device,
                           std::chrono::milliseconds timeout)
    : rank_(env.rank), world_size_(env.world_size), device_(device), timeout_(timeout) {
  const progress::Section section("join the process group");
  try {
    store_ = open_store(env, timeout);
    group_ = join_group(env, device, store_, timeout);
    c10d::register_process_group(kGroupName, group_);
  } catch (const std::exception& error) {
    throw CollectiveError(
        "rank " + std::to_string(rank_) + " of " + std::to_string(world_size_) +
        " could not join the process group through the store at " + env.master_addr + ":" +
        std::to_string(env.master_port) + " within " + std::to_string(timeout.count()) +
        " ms (a rank that never started or died, or a wrong MASTER_ADDR or MASTER_PORT?): " +
        error_text(error));
  }
}

ProcessGroup::~ProcessGroup() {
  leave();
}

void ProcessGroup::close() {
  barrier(*this);
  leave();
}

void ProcessGroup::leave() noexcept {
  if (!group_) {
    return;
  }
  try {
    c10d::unregister_process_group(kGroupName);
    if (std::uncaught_exceptions() > 0) {
      // An unfinished collective would hold the destructor up until its limit, and the launcher waits for
      // this process's end to report the error: the connections close with the process instead.
      (void)group_.release();
      (void)store_.release();
      return;
    }
    group_->shutdown();
  } catch (const std::exception& error) {
    log_warning("leaving the process group: " + error_text(error));
  }
  group_.reset();
  store_.reset();
}

}  // namespace cpprun::worker
