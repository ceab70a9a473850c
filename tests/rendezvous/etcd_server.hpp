// A real etcd server for a test: one process on loopback with a temporary data folder, which both end with
// the object (or with the test's process).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace cpprun::rendezvous {

// A port on 127.0.0.1 that was free just now.
std::uint16_t free_port();

struct EtcdServerOptions {
  std::string protocol = "http";
  std::vector<std::string> more;  // arguments
  // Of a cluster with more members: this member's name and the port at which the others find it, and
  // "name=http://127.0.0.1:port,..." of all.
  std::string name = "only";
  std::uint16_t peer_port = 0;
  std::string cluster;
};

class EtcdServer {
 public:
  // Returns once it listens; throws std::runtime_error with etcd's log if it does not.
  explicit EtcdServer(const EtcdServerOptions& options = {});
  ~EtcdServer();
  EtcdServer(const EtcdServer&) = delete;
  EtcdServer& operator=(const EtcdServer&) = delete;

  std::uint16_t port() const { return port_; }
  const std::filesystem::path& folder() const { return folder_; }
  // SIGKILL also waits for its end; SIGSTOP freezes it.
  void signal(int number);

 private:
  bool start(const EtcdServerOptions& options);
  bool listens() const;
  bool ended();
  std::string log() const;

  std::filesystem::path folder_;
  std::uint16_t port_ = 0;
  pid_t pid_ = -1;
};

}  // namespace cpprun::rendezvous
