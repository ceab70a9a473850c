#include "launcher/ctl/ctl_cli.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

#include "launcher/text.hpp"

namespace cpprun::launcher {
namespace {

CLI::App* add_command(CLI::App& app, CtlRequest& request, const std::string& name, const std::string& help) {
  CLI::App* command = app.add_subcommand(name, help);
  command->add_option("JOB", request.job, "pid of cpprun, run id, or the folder of the run's logs");
  command->add_flag("--json", request.json, "for programs");
  return command;
}

std::vector<std::string> options_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// Of a word that is no option of `command`.
std::string wrong_option(const CLI::App& app, const CLI::App& command, const std::string& word) {
  for (const CLI::App* other : app.get_subcommands({})) {
    const std::vector<std::string> names = options_of(*other);
    if (std::find(names.begin(), names.end(), word) != names.end())
      return command.get_name() + " has no option " + word + "; see cpprunctl --help";
  }
  return "unknown option " + word + did_you_mean(word, options_of(command)) + "; see cpprunctl --help";
}

// CLI11 names the words that it did not expect behind a colon.
std::string unexpected(const CLI::App& app) {
  const std::vector<std::string> words = app.remaining(true);
  const std::string word = words.empty() ? "" : words.front();
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  const bool is_option = word.rfind('-', 0) == 0;
  if (is_option) return wrong_option(app, chosen.empty() ? app : *chosen.front(), word);
  if (!chosen.empty()) return "one job at a time; '" + word + "' is one too many";
  std::vector<std::string> commands;
  for (const CLI::App* command : app.get_subcommands({})) commands.push_back(command->get_name());
  return "unknown command " + word + did_you_mean(word, commands) + "; see cpprunctl --help";
}

}  // namespace

std::optional<CtlRequest> parse_ctl_command(int argc, const char* const* argv, std::string& printed) {
  CtlRequest request;
  CLI::App app{"Looks at jobs of cpprun: at those that run on this host, and at what is left of others.",
               "cpprunctl"};
  app.set_version_flag("--version", "cpprunctl " CPPRUN_VERSION);
  app.require_subcommand(1);
  add_command(app, request, "status", "what a job does; without JOB, the list of your jobs here");
  add_command(app, request, "stacks", "where all workers of a job are, on all nodes");
  app.add_subcommand("explain", "why a run failed: its post-mortem, wherever the folder was copied from")
      ->add_option("FOLDER", request.job, "of logs, of a run or of an attempt")
      ->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {
    const bool version = dynamic_cast<const CLI::CallForVersion*>(&asked) != nullptr;
    printed = version ? std::string(asked.what()) + "\n" : app.help();
    return std::nullopt;
  } catch (const CLI::ExtrasError&) {
    throw CtlUsageError(unexpected(app));
  } catch (const CLI::RequiredError&) {
    const bool more = !app.remaining(true).empty();
    throw CtlUsageError(more ? unexpected(app)
                             : "say what to look at: status, stacks or explain FOLDER; see cpprunctl --help");
  } catch (const CLI::ParseError& error) {
    throw CtlUsageError(error.what());
  }
  request.command = app.get_subcommands().front()->get_name();
  return request;
}

}  // namespace cpprun::launcher
