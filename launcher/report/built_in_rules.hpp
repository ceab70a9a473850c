// The text of conf/verdict_rules.json, as the build put it into the program.
#pragma once

namespace cpprun::launcher {

extern const char* const kBuiltInRules;

}  // namespace cpprun::launcher
