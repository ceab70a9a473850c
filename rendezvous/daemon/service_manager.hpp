// What systemd, or whoever started this process, gives and is told: listening sockets (LISTEN_FDS), readiness
// (NOTIFY_SOCKET), and the ports on a descriptor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cpprun::rendezvous {

// Descriptors that listen already, in systemd's order; none if this process was not started by a socket unit.
// Takes them: the variables are gone afterwards, and the descriptors are closed in children. Throws
// std::invalid_argument for variables that make no sense.
std::vector<int> take_listening_sockets();

// "READY=1", "STOPPING=1", "STATUS=..."; nothing happens where nobody listens.
void notify_service_manager(const std::string& state);

// Writes one line for each port and closes the descriptor. Throws std::system_error.
void announce_ports(int fd, const std::vector<std::uint16_t>& ports);

}  // namespace cpprun::rendezvous
