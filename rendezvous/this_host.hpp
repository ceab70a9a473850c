// What this machine is called and which network interfaces it has.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <string>

namespace cpprun::rendezvous {

std::string host_name();  // without a domain looked up

// True if `host` is a loopback or interface address of this machine, one of its names, or a name that the
// resolver turns into such an address. May wait for the resolver.
bool is_this_host(const std::string& host);

// The name of the interface that has this address; empty if none has.
std::string interface_of(const boost::asio::ip::address& address);

}  // namespace cpprun::rendezvous
