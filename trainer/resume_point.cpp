#include "trainer/resume_point.hpp"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "worker_runtime/recorded_main.hpp"

namespace cpprun::trainer {
namespace {

struct IdentityField {
  const char* name;
  std::int64_t RunIdentity::*value;
};

constexpr std::array<IdentityField, 6> kIdentity{{
    {"seed", &RunIdentity::seed},
    {"shuffle_seed", &RunIdentity::shuffle_seed},
    {"batch_size", &RunIdentity::batch_size},
    {"accumulation_steps", &RunIdentity::accumulation_steps},
    {"processes", &RunIdentity::processes},
    {"train_examples", &RunIdentity::train_examples},
}};

}  // namespace

std::string to_json(const ResumePoint& point) {
  nlohmann::ordered_json json{{"epoch", point.epoch},
                              {"used", point.used},
                              {"batch", point.batch},
                              {"step", point.step},
                              {"schedule_step", point.schedule_step}};
  for (const IdentityField& field : kIdentity) json["identity"][field.name] = point.identity.*field.value;
  return json.dump();
}

ResumePoint parse_resume_point(const std::string& text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    ResumePoint point;
    point.epoch = json.at("epoch");
    point.batch = json.at("batch");
    point.step = json.at("step");
    point.used = json.value("used", std::int64_t{0});  // older checkpoints have neither
    point.schedule_step = json.value("schedule_step", point.step);
    for (const IdentityField& field : kIdentity) {
      point.identity.*field.value = json.at("identity").at(field.name);
    }
    return point;
  } catch (const nlohmann::json::exception& error) {
    throw worker::ConfigError("the checkpoint's progress is not one of cpprun-train: " +
                              std::string(error.what()));
  }
}

std::int64_t batches(const RunIdentity& run, std::int64_t examples) {
  const std::int64_t of_one = examples / run.processes;
  return (of_one + run.batch_size - 1) / run.batch_size;
}

std::int64_t updates(const RunIdentity& run, std::int64_t examples) {
  return (batches(run, examples) + run.accumulation_steps - 1) / run.accumulation_steps;
}

ResumePoint with_processes(const ResumePoint& saved, std::int64_t processes) {
  ResumePoint point = saved;
  if (processes == saved.identity.processes) return point;
  const RunIdentity& before = saved.identity;
  point.identity.processes = processes;
  const std::int64_t left = before.train_examples - saved.used;
  // What the processes before could not share evenly was not for this epoch.
  const bool epoch_is_done = saved.batch > 0 && saved.batch >= batches(before, left);
  const std::int64_t trained = before.processes * saved.batch * before.batch_size;
  point.used = epoch_is_done ? before.train_examples : saved.used + trained;
  point.batch = 0;
  const double scale = static_cast<double>(updates(point.identity, before.train_examples)) /
                       static_cast<double>(updates(before, before.train_examples));
  point.schedule_step = std::llround(static_cast<double>(saved.schedule_step) * scale);
  return point;
}

std::optional<std::string> first_difference(const RunIdentity& saved, const RunIdentity& here) {
  for (const IdentityField& field : kIdentity) {
    if (field.value == &RunIdentity::processes) continue;
    if (saved.*field.value == here.*field.value) continue;
    return std::string(field.name) + " " + std::to_string(saved.*field.value) + " instead of " +
           std::to_string(here.*field.value);
  }
  return std::nullopt;
}

}  // namespace cpprun::trainer
