// Where the launcher's files go, and that it can use them whatever the environment and the umask say.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/process/temporary_folder.hpp"

namespace cpprun::launcher {
namespace {

// The variables of this process as they were, at its end.
class KeptVariables {
 public:
  KeptVariables() {
    for (const char* name : {"TMPDIR", "TMP", "TEMP", "TEMPDIR"}) {
      const char* value = std::getenv(name);
      before_[name] = value ? std::optional<std::string>(value) : std::nullopt;
      ::unsetenv(name);
    }
  }
  ~KeptVariables() {
    for (const auto& [name, value] : before_) {
      if (value) {
        ::setenv(name.c_str(), value->c_str(), 1);
      } else {
        ::unsetenv(name.c_str());
      }
    }
  }

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

TEST(TemporaryFolder, IsNamedByTheFirstVariableThatIsNotEmpty) {
  struct Case {
    std::map<std::string, std::string> variables;
    std::string path;
    std::string variable;
    bool usable;
  };
  const std::vector<Case> cases{{{}, "/tmp", "", true},
                                {{{"TMPDIR", ""}}, "/tmp", "", true},
                                {{{"TMPDIR", "/"}, {"TMP", "/dev"}}, "/", "TMPDIR", true},
                                {{{"TMPDIR", ""}, {"TMP", "/dev"}}, "/dev", "TMP", true},
                                {{{"TMP", ""}, {"TEMPDIR", "/dev"}}, "/dev", "TEMPDIR", true},
                                {{{"TMPDIR", "/dev/null"}}, "/dev/null", "TMPDIR", false},
                                {{{"TEMP", "/no/such"}}, "/no/such", "TEMP", false}};
  for (const Case& each : cases) {
    const KeptVariables kept;
    for (const auto& [name, value] : each.variables) ::setenv(name.c_str(), value.c_str(), 1);
    const TemporaryFolder folder = temporary_folder();
    EXPECT_EQ(folder.path, each.path);
    EXPECT_EQ(folder.variable, each.variable);
    EXPECT_EQ(!folder.error, each.usable) << folder.path;
  }
}

}  // namespace
}  // namespace cpprun::launcher
