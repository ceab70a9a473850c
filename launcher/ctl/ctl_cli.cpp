#include "launcher/ctl/ctl_cli.hpp"

#include <CLI/CLI.hpp>
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

// CLI11 names the words that it did not expect behind a colon.
std::string unexpected(const CLI::App& app) {
  std::vector<std::string> known;
  const bool has_command = !app.get_subcommands().empty();
  for (const CLI::App* command : app.get_subcommands({})) {
    if (!has_command) known.push_back(command->get_name());
  }
  if (has_command) known = {"--json", "--help"};
  const std::vector<std::string> words = app.remaining(true);
  const std::string word = words.empty() ? "" : words.front();
  const std::string what = word.rfind('-', 0) == 0 ? "option " : has_command ? "argument " : "command ";
  if (has_command && what == "argument ") return "one job at a time; '" + word + "' is one too many";
  return "unknown " + what + word + did_you_mean(word, known) + "; see cpprunctl --help";
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
