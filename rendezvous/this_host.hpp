// What this machine is called and which network interfaces it has.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <optional>
#include <string>

namespace cpprun::rendezvous {

std::string host_name();  // without a domain looked up

// Whether `host` is this machine, by a numeric address or one of the machine's names. Nothing for any other
// name: only the resolver knows.
std::optional<bool> is_this_host(const std::string& host);

// True for loopback and for the addresses of this machine's interfaces.
bool is_own_address(const boost::asio::ip::address& address);

// The name of the interface that has this address; empty if none has.
std::string interface_of(const boost::asio::ip::address& address);

}  // namespace cpprun::rendezvous
