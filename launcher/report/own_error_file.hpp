// The error file of cpprun itself: whoever started it as a worker of something larger may name one
// (TORCHELASTIC_ERROR_FILE), and finds there why the job failed, in torchelastic's shape.
#pragma once

#include <string>

#include "launcher/report/failure_report.hpp"

namespace cpprun::launcher {

// `record`, the content of an error file, with the worker's exit code (negative: a signal) as its errorCode;
// unchanged where it is no object with an object under "message".
std::string with_error_code(const std::string& record, const ExitStatus& status);

// The path that our own environment names; null where it names none.
const char* own_error_file();

// Workers failed: copies the root cause's record; writes nothing when it left none. `path` is null or empty
// where nobody asked. Trouble is logged.
void record_own_failure(const char* path, const FailureReport& report);

// Anything else that ended cpprun badly; `kind` is a word such as "UsageError".
void record_own_error(const char* path, const std::string& kind, const std::string& sentence, int exit_code);

// Logs the sentence, records it likewise in the file that our own environment names, and returns `exit_code`.
int fail(const std::string& kind, const std::string& sentence, int exit_code);

}  // namespace cpprun::launcher
