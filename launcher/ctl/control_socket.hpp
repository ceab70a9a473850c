// The socket by which a running agent is asked, as both ends open it: `control.sock` in a folder whose path
// may be of any length, mode 0600.
#pragma once

#include <chrono>
#include <filesystem>

#include "launcher/process/worker_streams.hpp"

namespace cpprun::launcher {

inline constexpr char kControlSocket[] = "control.sock";

// Makes the socket and listens, without blocking. Throws std::system_error naming it.
FileDescriptor listen_at(const std::filesystem::path& folder);

// Connects; every read and write of the result ends after `patience`. Throws std::system_error: ENOENT or
// ECONNREFUSED where no agent listens, EAGAIN where it takes no connection.
FileDescriptor connect_to(const std::filesystem::path& folder, std::chrono::milliseconds patience);

// Whether the other end belongs to this process's user, or to root.
bool peer_is_trusted(int fd);

}  // namespace cpprun::launcher
