#include "trainer/train_config.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>

#include "trainer/config_section.hpp"
#include "trainer/config_text.hpp"
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

// One --set, taken apart.
struct Override {
  std::string text;  // key=value as it was given
  std::string key;   // dotted
  ordered_json value;

  // Whether it set one of these keys, or something around or within one.
  bool touches(const std::vector<std::string>& keys) const {
    return std::any_of(keys.begin(), keys.end(), [this](const std::string& other) {
      return key == other || other.starts_with(key + ".") || key.starts_with(other + ".");
    });
  }
};

// An error whose cause is the command line and not the file.
struct OverrideError : worker::ConfigError {
  OverrideError(const std::string& text, const std::string& sentence)
      : worker::ConfigError("--set " + text + ": " + sentence) {}
};

ordered_json override_value(const std::string& text) {
  return ordered_json::accept(text) ? parse_config_text(text) : ordered_json(text);
}

Override parse_override(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw OverrideError(text, "write key=value, for example optimizer.lr=0.01");
  }
  try {
    return {text, text.substr(0, equals), override_value(text.substr(equals + 1))};
  } catch (const worker::ConfigError& error) {
    throw OverrideError(text, error.what());
  }
}

// A section of another type than the file's begins anew: the file's keys belong to the type that it names.
void begin_section_anew(ordered_json& config, const Override& change) {
  static const std::map<std::string, std::string_view> kDefaultTypes{
      {"model", kModels[0]}, {"data", kData[0]}, {"optimizer", kOptimizers[0]}, {"schedule", kSchedules[0]}};
  for (const auto& [section, default_type] : kDefaultTypes) {
    if (change.key != section + ".type" || !config.is_object()) continue;
    const ordered_json found = config.value(section, ordered_json::object());
    if (!found.is_object()) continue;  // refused when it is read
    if (found.value("type", ordered_json(default_type)) != change.value) {
      config[section] = {{"type", change.value}};
    }
  }
}

void apply(ordered_json& config, const Override& change) {
  ordered_json* place = &config;
  std::istringstream keys(change.key);
  for (std::string key; std::getline(keys, key, '.');) {
    if (!place->is_object() && !place->is_null()) {
      throw OverrideError(change.text, "nothing can be set within the value " + place->dump());
    }
    place = &(*place)[key];
  }
  *place = change.value;
}

// What no single key can tell.
void check_together(const TrainConfig& config) {
  const SgdConfig* sgd = std::get_if<SgdConfig>(&config.optimizer);
  if (sgd != nullptr && sgd->nesterov && sgd->momentum == 0) {
    throw KeyError({"optimizer.nesterov", "optimizer.momentum"},
                   "\"optimizer.nesterov\" needs an \"optimizer.momentum\" above 0");
  }
  const CnnConfig* cnn = std::get_if<CnnConfig>(&config.model);
  if (cnn != nullptr && cnn->channels.empty()) {
    throw KeyError({"model.channels"}, "\"model.channels\" must name at least one block, not []");
  }
  const IdxConfig* idx = std::get_if<IdxConfig>(&config.data);
  if (idx != nullptr && idx->dir.empty()) {
    throw KeyError({"data.dir", "data.type"}, "\"data.dir\" must name the folder of the IDX files");
  }
  if (cnn != nullptr && idx == nullptr) {
    throw KeyError(
        {"model.type", "data.type"},
        "\"model.type\" \"cnn\" needs images: use \"data.type\" \"idx\", or \"model.type\" \"mlp\"");
  }
}

TrainConfig read_config(const ordered_json& json, const std::vector<Override>& changes) {
  TrainConfig config;
  try {
    SectionReader reader(json, "");
    fields(reader, config);
    reader.finish();
    check_together(config);
  } catch (const KeyError& error) {
    for (auto change = changes.rbegin(); change != changes.rend(); ++change) {
      if (change->touches(error.keys)) throw OverrideError(change->text, error.what());
    }
    throw;
  }
  if (!json.contains("shuffle_seed")) config.shuffle_seed = config.seed;
  return config;
}

}  // namespace

TrainConfig parse_config(const std::string& text, const std::string& folder,
                         const std::vector<std::string>& overrides) {
  ordered_json json = parse_config_text(text);
  std::vector<Override> changes;
  for (const std::string& override_text : overrides) changes.push_back(parse_override(override_text));
  for (const Override& change : changes) begin_section_anew(json, change);
  for (const Override& change : changes) apply(json, change);
  TrainConfig config = read_config(json, changes);
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
  } catch (const OverrideError&) {
    throw;
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
