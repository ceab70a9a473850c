#include "rendezvous/etcd/tls_context.hpp"

#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>

namespace cpprun::rendezvous {
namespace {

using async::error_code;

// OpenSSL's own words for a missing file are of no help.
void require_readable(const char* setting, const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"), &std::fclose);
  if (file) return;
  throw SettingsError(std::string(setting) + "=" + path +
                      " cannot be read: " + std::system_category().message(errno));
}

void require(const error_code& error, const char* setting, const std::string& path, const char* what) {
  if (error) {
    throw SettingsError(std::string(setting) + "=" + path + " holds no " + what + ": " + error.message());
  }
}

}  // namespace

asio::ssl::context make_tls_context(const EtcdTls& files) {
  asio::ssl::context context(asio::ssl::context::tls_client);
  context.set_verify_mode(asio::ssl::verify_peer);
  error_code error;
  if (files.cacert.empty()) {
    context.set_default_verify_paths();
  } else {
    require_readable("cacert", files.cacert);
    context.load_verify_file(files.cacert, error);
    require(error, "cacert", files.cacert, "certificates in PEM");
  }
  if (files.cert.empty()) return context;
  require_readable("cert", files.cert);
  context.use_certificate_chain_file(files.cert, error);
  require(error, "cert", files.cert, "certificate in PEM");
  const bool own_file = !files.key.empty();
  const std::string& key = own_file ? files.key : files.cert;
  if (own_file) require_readable("key", key);
  // Nobody is asked for the password of an encrypted key: such a key is refused.
  context.set_password_callback([](std::size_t, asio::ssl::context::password_purpose) { return ""; });
  context.use_private_key_file(key, asio::ssl::context::pem, error);
  require(error, own_file ? "key" : "cert", key,
          "private key in PEM, without a password, that fits the certificate");
  return context;
}

}  // namespace cpprun::rendezvous
