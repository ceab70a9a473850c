#include "trainer/train_config.hpp"

#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "trainer/config_section.hpp"
#include "worker_runtime/recorded_main.hpp"

namespace cpprun::trainer {

using nlohmann::ordered_json;

namespace {

constexpr std::array<std::string_view, 2> kModels{"mlp", "cnn"};
constexpr std::array<std::string_view, 2> kData{"synthetic", "idx"};
constexpr std::array<std::string_view, 3> kOptimizers{"adamw", "adam", "sgd"};
constexpr std::array<std::string_view, 4> kSchedules{"constant", "linear_warmup", "cosine", "one_cycle"};
constexpr std::array<std::string_view, 2> kResume{"auto", "never"};

}  // namespace

// The lists of keys, found by SectionReader and SectionWriter through argument-dependent look-up.
template <class F>
void fields(F& f, MlpConfig& c) {
  f.integers("hidden", c.hidden, kAtLeastOne);
  f.number("dropout", c.dropout, kZeroToBelowOne);
}

template <class F>
void fields(F& f, CnnConfig& c) {
  f.integers("channels", c.channels, kAtLeastOne);
  f.integer("hidden", c.hidden, kAtLeastOne);
  f.number("dropout", c.dropout, kZeroToBelowOne);
}

template <class F>
void fields(F& f, SyntheticConfig& c) {
  f.integer("seed", c.seed, kAtLeastZero);
  f.integer("train_examples", c.train_examples, kAtLeastZero);
  f.integer("val_examples", c.val_examples, kAtLeastZero);
  f.integer("features", c.features, kAtLeastOne);
  f.integer("classes", c.classes, kAtLeastOne);
}

template <class F>
void fields(F& f, IdxConfig& c) {
  f.text("dir", c.dir);
  f.integer("shift", c.shift, kAtLeastZero);
}

template <class F, class Adam>
void adam_fields(F& f, Adam& c) {
  f.number("lr", c.lr, kAtLeastZero);
  f.number("beta1", c.beta1, kZeroToBelowOne);
  f.number("beta2", c.beta2, kZeroToBelowOne);
  f.number("eps", c.eps, kAtLeastZero);
  f.number("weight_decay", c.weight_decay, kAtLeastZero);
}

template <class F>
void fields(F& f, AdamWConfig& c) {
  adam_fields(f, c);
}

template <class F>
void fields(F& f, AdamConfig& c) {
  adam_fields(f, c);
}

template <class F>
void fields(F& f, SgdConfig& c) {
  f.number("lr", c.lr, kAtLeastZero);
  f.number("momentum", c.momentum, kZeroToBelowOne);
  f.flag("nesterov", c.nesterov);
  f.number("weight_decay", c.weight_decay, kAtLeastZero);
}

template <class F>
void fields(F&, ConstantSchedule&) {}

template <class F>
void fields(F& f, LinearWarmupSchedule& c) {
  f.integer("warmup_steps", c.warmup_steps, kAtLeastOne);
  f.number("start_factor", c.start_factor, kShare);
}

template <class F>
void fields(F& f, CosineSchedule& c) {
  f.integer("warmup_steps", c.warmup_steps, kAtLeastZero);
  f.number("start_factor", c.start_factor, kShare);
  f.number("min_factor", c.min_factor, kShare);
}

template <class F>
void fields(F& f, OneCycleSchedule& c) {
  f.number("pct_start", c.pct_start, kShare);
  f.number("div_factor", c.div_factor, kAtLeastOne);
  f.number("final_div_factor", c.final_div_factor, kAtLeastOne);
}

template <class F>
void fields(F& f, CheckpointConfig& c) {
  f.text("dir", c.dir);
  f.integer("every_steps", c.every_steps, kAtLeastZero);
  f.integer("keep", c.keep, kAtLeastOne);
  f.one_of("resume", c.resume, kResume);
}

template <class F>
void fields(F& f, TrainConfig& c) {
  f.integer("seed", c.seed, kAtLeastZero);
  f.integer("shuffle_seed", c.shuffle_seed, kAtLeastZero);
  f.integer("epochs", c.epochs, kAtLeastOne);
  f.integer("batch_size", c.batch_size, kAtLeastOne);
  f.integer("accumulation_steps", c.accumulation_steps, kAtLeastOne);
  f.number("clip_norm", c.clip_norm, kAtLeastZero);
  f.integer("log_every", c.log_every, kAtLeastZero);
  f.number("collective_timeout_seconds", c.collective_timeout_seconds, kPositive);
  f.variant("model", c.model, kModels);
  f.variant("data", c.data, kData);
  f.variant("optimizer", c.optimizer, kOptimizers);
  f.variant("schedule", c.schedule, kSchedules);
  f.section("checkpoint", c.checkpoint);
  f.text("metrics_file", c.metrics_file);
  f.text("weights_file", c.weights_file);
}

namespace {

ordered_json parse(const std::string& text) {
  try {
    return ordered_json::parse(text);
  } catch (const ordered_json::parse_error& error) {
    throw worker::ConfigError("is not JSON: " + std::string(error.what()));
  }
}

void apply_override(ordered_json& config, const std::string& assignment) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw worker::ConfigError("--set " + assignment + ": write key=value, for example optimizer.lr=0.01");
  }
  ordered_json* place = &config;
  std::istringstream keys(assignment.substr(0, equals));
  for (std::string key; std::getline(keys, key, '.');) {
    if (!place->is_object() && !place->is_null()) {
      throw worker::ConfigError("--set " + assignment + ": nothing can be set within the value " +
                                place->dump());
    }
    place = &(*place)[key];
  }
  const std::string value = assignment.substr(equals + 1);
  ordered_json parsed = ordered_json::parse(value, nullptr, /*allow_exceptions=*/false);
  *place = parsed.is_discarded() ? ordered_json(value) : std::move(parsed);
}

// What no single key can tell.
void check_together(const TrainConfig& config) {
  const SgdConfig* sgd = std::get_if<SgdConfig>(&config.optimizer);
  if (sgd != nullptr && sgd->nesterov && sgd->momentum == 0) {
    throw worker::ConfigError("\"optimizer.nesterov\" needs an \"optimizer.momentum\" above 0");
  }
  const CnnConfig* cnn = std::get_if<CnnConfig>(&config.model);
  if (cnn != nullptr && cnn->channels.empty()) {
    throw worker::ConfigError("\"model.channels\" must name at least one block, not []");
  }
  const IdxConfig* idx = std::get_if<IdxConfig>(&config.data);
  if (idx != nullptr && idx->dir.empty()) {
    throw worker::ConfigError("\"data.dir\" must name the folder of the IDX files");
  }
  if (cnn != nullptr && idx == nullptr) {
    throw worker::ConfigError("\"model.type\" \"cnn\" needs images: use \"data.type\" \"idx\", or \"mlp\"");
  }
}

}  // namespace

TrainConfig parse_config(const std::string& text, const std::string& folder,
                         const std::vector<std::string>& overrides) {
  ordered_json json = parse(text);
  for (const std::string& assignment : overrides) apply_override(json, assignment);
  TrainConfig config;
  SectionReader reader(json, "");
  fields(reader, config);
  reader.finish();
  if (!json.contains("shuffle_seed")) config.shuffle_seed = config.seed;
  check_together(config);
  if (IdxConfig* idx = std::get_if<IdxConfig>(&config.data)) {
    idx->dir = (std::filesystem::path(folder) / idx->dir).lexically_normal().string();
  }
  return config;
}

TrainConfig load_config(const std::string& file, const std::vector<std::string>& overrides) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  // An empty file sets failbit on `text`, so only the source is asked.
  if (in) text << in.rdbuf();
  if (!in || std::filesystem::is_directory(file)) {
    throw worker::ConfigError("cannot read the config file " + file + ": check its name and permissions");
  }
  try {
    return parse_config(text.str(), std::filesystem::absolute(file).parent_path().string(), overrides);
  } catch (const worker::ConfigError& error) {
    throw worker::ConfigError(file + ": " + error.what());
  }
}

std::string to_json(const TrainConfig& config) {
  TrainConfig copy = config;  // `fields` takes its struct by reference to serve reading too
  SectionWriter writer;
  fields(writer, copy);
  return writer.json().dump(2);
}

}  // namespace cpprun::trainer
