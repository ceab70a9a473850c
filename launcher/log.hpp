// The launcher's own log: plain lines on stderr, written at once, from one thread.
#pragma once

namespace cpprun::launcher {

// The level is LOGLEVEL's (DEBUG, INFO, WARNING, ERROR, CRITICAL), else INFO.
void set_up_log();

// Whether LOGLEVEL may be that.
bool is_log_level(const char* name);

}  // namespace cpprun::launcher
