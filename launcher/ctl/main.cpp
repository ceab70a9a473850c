// cpprunctl: parse, ask, print, exit.
#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>

#include "launcher/ctl/choose_job.hpp"
#include "launcher/ctl/control_client.hpp"
#include "launcher/ctl/ctl_cli.hpp"
#include "launcher/ctl/ctl_commands.hpp"
#include "launcher/ctl/explain.hpp"
#include "launcher/launch.hpp"
#include "rendezvous/print_text.hpp"
#include "rendezvous/text.hpp"

namespace {

using namespace cpprun::launcher;

int run(int argc, char** argv) {
  std::string printed;
  const std::optional<CtlRequest> request = parse_ctl_command(argc, argv, printed);
  if (!request) {
    return cpprun::rendezvous::print_text(printed) ? kGood : kSystemRefused;
  }
  if (request->command == "explain") return explain(request->job, std::cout, std::cerr);
  if (request->command == "stacks") return show_stacks(request->job, request->json);
  return show_status(request->job, request->json);
}

int fail(const std::exception& error, int code) {
  std::fprintf(stderr, "cpprunctl: %s\n", cpprun::rendezvous::escaped(error.what()).c_str());
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  try {
    return run(argc, argv);
  } catch (const CtlUsageError& error) {
    return fail(error, kWrongUsage);
  } catch (const NoSuchJob& error) {
    return fail(error, kNotReached);
  } catch (const ControlError& error) {
    return fail(error, kNotReached);
  } catch (const std::exception& error) {
    return fail(error, kSystemRefused);
  }
}
