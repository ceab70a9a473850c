#include "launcher/report/node_facts.hpp"

#include <sys/resource.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>

#include "launcher/text.hpp"

extern char** environ;

namespace cpprun::launcher {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHidden = "<hidden>";
constexpr std::size_t kLongestValue = 500;

bool bears_on_a_job(const std::string& name) {
  static const std::set<std::string> kNames{"TMPDIR", "VIRTUAL_ENV",        "LANG", "LC_ALL", "CONDA_PREFIX",
                                            "PATH",   "ATEN_CPU_CAPABILITY"};
  if (kNames.count(name) != 0) return true;
  for (const char* prefix :
       {"NCCL_", "GLOO_", "TORCH",   "PYTORCH_", "CUDA",    "CUBLAS_", "CUDNN_",  "NVIDIA_", "OMP_",  "MKL_",
        "KMP_",  "PET_",  "MASTER_", "LD_",      "PYTHON",  "SLURM_",  "HIP_",    "ROCR_",   "RCCL_", "UCX_",
        "FI_",   "OMPI_", "CPPRUN",  "HF_",      "TRITON_", "XLA_",    "MALLOC_", "GOMP_"}) {
    if (name.rfind(prefix, 0) == 0) return true;
  }
  return false;
}

bool is_secret(std::string name) {
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  for (const char* word : {"TOKEN", "SECRET", "PASSWORD", "PASSWD", "KEY", "CREDENTIAL", "AUTH"}) {
    if (name.find(word) != std::string::npos) return true;
  }
  return false;
}

// "http://user:word@host" as "http://<hidden>@host", wherever it stands.
std::string without_passwords(std::string value) {
  for (std::size_t at = value.find("://"); at != std::string::npos; at = value.find("://", at + 3)) {
    const std::size_t end = value.find_first_of("/ ,", at + 3);
    const std::size_t sign = value.rfind('@', end);
    if (sign == std::string::npos || sign < at) continue;
    value.replace(at + 3, sign - at - 3, kHidden);
  }
  return value;
}

std::string limit_text(rlim_t value) {
  return value == RLIM_INFINITY ? "unlimited" : std::to_string(value);
}

NamedValues limits() {
  NamedValues result;
  for (const auto& [name, what] :
       {std::pair("open files", RLIMIT_NOFILE), std::pair("processes", RLIMIT_NPROC),
        std::pair("core", RLIMIT_CORE), std::pair("locked memory", RLIMIT_MEMLOCK),
        std::pair("address space", RLIMIT_AS), std::pair("stack", RLIMIT_STACK),
        std::pair("file size", RLIMIT_FSIZE)}) {
    rlimit limit{};
    if (::getrlimit(what, &limit) == 0) result.emplace_back(name, limit_text(limit.rlim_cur));
  }
  return result;
}

// The value behind the first line that begins with `key` and holds '='; without quotes.
std::string value_in(const fs::path& file, const std::string& key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t sign = line.find('=');
    if (line.rfind(key, 0) != 0 || sign == std::string::npos) continue;
    std::string value = trim(line.substr(sign + 1));
    value.erase(std::remove_if(value.begin(), value.end(), [](char c) { return c == '\'' || c == '"'; }),
                value.end());
    return value;
  }
  return "";
}

// From the files of the environment that the interpreter is part of.
void add_python(NamedValues& versions, const std::string& interpreter) {
  if (interpreter.empty()) return;
  std::error_code error;
  const fs::path prefix = fs::path(interpreter).parent_path().parent_path();
  std::string python = value_in(prefix / "pyvenv.cfg", "version");
  if (python.empty()) python = fs::canonical(interpreter, error).filename().string();
  versions.emplace_back("python", interpreter + (python.empty() ? "" : " (" + python + ")"));
  for (fs::directory_iterator folder(prefix / "lib", error), end; !error && folder != end;
       folder.increment(error)) {
    if (folder->path().filename().string().rfind("python3", 0) != 0) continue;
    for (const char* packages : {"site-packages", "dist-packages"}) {
      const std::string torch = value_in(folder->path() / packages / "torch" / "version.py", "__version__");
      if (!torch.empty()) return versions.emplace_back("torch", torch), void();
    }
  }
}

}  // namespace

NamedValues variables_that_matter(const std::vector<std::string>& environment) {
  NamedValues result;
  for (const std::string& entry : environment) {
    const std::size_t sign = entry.find('=');
    if (sign == std::string::npos) continue;
    const std::string name = entry.substr(0, sign);
    if (!bears_on_a_job(name)) continue;
    std::string value = is_secret(name) ? kHidden : without_passwords(entry.substr(sign + 1));
    if (value.size() > kLongestValue) value = value.substr(0, kLongestValue) + "...";
    result.emplace_back(name, value);
  }
  std::sort(result.begin(), result.end());
  return result;
}

NodeFacts read_node_facts(const std::string& interpreter) {
  NodeFacts facts;
  facts.versions.emplace_back("cpprun", CPPRUN_VERSION);
  utsname system{};
  if (::uname(&system) == 0) {
    facts.versions.emplace_back("host", system.nodename);
    facts.versions.emplace_back("kernel",
                                std::string(system.sysname) + " " + system.release + " " + system.machine);
  }
  add_python(facts.versions, interpreter);
  facts.limits = limits();
  std::vector<std::string> environment;
  for (char** entry = environ; *entry; ++entry) environment.emplace_back(*entry);
  facts.environment = variables_that_matter(environment);
  return facts;
}

}  // namespace cpprun::launcher
