#include "launcher/python_path.hpp"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "launcher/text.hpp"

namespace cpprun::launcher {

std::string with_progress_module(const std::string& python_path, const std::string& program_folder) {
  namespace fs = std::filesystem;
  const fs::path folder = (fs::path(program_folder) / CPPRUN_PYTHON_FOLDER).lexically_normal();
  std::error_code unknown;
  if (!fs::exists(folder / "cpprun_progress.py", unknown)) return python_path;
  if (python_path.empty()) return folder.string();
  const std::vector<std::string> given = split(python_path, ':');
  // A cpprun that another one started.
  if (std::find(given.begin(), given.end(), folder.string()) != given.end()) return python_path;
  return python_path + ":" + folder.string();
}

}  // namespace cpprun::launcher
