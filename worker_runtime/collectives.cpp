#include "worker_runtime/collectives.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "worker_runtime/contract/cpprun_progress.hpp"
#include "worker_runtime/error_text.hpp"
#include "worker_runtime/process_group.hpp"

namespace cpprun::worker {
namespace {

constexpr std::int64_t kMaxText = std::int64_t{64} << 20;         // bytes
constexpr std::size_t kBroadcastBuffer = std::size_t{250} << 20;  // bytes; Python's DDP uses the same

std::string describe(std::chrono::milliseconds limit) {
  return limit.count() % 1000 == 0 ? std::to_string(limit.count() / 1000) + " s"
                                   : std::to_string(limit.count()) + " ms";
}

// Every rank calls the same collectives in the same order, so that their numbers can be compared.
void announce_collective() {
  static std::atomic<std::int64_t> begun = 0;
  progress::collective(begun++);
}

// Runs one collective under its limit and gives its errors the operation's name, rank and limit.
template <class Call>
void run(const ProcessGroup& group, const char* operation, Limit limit, Call&& call) {
  const std::chrono::milliseconds timeout = limit.value_or(group.timeout());
  announce_collective();
  try {
    call(timeout);
  } catch (const std::exception& error) {
    throw CollectiveError(std::string(operation) + " on rank " + std::to_string(group.rank()) + " of " +
                          std::to_string(group.world_size()) + " failed (limit " + describe(timeout) +
                          "): " + error_text(error));
  }
}

c10d::ReduceOp::RedOpType to_c10d(ReduceOp op) {
  switch (op) {
    case ReduceOp::Min:
      return c10d::ReduceOp::MIN;
    case ReduceOp::Max:
      return c10d::ReduceOp::MAX;
    case ReduceOp::Sum:
      break;
  }
  return c10d::ReduceOp::SUM;
}

void all_reduce_tensor(const ProcessGroup& group, const at::Tensor& tensor, ReduceOp op,
                       std::chrono::milliseconds timeout) {
  std::vector<at::Tensor> tensors{tensor};
  c10d::AllreduceOptions options;
  options.reduceOp = to_c10d(op);
  options.timeout = timeout;
  group.c10d_group()->allreduce(tensors, options)->wait();
}

void broadcast_tensor(const ProcessGroup& group, const at::Tensor& tensor, int root,
                      std::chrono::milliseconds timeout) {
  std::vector<at::Tensor> tensors{tensor};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  options.timeout = timeout;
  group.c10d_group()->broadcast(tensors, options)->wait();
}

at::Tensor gather_rows(const ProcessGroup& group, at::Tensor row, std::chrono::milliseconds timeout) {
  at::Tensor rows = at::empty({group.world_size() * row.numel()}, row.options());
  c10d::AllgatherOptions options;
  options.timeout = timeout;
  group.c10d_group()->all_gather_single(rows, row, options)->wait();
  return rows.cpu();
}

at::Tensor number_tensor(const ProcessGroup& group, std::int64_t value) {
  return at::full({1}, value, at::kLong).to(group.device().device);
}

// `text`, followed by zeros up to `size` bytes, on the group's device.
at::Tensor text_tensor(const ProcessGroup& group, const std::string& text, std::int64_t size) {
  at::Tensor bytes = at::zeros({size}, at::kByte);
  std::memcpy(bytes.data_ptr(), text.data(), std::min(text.size(), static_cast<std::size_t>(size)));
  return bytes.to(group.device().device);
}

void check_size(std::int64_t size) {
  if (size < 0 || size > kMaxText) {
    throw std::length_error("a text of " + std::to_string(size) + " bytes is over the limit of 64 MiB");
  }
}

}  // namespace

void all_reduce(const ProcessGroup& group, at::Tensor tensor, ReduceOp op, Limit limit) {
  run(group, "all_reduce", limit,
      [&](std::chrono::milliseconds timeout) { all_reduce_tensor(group, tensor, op, timeout); });
}

std::int64_t all_reduce(const ProcessGroup& group, std::int64_t value, ReduceOp op, Limit limit) {
  const at::Tensor tensor = number_tensor(group, value);
  all_reduce(group, tensor, op, limit);
  return tensor.item<std::int64_t>();
}

void broadcast(const ProcessGroup& group, const std::vector<at::Tensor>& tensors, int root) {
  if (tensors.empty()) {
    return;
  }
  run(group, "broadcast", {}, [&](std::chrono::milliseconds) {
    c10d::broadcast_coalesced(group.c10d_group(), tensors, kBroadcastBuffer, root);
  });
}

std::int64_t broadcast(const ProcessGroup& group, std::int64_t value, int root, Limit limit) {
  const at::Tensor tensor = number_tensor(group, value);
  run(group, "broadcast", limit,
      [&](std::chrono::milliseconds timeout) { broadcast_tensor(group, tensor, root, timeout); });
  return tensor.item<std::int64_t>();
}

std::string broadcast(const ProcessGroup& group, const std::string& text, int root, Limit limit) {
  const std::int64_t size = broadcast(group, static_cast<std::int64_t>(text.size()), root, limit);
  std::string result;
  run(group, "broadcast", limit, [&](std::chrono::milliseconds timeout) {
    check_size(size);
    if (size == 0) {
      return;
    }
    at::Tensor bytes = text_tensor(group, text, size);
    broadcast_tensor(group, bytes, root, timeout);
    bytes = bytes.cpu();
    result.assign(static_cast<const char*>(bytes.data_ptr()), static_cast<std::size_t>(size));
  });
  return result;
}

std::vector<std::string> all_gather(const ProcessGroup& group, const std::string& text, Limit limit) {
  std::vector<std::string> texts(static_cast<std::size_t>(group.world_size()));
  run(group, "all_gather", limit, [&](std::chrono::milliseconds timeout) {
    const std::int64_t size = static_cast<std::int64_t>(text.size());
    const at::Tensor sizes = gather_rows(group, number_tensor(group, size), timeout);
    const std::int64_t* size_of = sizes.const_data_ptr<std::int64_t>();
    const std::int64_t width = *std::max_element(size_of, size_of + group.world_size());
    check_size(width);
    if (width == 0) {
      return;
    }
    const at::Tensor rows = gather_rows(group, text_tensor(group, text, width), timeout);
    const char* bytes = static_cast<const char*>(rows.const_data_ptr());
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
      check_size(size_of[rank]);
      texts[rank].assign(bytes + static_cast<std::int64_t>(rank) * width,
                         static_cast<std::size_t>(size_of[rank]));
    }
  });
  return texts;
}

void barrier(const ProcessGroup& group, Limit limit) {
  run(group, "barrier", limit, [&](std::chrono::milliseconds timeout) {
    c10d::BarrierOptions options;
    options.timeout = timeout;
    options.device = group.device().device;
    group.c10d_group()->barrier(options)->wait();
  });
}

}  // namespace cpprun::worker
