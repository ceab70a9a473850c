#include "worker_runtime/contract/worker_env.hpp"

#include <charconv>
#include <cstdlib>
#include <limits>

namespace cpprun::worker {
namespace {

std::string text_or(const char* name, std::string fallback) {
  const char* value = std::getenv(name);
  return value ? std::string(value) : std::move(fallback);
}

int parse_number(const char* name, const std::string& text, int lowest, int highest) {
  int value = 0;
  const std::from_chars_result parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || value < lowest ||
      value > highest) {
    throw EnvironmentError(std::string(name) + "='" + text + "' must be a whole number from " +
                           std::to_string(lowest) + " to " + std::to_string(highest));
  }
  return value;
}

int number_or(const char* name, int fallback, int lowest, int highest) {
  const char* value = std::getenv(name);
  return value ? parse_number(name, value, lowest, highest) : fallback;
}

const char* required(const char* name) {
  const char* value = std::getenv(name);
  if (!value) {
    throw EnvironmentError(
        std::string(name) +
        " is not set: start this program with cpprun (or torchrun), which tells each worker "
        "its place");
  }
  return value;
}

int required_number(const char* name, int lowest, int highest) {
  return parse_number(name, required(name), lowest, highest);
}

constexpr int kMax = std::numeric_limits<int>::max();

}  // namespace

Variables to_variables(const WorkerEnv& env) {
  Variables variables = {
      {"RANK", std::to_string(env.rank)},
      {"LOCAL_RANK", std::to_string(env.local_rank)},
      {"WORLD_SIZE", std::to_string(env.world_size)},
      {"LOCAL_WORLD_SIZE", std::to_string(env.local_world_size)},
      {"GROUP_RANK", std::to_string(env.group_rank)},
      {"GROUP_WORLD_SIZE", std::to_string(env.group_world_size)},
      {"ROLE_NAME", env.role_name},
      {"ROLE_RANK", std::to_string(env.role_rank)},
      {"ROLE_WORLD_SIZE", std::to_string(env.role_world_size)},
      {"MASTER_ADDR", env.master_addr},
      {"MASTER_PORT", std::to_string(env.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(env.restart_count)},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(env.max_restarts)},
      {"TORCHELASTIC_RUN_ID", env.run_id},
      {"TORCHELASTIC_USE_AGENT_STORE", env.use_agent_store ? "True" : "False"},
      {"TORCHELASTIC_ERROR_FILE", env.error_file},
      {"CPPRUN_PROGRESS_PAGE", env.progress_page},
  };
  if (!env.rank0_addr.empty()) variables.emplace_back("CPPRUN_RANK0_ADDR", env.rank0_addr);
  return variables;
}

bool launched() {
  return std::getenv("RANK") != nullptr;
}

WorkerEnv from_environment() {
  WorkerEnv env;
  env.world_size = required_number("WORLD_SIZE", 1, kMax);
  env.rank = required_number("RANK", 0, env.world_size - 1);
  env.local_world_size = number_or("LOCAL_WORLD_SIZE", env.world_size, 1, env.world_size);
  // Below LOCAL_WORLD_SIZE is not asked for: with one visible GPU each, LOCAL_RANK is 0 everywhere.
  env.local_rank = required_number("LOCAL_RANK", 0, env.world_size - 1);
  env.group_world_size = number_or("GROUP_WORLD_SIZE", 1, 1, kMax);
  env.group_rank = number_or("GROUP_RANK", 0, 0, env.group_world_size - 1);
  env.role_world_size = number_or("ROLE_WORLD_SIZE", env.world_size, 1, kMax);
  env.role_rank = number_or("ROLE_RANK", env.rank, 0, env.role_world_size - 1);
  env.role_name = text_or("ROLE_NAME", env.role_name);
  env.master_addr = required("MASTER_ADDR");
  env.master_port = static_cast<std::uint16_t>(required_number("MASTER_PORT", 1, 65535));
  env.rank0_addr = text_or("CPPRUN_RANK0_ADDR", "");
  env.restart_count = number_or("TORCHELASTIC_RESTART_COUNT", 0, 0, kMax);
  env.max_restarts = number_or("TORCHELASTIC_MAX_RESTARTS", 0, 0, kMax);
  env.run_id = text_or("TORCHELASTIC_RUN_ID", env.run_id);
  env.use_agent_store = text_or("TORCHELASTIC_USE_AGENT_STORE", "False") == "True";
  env.error_file = text_or("TORCHELASTIC_ERROR_FILE", "");
  env.progress_page = text_or("CPPRUN_PROGRESS_PAGE", "");
  return env;
}

}  // namespace cpprun::worker
