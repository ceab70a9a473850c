#include "worker_runtime/recorded_main.hpp"

#include <cerrno>  // program_invocation_short_name
#include <cstdlib>
#include <ctime>
#include <string>

#include "worker_runtime/contract/error_record.hpp"
#include "worker_runtime/contract/worker_env.hpp"
#include "worker_runtime/error_text.hpp"
#include "worker_runtime/log.hpp"

namespace cpprun::worker {
namespace {

// Read here and not through WorkerEnv: a worker whose environment is malformed must be able to say so.
std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int report(int exit_code, const std::string& message, const std::string& callstack) {
  const std::string rank = variable("RANK");
  const std::string program = program_invocation_short_name;
  write_stderr_line(program + (rank.empty() ? "" : " (rank " + rank + ")") + ": " + message);
  const std::string error_file = variable("TORCHELASTIC_ERROR_FILE");
  if (!error_file.empty()) {
    const ErrorRecord record{message, callstack, std::time(nullptr), exit_code};
    if (!write_error_record(error_file, record)) {
      write_stderr_line(program + ": the error could not be recorded in " + error_file);
    }
  }
  return exit_code;
}

// For the user, who reads a sentence of ours.
int report_refusal(const std::exception& error) {
  return report(2, error_text(error), "");
}

// For whoever looks for the fault in the program.
int report_failure(const std::exception& error) {
  return report(1, error_type(error) + ": " + error_text(error), error_callstack(error));
}

}  // namespace

int recorded_main(const std::function<int()>& body) {
  try {
    return body();
  } catch (const ConfigError& error) {
    return report_refusal(error);
  } catch (const EnvironmentError& error) {
    return report_refusal(error);
  } catch (const std::exception& error) {
    return report_failure(error);
  } catch (...) {
    return report(1, "an exception that is no std::exception", "");
  }
}

}  // namespace cpprun::worker
