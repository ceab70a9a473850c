// Addresses as people read them: numeric, never looked up, IPv4 in its own notation also on an IPv6 socket.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <string>

#include "rendezvous/async/tokens.hpp"

namespace cpprun::store {

inline std::string to_text(asio::ip::address address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    address = asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
  }
  return address.to_string();
}

// host:port, an IPv6 host in brackets.
inline std::string to_text(const std::string& host, std::uint16_t port) {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

inline std::string to_text(const asio::ip::tcp::endpoint& endpoint) {
  return to_text(to_text(endpoint.address()), endpoint.port());
}

}  // namespace cpprun::store
