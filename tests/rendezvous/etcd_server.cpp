#include "tests/rendezvous/etcd_server.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <thread>

namespace cpprun::rendezvous {
namespace {

constexpr const char* kProgram = "/usr/bin/etcd";
constexpr int kPortsTried = 5;
constexpr std::chrono::seconds kStartLimit(30);

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

std::string url(const std::string& protocol, std::uint16_t port) {
  return protocol + "://127.0.0.1:" + std::to_string(port);
}

std::vector<std::string> arguments(const EtcdServerOptions& options, const std::string& folder,
                                   std::uint16_t port) {
  const std::string clients = url(options.protocol, port);
  const std::string peers = url("http", options.peer_port);
  std::vector<std::string> words{kProgram,
                                 "--name",
                                 options.name,
                                 "--data-dir",
                                 folder + "/data",
                                 "--listen-client-urls",
                                 clients,
                                 "--advertise-client-urls",
                                 clients,
                                 "--listen-peer-urls",
                                 peers,
                                 "--initial-advertise-peer-urls",
                                 peers,
                                 "--initial-cluster",
                                 options.cluster.empty() ? options.name + "=" + peers : options.cluster,
                                 "--unsafe-no-fsync",
                                 "--logger",
                                 "zap"};
  words.insert(words.end(), options.more.begin(), options.more.end());
  return words;
}

}  // namespace

// Below the range from which the kernel hands out ports by itself: else another test's server may take it
// before etcd does, and be taken for it.
std::uint16_t free_port() {
  constexpr int kTries = 100;
  std::random_device device;
  std::uniform_int_distribution<int> number(12'000, 31'000);
  for (int i = 0; i < kTries; ++i) {
    const std::uint16_t port = static_cast<std::uint16_t>(number(device));
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = loopback(port);
    const bool bound = ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    ::close(fd);
    if (bound) return port;
  }
  throw std::runtime_error("no free port on 127.0.0.1");
}

EtcdServer::EtcdServer(const EtcdServerOptions& options) {
  if (!std::filesystem::exists(kProgram)) {
    throw std::runtime_error(std::string(kProgram) + " is missing: run scripts/setup.sh");
  }
  std::string folder = (std::filesystem::temp_directory_path() / "cpprun-etcd-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no temporary folder");
  folder_ = folder;
  // etcd cannot serve JSON on a port that the system chose, and somebody may be faster to a free one.
  for (int i = 0; i < kPortsTried; ++i) {
    if (start(options)) return;
  }
  const std::string words = log();
  std::filesystem::remove_all(folder_);
  throw std::runtime_error("etcd did not start:\n" + words);
}

EtcdServer::~EtcdServer() {
  signal(SIGKILL);
  std::filesystem::remove_all(folder_);
}

void EtcdServer::signal(int number) {
  if (pid_ <= 0) return;
  ::kill(pid_, number);
  if (number != SIGKILL) return;
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

// False if it ended instead of listening.
bool EtcdServer::start(const EtcdServerOptions& options) {
  port_ = free_port();
  std::vector<std::string> words = arguments(options, folder_.string(), port_);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string log_file = (folder_ / "log").string();
  const pid_t test = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int log = ::open(log_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(log, STDOUT_FILENO);
    ::dup2(log, STDERR_FILENO);
    if (::getppid() == test) ::execv(kProgram, argv.data());
    ::_exit(127);
  }
  const std::chrono::steady_clock::time_point limit = std::chrono::steady_clock::now() + kStartLimit;
  while (!listens()) {
    if (ended()) return false;
    if (std::chrono::steady_clock::now() > limit) throw std::runtime_error("etcd does not listen:\n" + log());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

bool EtcdServer::listens() const {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = loopback(port_);
  const bool connected = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  ::close(fd);
  return connected;
}

bool EtcdServer::ended() {
  if (::waitpid(pid_, nullptr, WNOHANG) != pid_) return false;
  pid_ = -1;
  return true;
}

std::string EtcdServer::log() const {
  std::ifstream file(folder_ / "log");
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace cpprun::rendezvous
