// cpprun: parse, log, take the guardian's place or the agent's, run, report, exit.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <system_error>

#include "launcher/cli.hpp"
#include "launcher/launch.hpp"
#include "launcher/log.hpp"
#include "launcher/report/own_error_file.hpp"
#include "rendezvous/error_text.hpp"
#include "rendezvous/print_text.hpp"

namespace {

using namespace cpprun::launcher;

// A descriptor below 3 that is closed would be taken by the next file we open.
void open_standard_streams() {
  int fd = ::open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= 2) fd = ::dup(fd);
  if (fd > 2) ::close(fd);
}

int run(const std::vector<std::string>& arguments) {
  std::string printed;
  const std::optional<LaunchConfig> config = parse_command_line(arguments, printed);
  if (!config) {
    return cpprun::rendezvous::print_text(printed) ? kGood : kSystemRefused;
  }
  return launch(*config);
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a log file at the limit of file sizes is like one on a full disk
  set_up_log();
  try {
    return run({argv + 1, argv + argc});
  } catch (const UsageError& error) {
    return fail("UsageError", error.what(), kWrongUsage);
  } catch (const std::exception& error) {
    return fail("SystemError", cpprun::rendezvous::error_text(error), kSystemRefused);
  }
}
