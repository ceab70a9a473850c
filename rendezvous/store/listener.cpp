// The listening socket of a store server.
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "rendezvous/store/store_server.hpp"

namespace cpprun::store {
namespace {

using asio::ip::tcp;

// Opened here rather than by Asio, which would let children inherit the descriptor. Throws nothing: the error
// is in `errno` and the acceptor is closed.
tcp::acceptor try_listen(asio::io_context& context, const tcp::endpoint& endpoint, bool both_families) {
  tcp::acceptor acceptor(context);
  const int fd =
      ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
  if (fd < 0) return acceptor;
  acceptor.assign(endpoint.protocol(), fd);
  const int on = 1;
  const int only_v6 = both_families ? 0 : 1;
  const bool v6 = endpoint.protocol() == tcp::v6();
  const bool ready = ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                     (!v6 || ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only_v6, sizeof only_v6) == 0) &&
                     ::bind(fd, endpoint.data(), static_cast<socklen_t>(endpoint.size())) == 0 &&
                     ::listen(fd, SOMAXCONN) == 0;
  if (ready) return acceptor;
  const int error = errno;
  acceptor.close();
  errno = error;
  return acceptor;
}

}  // namespace

tcp::acceptor bind_acceptor(asio::io_context& context, const std::optional<asio::ip::address>& address,
                            std::uint16_t port) {
  tcp::acceptor acceptor = address
                               ? try_listen(context, tcp::endpoint(*address, port), false)
                               : try_listen(context, tcp::endpoint(asio::ip::address_v6::any(), port), true);
  // A host without IPv6, or with it switched off.
  if (!acceptor.is_open() && !address && errno != EADDRINUSE && errno != EACCES) {
    acceptor = try_listen(context, tcp::endpoint(asio::ip::address_v4::any(), port), false);
  }
  if (acceptor.is_open()) return acceptor;
  const std::error_code error(errno, std::system_category());
  const std::string where = address ? address->to_string() : "every interface";
  throw std::system_error(error, "cannot listen on " + where + ", port " + std::to_string(port));
}

}  // namespace cpprun::store
