#include "worker_runtime/checkpoint/optimizer_state.hpp"

#include <ATen/ops/full.h>
#include <torch/nn/module.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <nlohmann/json.hpp>
#include <unordered_map>

#include "worker_runtime/recorded_main.hpp"

namespace cpprun::worker {
namespace {

using Json = nlohmann::json;
using torch::optim::Optimizer;
using torch::optim::OptimizerOptions;
using torch::optim::OptimizerParamState;

// The saved tensors of one parameter, by the part of the name behind the '/'.
class SavedTensors {
 public:
  SavedTensors(const std::unordered_map<std::string, at::Tensor>& all, std::string parameter,
               const at::Tensor& like)
      : all_(all), parameter_(std::move(parameter)), like_(like) {}

  bool has(const std::string& part) const { return all_.contains(parameter_ + "/" + part); }

  // A moment: the parameter's shape and dtype, moved to its device.
  at::Tensor moment(const std::string& part) const {
    const at::Tensor& tensor = get(part);
    if (tensor.sizes() != like_.sizes() || tensor.scalar_type() != like_.scalar_type()) {
      throw ConfigError("the optimizer's " + parameter_ + "/" + part +
                        " has another shape or dtype than the parameter");
    }
    return tensor.to(like_.device());
  }

  std::int64_t number(const std::string& part) const {
    const at::Tensor& tensor = get(part);
    if (tensor.numel() != 1 || tensor.scalar_type() != at::kLong) {
      throw ConfigError("the optimizer's " + parameter_ + "/" + part + " is no whole number");
    }
    return tensor.item<std::int64_t>();
  }

 private:
  const at::Tensor& get(const std::string& part) const {
    const auto found = all_.find(parameter_ + "/" + part);
    if (found == all_.end()) {
      throw ConfigError("the optimizer's " + parameter_ + "/" + part + " is missing");
    }
    return found->second;
  }

  const std::unordered_map<std::string, at::Tensor>& all_;
  std::string parameter_;
  const at::Tensor& like_;
};

// How one kind of optimizer is written and read.
struct Codec {
  std::string type;
  Json (*write_options)(const OptimizerOptions&);
  void (*read_options)(OptimizerOptions&, const Json&);
  void (*assign_options)(OptimizerOptions&, const OptimizerOptions&);
  std::vector<NamedTensor> (*write_state)(const OptimizerParamState&);
  std::unique_ptr<OptimizerParamState> (*read_state)(const SavedTensors&);  // null: the parameter had none
};

template <class Options>
void assign(OptimizerOptions& to, const OptimizerOptions& from) {
  static_cast<Options&>(to) = static_cast<const Options&>(from);
}

// Adam and AdamW differ in type only.
template <class Options, class State>
Codec adam_codec(std::string type) {
  return Codec{std::move(type),
               [](const OptimizerOptions& base) {
                 const Options& options = static_cast<const Options&>(base);
                 return Json{{"lr", options.lr()},
                             {"betas", {std::get<0>(options.betas()), std::get<1>(options.betas())}},
                             {"eps", options.eps()},
                             {"weight_decay", options.weight_decay()},
                             {"amsgrad", options.amsgrad()}};
               },
               [](OptimizerOptions& base, const Json& json) {
                 static_cast<Options&>(base)
                     .lr(json.at("lr").get<double>())
                     .betas({json.at("betas").at(0).get<double>(), json.at("betas").at(1).get<double>()})
                     .eps(json.at("eps").get<double>())
                     .weight_decay(json.at("weight_decay").get<double>())
                     .amsgrad(json.at("amsgrad").get<bool>());
               },
               &assign<Options>,
               [](const OptimizerParamState& base) {
                 const State& state = static_cast<const State&>(base);
                 std::vector<NamedTensor> tensors{{"step", at::full({}, state.step(), at::kLong)},
                                                  {"exp_avg", state.exp_avg()},
                                                  {"exp_avg_sq", state.exp_avg_sq()}};
                 if (state.max_exp_avg_sq().defined()) {
                   tensors.push_back({"max_exp_avg_sq", state.max_exp_avg_sq()});
                 }
                 return tensors;
               },
               [](const SavedTensors& saved) -> std::unique_ptr<OptimizerParamState> {
                 if (!saved.has("step")) {
                   return nullptr;
                 }
                 auto state = std::make_unique<State>();
                 state->step(saved.number("step"));
                 state->exp_avg(saved.moment("exp_avg"));
                 state->exp_avg_sq(saved.moment("exp_avg_sq"));
                 if (saved.has("max_exp_avg_sq")) {
                   state->max_exp_avg_sq(saved.moment("max_exp_avg_sq"));
                 }
                 return state;
               }};
}

Codec sgd_codec() {
  using torch::optim::SGDOptions;
  using torch::optim::SGDParamState;
  return Codec{"SGD",
               [](const OptimizerOptions& base) {
                 const SGDOptions& options = static_cast<const SGDOptions&>(base);
                 return Json{{"lr", options.lr()},
                             {"momentum", options.momentum()},
                             {"dampening", options.dampening()},
                             {"weight_decay", options.weight_decay()},
                             {"nesterov", options.nesterov()}};
               },
               [](OptimizerOptions& base, const Json& json) {
                 static_cast<SGDOptions&>(base)
                     .lr(json.at("lr").get<double>())
                     .momentum(json.at("momentum").get<double>())
                     .dampening(json.at("dampening").get<double>())
                     .weight_decay(json.at("weight_decay").get<double>())
                     .nesterov(json.at("nesterov").get<bool>());
               },
               &assign<SGDOptions>,
               [](const OptimizerParamState& base) {
                 const at::Tensor& buffer = static_cast<const SGDParamState&>(base).momentum_buffer();
                 return buffer.defined() ? std::vector<NamedTensor>{{"momentum_buffer", buffer}}
                                         : std::vector<NamedTensor>{};
               },
               [](const SavedTensors& saved) -> std::unique_ptr<OptimizerParamState> {
                 if (!saved.has("momentum_buffer")) {
                   return nullptr;
                 }
                 auto state = std::make_unique<SGDParamState>();
                 state->momentum_buffer(saved.moment("momentum_buffer"));
                 return state;
               }};
}

Codec codec_of(const Optimizer& optimizer) {
  if (dynamic_cast<const torch::optim::AdamW*>(&optimizer) != nullptr) {
    return adam_codec<torch::optim::AdamWOptions, torch::optim::AdamWParamState>("AdamW");
  }
  if (dynamic_cast<const torch::optim::Adam*>(&optimizer) != nullptr) {
    return adam_codec<torch::optim::AdamOptions, torch::optim::AdamParamState>("Adam");
  }
  if (dynamic_cast<const torch::optim::SGD*>(&optimizer) != nullptr) {
    return sgd_codec();
  }
  throw ConfigError("only Adam, AdamW and SGD can be kept in a checkpoint");
}

// The names of each group's parameters, in the group's order.
std::vector<std::vector<std::string>> group_names(const torch::nn::Module& model,
                                                  const Optimizer& optimizer) {
  std::unordered_map<const c10::TensorImpl*, std::string> name_of;
  for (const auto& item : model.named_parameters()) {
    name_of.emplace(item.value().unsafeGetTensorImpl(), item.key());
  }
  std::vector<std::vector<std::string>> groups;
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    groups.emplace_back();
    for (const at::Tensor& parameter : group.params()) {
      const auto found = name_of.find(parameter.unsafeGetTensorImpl());
      if (found == name_of.end()) {
        throw ConfigError("the optimizer has a parameter that is none of the model's");
      }
      groups.back().push_back(found->second);
    }
  }
  return groups;
}

void* key_of(const at::Tensor& parameter) {
  return parameter.unsafeGetTensorImpl();
}

}  // namespace

OptimizerState optimizer_state(const torch::nn::Module& model, const Optimizer& optimizer) {
  const Codec codec = codec_of(optimizer);
  const std::vector<std::vector<std::string>> names = group_names(model, optimizer);
  OptimizerState result;
  Json groups = Json::array();
  for (std::size_t index = 0; index < names.size(); ++index) {
    const torch::optim::OptimizerParamGroup& group = optimizer.param_groups()[index];
    Json json = {{"parameters", names[index]}};
    json.update(codec.write_options(group.options()));
    groups.push_back(std::move(json));
    for (std::size_t i = 0; i < names[index].size(); ++i) {
      const auto found = optimizer.state().find(key_of(group.params()[i]));
      if (found == optimizer.state().end()) {
        continue;  // the parameter took no step yet
      }
      for (const NamedTensor& part : codec.write_state(*found->second)) {
        result.tensors.push_back({names[index][i] + "/" + part.name, part.tensor});
      }
    }
  }
  result.options = Json{{"type", codec.type}, {"groups", groups}}.dump(1) + "\n";
  return result;
}

OptimizerRestore::OptimizerRestore(const torch::nn::Module& model, Optimizer& optimizer,
                                   const OptimizerState& saved)
    : optimizer_(optimizer) {
  const Codec codec = codec_of(optimizer);
  const std::vector<std::vector<std::string>> names = group_names(model, optimizer);
  std::unordered_map<std::string, at::Tensor> tensors;
  for (const NamedTensor& named : saved.tensors) {
    tensors.emplace(named.name, named.tensor);
  }
  try {
    const Json json = Json::parse(saved.options);
    if (json.at("type") != codec.type) {
      throw ConfigError("the optimizer is " + json.at("type").get<std::string>() + " there and " +
                        codec.type + " here");
    }
    const Json& groups = json.at("groups");
    if (groups.size() != names.size()) {
      throw ConfigError("the optimizer has " + std::to_string(groups.size()) +
                        " parameter groups there and " + std::to_string(names.size()) + " here");
    }
    for (std::size_t index = 0; index < names.size(); ++index) {
      if (groups[index].at("parameters").get<std::vector<std::string>>() != names[index]) {
        throw ConfigError("parameter group " + std::to_string(index) +
                          " of the optimizer has other parameters there");
      }
      const torch::optim::OptimizerParamGroup& group = optimizer.param_groups()[index];
      options_.push_back(group.options().clone());
      codec.read_options(*options_.back(), groups[index]);
      for (std::size_t i = 0; i < names[index].size(); ++i) {
        const at::Tensor& parameter = group.params()[i];
        states_.emplace_back(key_of(parameter),
                             codec.read_state(SavedTensors(tensors, names[index][i], parameter)));
      }
    }
  } catch (const Json::exception& error) {
    throw ConfigError(
        std::string("the optimizer's options are no JSON, lack a field or have one of another type: ") +
        error.what());
  }
}

OptimizerRestore::~OptimizerRestore() = default;

void OptimizerRestore::apply() {
  const Codec codec = codec_of(optimizer_);
  for (std::size_t index = 0; index < options_.size(); ++index) {
    // In place: a scheduler may hold on to the options.
    codec.assign_options(optimizer_.param_groups()[index].options(), *options_[index]);
  }
  for (auto& [key, state] : states_) {
    if (state) {
      optimizer_.state()[key] = std::move(state);
    } else {
      optimizer_.state().erase(key);
    }
  }
}

}  // namespace cpprun::worker
