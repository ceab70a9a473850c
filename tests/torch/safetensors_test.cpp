// safetensors files: round trips, Python's view of them, and files that are not what they say.
#include "worker_runtime/checkpoint/safetensors.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <fstream>
#include <random>

#include "tests/torch/worker_processes.hpp"
#include "worker_runtime/recorded_main.hpp"

namespace cpprun::worker::test {
namespace {

using testing::HasSubstr;

std::vector<NamedTensor> samples() {
  at::manual_seed(1);
  return {{"bool", at::randn({5}) > 0},
          {"u8", at::arange(7, at::kByte)},
          {"i8", at::arange(-3, 4, at::kChar)},
          {"f16", at::randn({3, 2}).to(at::kHalf)},
          {"bf16", at::randn({2, 3}).to(at::kBFloat16)},
          {"f32", at::randn({4, 5})},
          {"i32", at::arange(-3, 4, at::kInt)},
          {"f64", at::randn({2, 2}, at::kDouble)},
          {"i64", at::arange(-3, 4, at::kLong)},
          {"scalar", at::full({}, 7, at::kLong)},
          {"empty", at::randn({0, 3})},
          {"transposed", at::randn({3, 4}).t()},
          {"a strange \"name\"/ä", at::ones({1})}};
}

TEST(Safetensors, ReadsWhatItWrites) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "x.safetensors";
  const WrittenFile written = write_safetensors(path, samples());
  EXPECT_EQ(written.size, std::filesystem::file_size(path));
  EXPECT_EQ(written.crc32c, measure_file(path).crc32c);
  const std::vector<NamedTensor> read = read_safetensors(path);
  ASSERT_EQ(read.size(), samples().size());
  for (const NamedTensor& expected : samples()) {
    const auto found =
        std::find_if(read.begin(), read.end(), [&](const NamedTensor& n) { return n.name == expected.name; });
    ASSERT_NE(found, read.end()) << expected.name;
    EXPECT_EQ(found->tensor.scalar_type(), expected.tensor.scalar_type()) << expected.name;
    EXPECT_TRUE(at::equal(found->tensor, expected.tensor)) << expected.name;
  }
  EXPECT_THROW(write_safetensors(path, {{"short", at::ones({1}, at::kShort)}}), ConfigError);
  EXPECT_THROW(write_safetensors(path, {{"a", at::ones({1})}, {"a", at::ones({2})}}), ConfigError);
}

std::string refusal(const std::filesystem::path& path) {
  try {
    read_safetensors(path);
    return "(accepted)";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(Safetensors, RefusesEveryCutFile) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "x.safetensors";
  write_safetensors(path, {{"weight", at::ones({3, 4})}, {"bias", at::ones({3})}});
  for (std::uintmax_t length = std::filesystem::file_size(path); length-- > 0;) {
    std::filesystem::resize_file(path, length);
    ASSERT_THAT(refusal(path), HasSubstr(path.string() + " cannot be read as safetensors")) << length;
  }
}

TEST(Safetensors, NeverCrashesOnChangedBytes) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "x.safetensors";
  write_safetensors(path, {{"weight", at::ones({3, 4})}, {"flag", at::ones({3}, at::kBool)}});
  const std::string good = read_file(path, 100'000);
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 500; ++round) {
    std::string bytes = good;
    bytes[random() % bytes.size()] = static_cast<char>(random() % 256);
    std::ofstream(path, std::ios::binary) << bytes;
    refused += refusal(path) == "(accepted)" ? 0 : 1;
  }
  EXPECT_GT(refused, 100);
  std::string flag = good;
  flag.back() = '\2';
  std::ofstream(path, std::ios::binary) << flag;
  EXPECT_THAT(refusal(path), HasSubstr("neither 0 nor 1"));
}

TEST(Safetensors, IsWhatPythonReadsAndWrites) {
  const std::string python = python_with_torch();
  if (python.empty()) {
    GTEST_SKIP() << "no Python that can import torch (scripts/setup.sh --tests installs one)";
  }
  const TemporaryFolder folder;
  const std::filesystem::path ours = folder.path() / "ours.safetensors";
  const std::filesystem::path theirs = folder.path() / "theirs.safetensors";
  write_safetensors(ours, {{"f32", at::arange(6, at::kFloat).view({2, 3})},
                           {"bf16", at::arange(4, at::kFloat).to(at::kBFloat16)},
                           {"bool", at::arange(3, at::kLong) > 0},
                           {"i64", at::full({}, -5, at::kLong)},
                           {"u8", at::arange(3, at::kByte)}});
  EXPECT_EQ(output_of({python, (source_folder() / "safetensors_oracle.py").string(), ours.string(),
                       theirs.string()}),
            "f32 torch.float32 [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]\n"
            "bf16 torch.bfloat16 [0.0, 1.0, 2.0, 3.0]\n"
            "bool torch.bool [False, True, True]\n"
            "i64 torch.int64 -5\n"
            "u8 torch.uint8 [0, 1, 2]\n");
  const std::vector<NamedTensor> read = read_safetensors(theirs);
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].name, "x");
  EXPECT_TRUE(at::equal(read[0].tensor, at::arange(6, at::kDouble).view({3, 2})));
  EXPECT_TRUE(at::equal(read[1].tensor, at::full({}, 1.5, at::kHalf)));
}

struct Net : torch::nn::Module {
  Net() {
    fc = register_module("fc", torch::nn::Linear(2, 3));
    norm = register_module("norm", torch::nn::BatchNorm1d(3));
  }
  torch::nn::Linear fc{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

TEST(StateDict, HasParametersAndBuffersByName) {
  const Net net;
  std::vector<std::string> names;
  for (const NamedTensor& named : state_dict(net)) {
    names.push_back(named.name);
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre("fc.weight", "fc.bias", "norm.weight", "norm.bias",
                                                   "norm.running_mean", "norm.running_var",
                                                   "norm.num_batches_tracked"));
}

TEST(StateDict, LoadsBothBareAndWrappedNames) {
  Net from;
  for (const std::string prefix : {"", "module."}) {
    std::vector<NamedTensor> saved = state_dict(from);
    for (NamedTensor& named : saved) {
      named.name = prefix + named.name;
    }
    Net to;
    ASSERT_FALSE(at::equal(to.fc->weight, from.fc->weight));
    load_state_dict(to, saved, "the file");
    EXPECT_TRUE(at::equal(to.fc->weight, from.fc->weight)) << prefix;
    EXPECT_TRUE(to.fc->weight.requires_grad());
  }
}

TEST(StateDict, RefusesAnotherModel) {
  Net net;
  std::vector<NamedTensor> saved = state_dict(Net());
  saved[0].tensor = at::ones({3, 4});
  const at::Tensor before = net.fc->weight.clone();
  try {
    load_state_dict(net, saved, "the file");
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "the file is of another model: fc.weight has shape [3,4] there and [3,2] here");
  }
  EXPECT_TRUE(at::equal(net.fc->weight, before));
}

}  // namespace
}  // namespace cpprun::worker::test
