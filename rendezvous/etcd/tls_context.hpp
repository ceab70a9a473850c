// What a client needs to speak TLS: whom it trusts and who it is.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <string>

#include "rendezvous/async/tokens.hpp"
#include "rendezvous/etcd/etcd_options.hpp"

namespace cpprun::rendezvous {

// Reads the files. Throws SettingsError for one that cannot be read or does not hold what it should.
asio::ssl::context make_tls_context(const EtcdTls& files);

}  // namespace cpprun::rendezvous
