// The command line: torchrun's options and PET_* variables, and the config file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/launch_config.hpp"

namespace cpprun::launcher {

// `arguments` without the program's own name. Option names may be spelled with dashes or underscores, and cut
// short where that is unambiguous. The first word that is no option is the program; all that follows it
// belongs to the program. Returns nothing when there was only something to print (--help, --version,
// --print-completion), which is then in `printed`. Throws UsageError.
std::optional<LaunchConfig> parse_command_line(const std::vector<std::string>& arguments,
                                               std::string& printed);

}  // namespace cpprun::launcher
