// How to reach etcd: what --rdzv-endpoint and --rdzv-conf say about it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "rendezvous/rendezvous_settings.hpp"

namespace cpprun::rendezvous {

// Files in PEM; empty: not given.
struct EtcdTls {
  std::string cacert;  // who vouches for the server; the system's authorities if not given
  std::string cert;    // this client's certificate, and the chain above it
  std::string key;     // of `cert`; the file `cert` holds it too if not given
};

struct EtcdOptions {
  bool https = false;
  EtcdTls tls;
  // For connecting, whatever the number of endpoints, and again for the answer: a call ends within twice
  // this.
  std::chrono::milliseconds request_limit{3'000};
  // In which a watch notices that its connection is dead, give or take a second.
  std::chrono::milliseconds silence_limit{3'000};
};

// Of --rdzv-conf: protocol (http, https), cacert, cert, key, or the last three as torchrun's etcd-v2 spells
// them: ca_cert, ssl_cert, ssl_cert_key. Throws SettingsError for another protocol and
// for a key without a certificate; the files are read when a client is made.
EtcdOptions etcd_options_of(const Settings& settings);

}  // namespace cpprun::rendezvous
