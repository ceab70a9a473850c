#include "launcher/ctl/control_client.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>

#include "launcher/ctl/control_socket.hpp"
#include "rendezvous/async/clock.hpp"

namespace cpprun::launcher {
namespace {

using Kind = ControlError::Kind;

// Of an answer: the stacks of thousands of ranks are shorter.
constexpr std::size_t kMostBytes = std::size_t{512} << 20;

std::string place(const std::filesystem::path& folder) {
  return (folder / kControlSocket).string();
}

FileDescriptor connect(const std::filesystem::path& folder, std::chrono::milliseconds patience) {
  try {
    return connect_to(folder, patience);
  } catch (const std::system_error& error) {
    const int number = error.code().value();
    if (number == ENOENT || number == ECONNREFUSED || number == ENOTDIR || number == ENOTSOCK)
      throw ControlError(Kind::Nobody, "no cpprun of this host listens at " + place(folder));
    if (number == EACCES || number == EPERM)
      throw ControlError(Kind::Refused, place(folder) + " belongs to another user");
    if (number == EAGAIN)
      throw ControlError(Kind::Silent,
                         "the cpprun at " + place(folder) + " takes no request; is it stopped?");
    throw ControlError(Kind::Refused, "cannot connect to " + std::string(error.what()));
  }
}

std::string exchange(const FileDescriptor& socket, const std::string& line,
                     const std::filesystem::path& folder, std::chrono::milliseconds patience) {
  const ControlError silent(Kind::Silent, "the cpprun at " + place(folder) + " did not answer within " +
                                              std::to_string(patience.count() / 1000) + " s; is it stopped?");
  const ControlError closed(Kind::Refused, "the cpprun at " + place(folder) +
                                               " closed the connection: it answers its own user alone, and "
                                               "nobody once it ends");
  const async::Clock::time_point limit = async::Clock::now() + patience;
  if (::send(socket.get(), line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size()))
    throw closed;
  std::string reply;
  std::array<char, 64 * 1024> buffer;
  for (;;) {
    const ssize_t n = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) throw silent;
    if (n <= 0) throw closed;
    reply.append(buffer.data(), static_cast<std::size_t>(n));
    if (reply.back() == '\n') return reply;
    if (reply.size() > kMostBytes || async::Clock::now() > limit) throw silent;
  }
}

}  // namespace

std::string ask(const std::filesystem::path& folder, const std::string& request,
                std::chrono::milliseconds patience) {
  const FileDescriptor socket = connect(folder, patience);
  const std::string line = nlohmann::json{{"request", request}}.dump() + "\n";
  const nlohmann::ordered_json reply =
      nlohmann::ordered_json::parse(exchange(socket, line, folder, patience), nullptr, false);
  if (reply.is_object() && reply.contains(request)) return reply[request].dump();
  if (reply.is_object() && reply.contains("error") && reply["error"].is_string())
    throw ControlError(Kind::Refused, reply["error"].get<std::string>());
  throw ControlError(Kind::Silent, "what answers at " + place(folder) + " is no cpprun");
}

}  // namespace cpprun::launcher
