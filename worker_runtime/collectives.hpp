// The collectives that training and checkpoints need, each with a time limit and an error that names the
// operation, the rank and the limit. All ranks must make the same calls in the same order. After a
// CollectiveError the group is unusable (Gloo closes its connections): let the error end the process.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace cpprun::worker {

class ProcessGroup;

// A collective failed or ran into its limit, e.g. "all_reduce on rank 1 of 2 failed (limit 120 s): ...".
struct CollectiveError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class ReduceOp { Sum, Min, Max };

// Limits a call; the group's own timeout where not given.
using Limit = std::optional<std::chrono::milliseconds>;

// Replaces `tensor` on every rank by the element-wise reduction over all ranks. Same shape and dtype (f16,
// bf16, f32, f64, i32, i64, u8) on all ranks, on the group's device.
void all_reduce(const ProcessGroup& group, at::Tensor tensor, ReduceOp op = ReduceOp::Sum, Limit limit = {});

// The same for one number, e.g. a count of examples, or (Max) "does any rank want to stop?".
std::int64_t all_reduce(const ProcessGroup& group, std::int64_t value, ReduceOp op = ReduceOp::Sum,
                        Limit limit = {});

// Overwrites the tensors of all other ranks in place with those of `root`, in few messages of up to 250 MiB.
// Same shapes and dtypes everywhere, on the group's device. The limit is the group's timeout, as a broadcast
// of many tensors is several collectives.
void broadcast(const ProcessGroup& group, const std::vector<at::Tensor>& tensors, int root = 0);

// Gives every rank root's value; the argument of other ranks is ignored. Text: any bytes, at most 64 MiB.
std::int64_t broadcast(const ProcessGroup& group, std::int64_t value, int root = 0, Limit limit = {});
std::string broadcast(const ProcessGroup& group, const std::string& text, int root = 0, Limit limit = {});

// Every rank's text, by rank, on every rank.
std::vector<std::string> all_gather(const ProcessGroup& group, const std::string& text, Limit limit = {});

// Returns when all ranks have called it.
void barrier(const ProcessGroup& group, Limit limit = {});

}  // namespace cpprun::worker
