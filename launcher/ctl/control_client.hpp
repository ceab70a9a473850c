// Asks a running agent, from another process. Blocks, for a limited time.
#pragma once

#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace cpprun::launcher {

// Why there is no answer, in a sentence that names the folder.
struct ControlError : std::runtime_error {
  enum class Kind {
    Nobody,   // no agent listens there (any more)
    Silent,   // one does, and said nothing in time, or what nobody understands
    Refused,  // not to this user, or it could not do what it was asked
  };
  ControlError(Kind why, const std::string& what) : std::runtime_error(what), kind(why) {}
  Kind kind;
};

// The answer of the agent whose control socket is in `folder` to `request`, the text of a JSON object. Throws
// ControlError.
std::string ask(const std::filesystem::path& folder, const std::string& request,
                std::chrono::milliseconds patience);

}  // namespace cpprun::launcher
