#include "tests/torch/worker_processes.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "worker_runtime/log.hpp"
#include "worker_runtime/recorded_main.hpp"

extern char** environ;

namespace cpprun::worker::test {
namespace {

std::map<std::string, WorkerBody>& bodies() {
  static std::map<std::string, WorkerBody> all;
  return all;
}

std::string own_program() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) {
    result.push_back(const_cast<char*>(text.c_str()));
  }
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> environment_with(const Variables& added) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string name(*entry, std::strcspn(*entry, "="));
    const bool replaced =
        std::any_of(added.begin(), added.end(), [&](const auto& pair) { return pair.first == name; });
    if (!replaced) {
      result.emplace_back(*entry);
    }
  }
  for (const auto& [name, value] : added) {
    result.push_back(name + "=" + value);
  }
  return result;
}

pid_t spawn(const std::vector<std::string>& command, const Variables& variables,
            const std::string& stderr_file, int stdout_fd = -1) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (!stderr_file.empty()) {
    posix_spawn_file_actions_addopen(&actions, 2, stderr_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  }
  if (stdout_fd >= 0) {
    posix_spawn_file_actions_adddup2(&actions, stdout_fd, 1);
  }
  const std::vector<std::string> environment = environment_with(variables);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, command[0].c_str(), &actions, nullptr, pointers(command).data(),
                                pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw std::system_error(error, std::generic_category(), "starting " + command[0]);
  }
  return pid;
}

int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

// A port that was free a moment ago, for the one arrangement in which the server is another process.
std::uint16_t free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  bind(fd, reinterpret_cast<sockaddr*>(&address), size);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  close(fd);
  return ntohs(address.sin_port);
}

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> worker_command(const std::string& worker,
                                        const std::vector<std::string>& arguments) {
  std::vector<std::string> command{own_program(), "--worker", worker};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

// What a launcher sets, and `more`, which wins.
Variables variables_of(const WorkerEnv& env, const Variables& more) {
  Variables variables;
  for (const std::pair<std::string, std::string>& variable : to_variables(env)) {
    if (std::none_of(more.begin(), more.end(),
                     [&](const auto& other) { return other.first == variable.first; })) {
      variables.push_back(variable);
    }
  }
  variables.insert(variables.end(), more.begin(), more.end());
  variables.emplace_back("OMP_NUM_THREADS", "1");
  variables.emplace_back("USE_CPU", "1");
  variables.emplace_back("GLOO_SOCKET_IFNAME", "lo");
  return variables;
}

}  // namespace

WorkerRegistration::WorkerRegistration(const std::string& name, WorkerBody body) {
  bodies().emplace(name, std::move(body));
}

void require(bool condition, const std::string& text) {
  if (!condition) {
    throw std::logic_error("requirement not met: " + text);
  }
}

std::vector<RankResult> run_job(const Job& job) {
  const TemporaryFolder folder;
  c10::intrusive_ptr<c10d::TCPStore> store;
  WorkerEnv env;
  env.world_size = env.local_world_size = env.role_world_size = job.world_size;
  env.use_agent_store = job.agent_store;
  if (job.agent_store) {
    c10d::TCPStoreOptions options;
    options.port = 0;
    options.isServer = true;
    options.waitWorkers = false;
    store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    env.master_port = store->getPort();
  } else {
    env.master_port = free_port();
  }
  std::map<int, pid_t> pids;
  for (int rank = 0; rank < job.world_size; ++rank) {
    if (std::find(job.absent.begin(), job.absent.end(), rank) != job.absent.end()) {
      continue;
    }
    env.rank = env.local_rank = env.role_rank = rank;
    const Variables variables = variables_of(env, job.variables);
    const auto other = job.commands.find(rank);
    pids[rank] =
        spawn(other == job.commands.end() ? worker_command(job.worker, job.arguments) : other->second,
              variables, (folder.path() / std::to_string(rank)).string());
  }
  std::vector<RankResult> results(static_cast<std::size_t>(job.world_size));
  for (const auto& [rank, pid] : pids) {
    results[static_cast<std::size_t>(rank)].exit_code = wait_for(pid);
    results[static_cast<std::size_t>(rank)].standard_error = content(folder.path() / std::to_string(rank));
  }
  return results;
}

std::string failures_of(const Job& job) {
  std::string text;
  const std::vector<RankResult> results = run_job(job);
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    if (results[rank].exit_code != 0) {
      text += "rank " + std::to_string(rank) + " ended with " + std::to_string(results[rank].exit_code) +
              ":\n" + results[rank].standard_error;
    }
  }
  return text;
}

pid_t start_worker(const std::string& worker, const std::vector<std::string>& arguments,
                   int standard_output) {
  return spawn(worker_command(worker, arguments), variables_of(WorkerEnv{}, {}), "", standard_output);
}

std::string python_with_torch() {
  const char* python = std::getenv("CPPRUN_TORCH_PYTHON");
  return python == nullptr ? "" : python;
}

std::string output_of(const std::vector<std::string>& command) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "stdout";
  const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  const pid_t pid = spawn(command, {}, "", fd);
  close(fd);
  const int exit_code = wait_for(pid);
  if (exit_code != 0) {
    throw std::runtime_error(command[0] + " " + command.at(1) + " ended with " + std::to_string(exit_code));
  }
  return content(file);
}

std::filesystem::path source_folder() {
  return std::filesystem::path(CPPRUN_TEST_SOURCES);
}

}  // namespace cpprun::worker::test

int main(int argc, char** argv) {
  using namespace cpprun::worker;
  if (argc >= 3 && std::string(argv[1]) == "--worker") {
    return recorded_main([&] {
      const WorkerEnv env = from_environment();
      start_log(env.rank);
      return test::bodies().at(argv[2])(env, std::vector<std::string>(argv + 3, argv + argc));
    });
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
