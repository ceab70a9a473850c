#include "launcher/process/temporary_folder.hpp"

#include <cstdlib>

namespace cpprun::launcher {

namespace fs = std::filesystem;

TemporaryFolder temporary_folder() {
  TemporaryFolder folder{"/tmp", "", {}};
  for (const char* name : {"TMPDIR", "TMP", "TEMP", "TEMPDIR"}) {
    const char* given = std::getenv(name);
    if (!given || !*given) continue;
    folder.path = given;
    folder.variable = name;
    break;
  }
  const bool is_folder = fs::is_directory(folder.path, folder.error);
  if (!is_folder && !folder.error) folder.error = std::make_error_code(std::errc::not_a_directory);
  return folder;
}

}  // namespace cpprun::launcher
