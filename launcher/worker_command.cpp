#include "launcher/worker_command.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "launcher/run_path.hpp"
#include "launcher/text.hpp"

namespace cpprun::launcher {
namespace {

bool is_file(const std::string& path) {
  struct stat about {};
  return ::stat(path.c_str(), &about) == 0 && S_ISREG(about.st_mode);
}

bool is_executable(const std::string& path) {
  return is_file(path) && ::access(path.c_str(), X_OK) == 0;
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// There may be something there that only cannot be reached.
void check_reachable(const std::string& what, const std::string& path) {
  struct stat about {};
  if (::stat(path.c_str(), &about) == 0 || errno == ENOENT || errno == ENOTDIR) return;
  throw UsageError("the " + what + " '" + path + "' cannot be reached: " + std::strerror(errno));
}

// The file's first bytes: "\x7f" "ELF", or "#!" and the line behind it.
std::string first_line(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string line(256, '\0');
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<std::size_t>(file.gcount()));
  return line.substr(0, line.find('\n'));
}

// Empty where PATH has no such program.
std::string search_path(const std::string& name, const char* path) {
  for (const std::string& folder : split(path ? path : "/usr/local/bin:/usr/bin:/bin", ':')) {
    std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (is_executable(candidate)) return candidate;
  }
  return "";
}

std::string find_python(const CommandEnvironment& environment) {
  if (environment.python_exec && *environment.python_exec) {
    const std::string given = environment.python_exec;
    std::string found = given.find('/') == std::string::npos ? search_path(given, environment.path) : given;
    if (is_executable(found)) return found;
    throw UsageError("PYTHON_EXEC='" + given + "' is no executable file");
  }
  for (const char* prefix : {environment.virtual_env, environment.conda_prefix}) {
    if (prefix && *prefix && is_executable(std::string(prefix) + "/bin/python")) {
      return std::string(prefix) + "/bin/python";
    }
  }
  for (const char* name : {"python3", "python"}) {
    std::string found = search_path(name, environment.path);
    if (!found.empty()) return found;
  }
  throw UsageError(
      "no Python found: neither PYTHON_EXEC nor a virtual environment is set, and PATH has no python3");
}

std::string find_program(const std::string& name, const CommandEnvironment& environment) {
  if (name.empty()) throw UsageError("the program's name is empty");
  if (name.find('/') == std::string::npos) {
    std::string in_path = search_path(name, environment.path);
    if (!in_path.empty()) return in_path;
    std::string beside = environment.own_folder + "/" + name;
    if (is_executable(beside)) return beside;
  }
  if (is_file(name)) return name.find('/') == std::string::npos ? "./" + name : name;
  struct stat about {};
  if (::stat(name.c_str(), &about) == 0) throw UsageError("'" + name + "' is not a file that can be run");
  check_reachable("program", name);
  throw UsageError("the program '" + name + "' does not exist" +
                   (name.find('/') == std::string::npos
                        ? ": it is neither in PATH, nor beside cpprun, nor in the current folder"
                        : ""));
}

[[noreturn]] void refuse_not_executable(const std::string& path) {
  throw UsageError("'" + path + "' is not executable; make it so with: chmod +x " + path);
}

WorkerCommand under_python(const LaunchConfig& config, const CommandEnvironment& environment) {
  WorkerCommand result;
  result.name = config.command.front();
  result.interpreter = find_python(environment);
  result.executable = result.interpreter;
  result.argv = {result.interpreter, "-u"};
  if (config.run_path) {
    result.argv.emplace_back("-c");
    result.argv.emplace_back(kRunPathBootstrap);
  } else if (config.module) {
    result.argv.emplace_back("-m");
  }
  result.argv.insert(result.argv.end(), config.command.begin(), config.command.end());
  return result;
}

void check_script(const std::string& path) {
  check_reachable("script", path);
  if (!is_file(path)) throw UsageError("the script '" + path + "' does not exist");
  if (::access(path.c_str(), R_OK) != 0) throw UsageError("the script '" + path + "' cannot be read");
}

WorkerCommand by_itself(const LaunchConfig& config, const std::string& path) {
  if (::access(path.c_str(), X_OK) != 0) refuse_not_executable(path);
  return {config.command.front(), "", path, config.command};
}

}  // namespace

WorkerCommand find_command(const LaunchConfig& config, const CommandEnvironment& environment) {
  const std::string& name = config.command.front();
  if (config.run_path) {
    check_script(name);
    return under_python(config, environment);
  }
  if (config.module) return under_python(config, environment);
  if (config.no_python) return by_itself(config, find_program(name, environment));
  if (ends_with(name, ".py")) {
    check_script(name);
    return under_python(config, environment);
  }
  const std::string path = find_program(name, environment);
  const std::string start = first_line(path);
  const bool binary = start.rfind(
                          "\x7f"
                          "ELF",
                          0) == 0;
  const bool script = start.rfind("#!", 0) == 0;
  if (binary || (script && (is_executable(path) || start.find("python") == std::string::npos))) {
    return by_itself(config, path);
  }
  return under_python(config, environment);
}

}  // namespace cpprun::launcher
