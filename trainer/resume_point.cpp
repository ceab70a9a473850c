#include "trainer/resume_point.hpp"

#include <array>
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
  nlohmann::ordered_json json{{"epoch", point.epoch}, {"batch", point.batch}, {"step", point.step}};
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
    for (const IdentityField& field : kIdentity) {
      point.identity.*field.value = json.at("identity").at(field.name);
    }
    return point;
  } catch (const nlohmann::json::exception& error) {
    throw worker::ConfigError("the checkpoint's progress is not one of cpprun-train: " +
                              std::string(error.what()));
  }
}

std::optional<std::string> first_difference(const RunIdentity& saved, const RunIdentity& here) {
  for (const IdentityField& field : kIdentity) {
    if (saved.*field.value == here.*field.value) continue;
    return std::string(field.name) + " " + std::to_string(saved.*field.value) + " instead of " +
           std::to_string(here.*field.value);
  }
  return std::nullopt;
}

}  // namespace cpprun::trainer
