// What TCP has carried for a process, as the kernel's socket monitor (sock_diag) counts it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>

namespace cpprun::launcher {

// Of every connection of this machine, or network namespace, over IPv4 and IPv6.
class SocketBytes {
 public:
  // Asks the kernel; afterwards of() answers from what it said. False where it does not tell.
  bool refresh();
  // Bytes acknowledged and received on the sockets that `pid` holds now.
  std::uint64_t of(pid_t pid) const;

 private:
  std::map<std::uint64_t, std::uint64_t> by_inode_;
};

}  // namespace cpprun::launcher
