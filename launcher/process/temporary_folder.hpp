// Where temporary files go: the folder of the first of TMPDIR, TMP, TEMP and TEMPDIR that is set and not
// empty, else /tmp.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

namespace cpprun::launcher {

// The folder and what named it. `error` is set where it is no folder; the path is given all the same.
struct TemporaryFolder {
  std::filesystem::path path;
  std::string variable;  // empty: none did
  std::error_code error;
};

TemporaryFolder temporary_folder();

}  // namespace cpprun::launcher
