// The outermost frame of a worker program: what its body throws becomes one line on stderr, the error record
// that the launcher reads, and an exit code.
//
//   int main(int argc, char** argv) { return cpprun::worker::recorded_main([&] { return run(argc, argv); });
//   }
//
// Deaths by signal are left alone: the launcher sees and names them, and a handler could only blur the cause.
#pragma once

#include <functional>
#include <stdexcept>

namespace cpprun::worker {

// The job cannot run as it was asked to (a bad configuration, a checkpoint of another model, more ranks than
// examples): a restart would fail again. The text is one sentence that says what to change.
struct ConfigError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Runs `body` and returns the process's exit code: the body's own, or 2 after a ConfigError (or the
// contract's EnvironmentError), or 1 after any other exception. An exception is written to stderr as
// "PROGRAM (rank R): <message>", the message of a failure (1) preceded by the exception's type, and to the
// file named by TORCHELASTIC_ERROR_FILE, if there is one, as an ErrorRecord. Must be called once, from main.
int recorded_main(const std::function<int()>& body);

}  // namespace cpprun::worker
