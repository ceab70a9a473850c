#include "trainer/command_line.hpp"

#include <CLI/CLI.hpp>

#include "worker_runtime/recorded_main.hpp"

namespace cpprun::trainer {

std::optional<CommandLine> parse_command_line(int argc, char** argv) {
  CommandLine line;
  CLI::App app{"Trains a model, as one worker of a job that a launcher such as cpprun started.",
               "cpprun-train"};
  app.add_option("--config", line.config_file, "the run's JSON config (keys: trainer/README.md)")
      ->required()
      ->type_name("FILE");
  app.add_option("--set", line.overrides, "set one key of the config, e.g. optimizer.lr=0.01; repeatable")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("KEY=VALUE");
  app.add_flag("--print-config", line.print_config,
               "print the config with its defaults and overrides, and end");
  app.set_version_flag("--version", "cpprun-train " CPPRUN_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {
    app.exit(asked);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw worker::ConfigError(std::string(error.what()) + " (cpprun-train --help shows the options)");
  }
  return line;
}

}  // namespace cpprun::trainer
