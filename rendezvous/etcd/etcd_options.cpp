#include "rendezvous/etcd/etcd_options.hpp"

namespace cpprun::rendezvous {
namespace {

std::string text_of(const Settings& settings, const char* key, const char* absent = "") {
  const Settings::const_iterator entry = settings.find(key);
  return entry == settings.end() ? absent : entry->second;
}

}  // namespace

EtcdOptions etcd_options_of(const Settings& settings) {
  EtcdOptions options;
  const std::string protocol = text_of(settings, "protocol", "http");
  if (protocol != "http" && protocol != "https") {
    throw SettingsError("protocol=" + protocol + " is no protocol of etcd; use http or https");
  }
  options.https = protocol == "https";
  options.tls = {text_of(settings, "cacert", text_of(settings, "ca_cert").c_str()),
                 text_of(settings, "cert", text_of(settings, "ssl_cert").c_str()),
                 text_of(settings, "key", text_of(settings, "ssl_cert_key").c_str())};
  if (!options.tls.key.empty() && options.tls.cert.empty()) {
    throw SettingsError("key=" + options.tls.key + " needs the certificate it belongs to: add cert=FILE");
  }
  return options;
}

}  // namespace cpprun::rendezvous
