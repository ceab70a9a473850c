// The error file: how a worker that fails tells its launcher why. The format is torchelastic's
// ("message": {"message", "extraInfo": {"py_callstack", "timestamp"}, "errorCode"}), so that a Python worker
// under `record` and a C++ worker under recorded_main are read alike.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace cpprun::worker {

struct ErrorRecord {
  std::string message;         // one line, e.g. "RuntimeError: boom"
  std::string callstack;       // may be empty
  std::int64_t timestamp = 0;  // seconds since 1970, 0 if unknown
  std::optional<int> error_code;
};

std::string to_json(const ErrorRecord& record);

// Accepts both shapes that torchelastic writes (an object or a plain string under "message"). Returns nothing
// for a text that is no such record; never throws, since the text comes from another process.
std::optional<ErrorRecord> parse_error_record(const std::string& text);

// Writes the record to `path` whole or not at all (see whole_file.hpp). Returns false, with errno
// set, where the file cannot be written: a worker that is failing has no better place to say so.
bool write_error_record(const std::string& path, const ErrorRecord& record);

}  // namespace cpprun::worker
