#include "rendezvous/this_host.hpp"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <unistd.h>

#include <boost/asio/ip/address_v6.hpp>
#include <cstring>
#include <memory>

namespace cpprun::rendezvous {
namespace {

namespace ip = boost::asio::ip;

std::optional<ip::address> address_in(const sockaddr* socket) {
  if (!socket) return std::nullopt;
  if (socket->sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, socket, sizeof v4);
    return ip::address_v4(ntohl(v4.sin_addr.s_addr));
  }
  if (socket->sa_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, socket, sizeof v6);
    ip::address_v6::bytes_type bytes;
    std::memcpy(bytes.data(), &v6.sin6_addr, bytes.size());
    return ip::address_v6(bytes);
  }
  return std::nullopt;
}

// IPv4 in its own notation, IPv6 without its zone.
ip::address plain(const ip::address& address) {
  if (!address.is_v6()) return address;
  const ip::address_v6 v6 = address.to_v6();
  if (v6.is_v4_mapped()) return ip::make_address_v4(ip::v4_mapped, v6);
  return ip::address_v6(v6.to_bytes());
}

}  // namespace

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

std::optional<bool> is_this_host(const std::string& host) {
  boost::system::error_code not_numeric;
  const ip::address numeric = ip::make_address(host, not_numeric);
  if (!not_numeric) return is_own_address(numeric);
  const std::string own = host_name();
  if (host == "localhost" || host == own || host == own.substr(0, own.find('.'))) return true;
  return std::nullopt;
}

bool is_own_address(const ip::address& address) {
  return plain(address).is_loopback() || !interface_of(address).empty();
}

std::string interface_of(const ip::address& address) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(all, &::freeifaddrs);
  for (const ifaddrs* entry = all; entry; entry = entry->ifa_next) {
    const std::optional<ip::address> own = address_in(entry->ifa_addr);
    if (own && plain(*own) == plain(address)) return entry->ifa_name;
  }
  return "";
}

}  // namespace cpprun::rendezvous
