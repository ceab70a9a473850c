// What cpprun leaves in the error file that was named to itself.
#include "launcher/report/own_error_file.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

namespace cpprun::launcher {
namespace {

using nlohmann::json;

TEST(OwnErrorFile, ErrorCodeGoesIntoTheStructuredShapeAlone) {
  const std::string structured =
      R"({"message": {"message": "m", "extraInfo": {"py_callstack": "s"}, "more": 1}})";
  json expected = json::parse(structured);
  expected["message"]["errorCode"] = 7;
  EXPECT_EQ(json::parse(with_error_code(structured, Exited{7})), expected);
  expected["message"]["errorCode"] = -SIGKILL;
  EXPECT_EQ(json::parse(with_error_code(structured, Signaled{SIGKILL})), expected);
  for (const char* text : {R"({"message": "plain", "timestamp": 3})", R"({"other": 1})", "[1]", "{", ""}) {
    EXPECT_EQ(with_error_code(text, Exited{7}), text);
  }
}

}  // namespace
}  // namespace cpprun::launcher
