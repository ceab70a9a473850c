#include "rendezvous/store/secret.hpp"

#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace cpprun::store {
namespace {

constexpr std::size_t kKeyBytes = 32;
using Key = std::array<unsigned char, kKeyBytes>;

// Each node has the same, so its name tells nobody anything.
constexpr std::string_view kIdentity = "cpprun";
constexpr std::string_view kPurpose = "cpprun store, TLS 1.3 external PSK, 1";
constexpr char kCipher[] = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kCipherId[] = {0x13, 0x01};

[[noreturn]] void fail(const char* what) {
  throw std::runtime_error(std::string("OpenSSL refuses ") + what);
}

// Where a context keeps its key.
int key_index() {
  static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return index;
}

// The key as what TLS 1.3 calls a session to go on from. The caller's.
SSL_SESSION* new_session(SSL* tls) {
  const Key& key = *static_cast<const Key*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(tls), key_index()));
  SSL_SESSION* session = SSL_SESSION_new();
  const SSL_CIPHER* cipher = SSL_CIPHER_find(tls, kCipherId);
  if (session && cipher && SSL_SESSION_set1_master_key(session, key.data(), key.size()) == 1 &&
      SSL_SESSION_set_cipher(session, cipher) == 1 &&
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
    return session;
  }
  SSL_SESSION_free(session);
  return nullptr;
}

int find_session(SSL* tls, const unsigned char* identity, std::size_t length, SSL_SESSION** session) {
  const bool ours = std::string_view(reinterpret_cast<const char*>(identity), length) == kIdentity;
  *session = ours ? new_session(tls) : nullptr;
  return !ours || *session ? 1 : 0;
}

int use_session(SSL* tls, const EVP_MD*, const unsigned char** identity, std::size_t* length,
                SSL_SESSION** session) {
  *identity = reinterpret_cast<const unsigned char*>(kIdentity.data());
  *length = kIdentity.size();
  *session = new_session(tls);
  return *session ? 1 : 0;
}

// ---- OpenSSL's own socket BIO would raise SIGPIPE.

int fd_of(BIO* bio) {
  return *static_cast<const int*>(BIO_get_data(bio));
}

int retried(BIO* bio, ssize_t n, int flag) {
  BIO_clear_retry_flags(bio);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_flags(bio, flag | BIO_FLAGS_SHOULD_RETRY);
  return static_cast<int>(n);
}

int write_socket(BIO* bio, const char* bytes, int length) {
  const ssize_t n = ::send(fd_of(bio), bytes, static_cast<std::size_t>(length), MSG_NOSIGNAL);
  return retried(bio, n, BIO_FLAGS_WRITE);
}

int read_socket(BIO* bio, char* bytes, int length) {
  const ssize_t n = ::recv(fd_of(bio), bytes, static_cast<std::size_t>(length), 0);
  if (n == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return retried(bio, n, BIO_FLAGS_READ);
}

int free_socket(BIO* bio) {
  delete static_cast<int*>(BIO_get_data(bio));
  return 1;
}

long control_socket(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

BIO_METHOD* socket_method() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket without SIGPIPE");
    if (!made) fail("a BIO method");
    BIO_meth_set_write(made, write_socket);
    BIO_meth_set_read(made, read_socket);
    BIO_meth_set_ctrl(made, control_socket);
    BIO_meth_set_destroy(made, free_socket);
    return made;
  }();
  return method;
}

struct FreeContext {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using Context = std::unique_ptr<SSL_CTX, FreeContext>;

// TLS 1.3 and nothing older, one cipher, no tickets, no early data, and no way in but by the key.
Context make_context(const SSL_METHOD* method, Key& key) {
  Context context(SSL_CTX_new(method));
  if (!context) fail("a TLS context");
  SSL_CTX* raw = context.get();
  if (SSL_CTX_set_min_proto_version(raw, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(raw, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(raw, kCipher) != 1 || SSL_CTX_set_num_tickets(raw, 0) != 1 ||
      SSL_CTX_set_max_early_data(raw, 0) != 1 || SSL_CTX_set_ex_data(raw, key_index(), &key) != 1) {
    fail("TLS 1.3 with a shared key");
  }
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  // An end without TLS's own goodbye is an end: what is carried says itself where it is complete.
  SSL_CTX_set_options(raw, SSL_OP_NO_TICKET | SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(
      raw, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  return context;
}

ByteStream over(SSL_CTX* context, int fd, void (*role)(SSL*)) {
  std::unique_ptr<SSL, ByteStream::FreeTls> tls(SSL_new(context));
  BIO* bio = tls ? BIO_new(socket_method()) : nullptr;
  if (!bio) fail("another connection");
  BIO_set_data(bio, new int(fd));
  BIO_set_init(bio, 1);
  SSL_set_bio(tls.get(), bio, bio);
  role(tls.get());
  return ByteStream(fd, std::move(tls));
}

std::string unusable(const std::string& path, const std::string& why) {
  return "the secret file '" + path + "' " + why;
}

}  // namespace

struct Secret::Contexts {
  ~Contexts() { OPENSSL_cleanse(key.data(), key.size()); }

  Key key{};
  Context server;
  Context client;
};

Secret::Secret(std::string_view bytes) : contexts_(std::make_unique<Contexts>()) {
  if (bytes.size() < kMinSecretBytes || bytes.size() > kMaxSecretBytes) {
    throw SecretError("a secret has " + std::to_string(kMinSecretBytes) + " to " +
                      std::to_string(kMaxSecretBytes) + " bytes, not " + std::to_string(bytes.size()));
  }
  std::size_t length = 0;
  const unsigned char* mac =
      EVP_Q_mac(nullptr, "HMAC", nullptr, "SHA256", nullptr, bytes.data(), bytes.size(),
                reinterpret_cast<const unsigned char*>(kPurpose.data()), kPurpose.size(),
                contexts_->key.data(), contexts_->key.size(), &length);
  if (!mac || length != kKeyBytes) fail("HMAC with SHA-256");
  contexts_->server = make_context(TLS_server_method(), contexts_->key);
  contexts_->client = make_context(TLS_client_method(), contexts_->key);
  SSL_CTX_set_psk_find_session_callback(contexts_->server.get(), find_session);
  SSL_CTX_set_psk_use_session_callback(contexts_->client.get(), use_session);
  // A server that would rather show a certificate has nobody who vouches for it.
  SSL_CTX_set_verify(contexts_->client.get(), SSL_VERIFY_PEER, nullptr);
}

Secret::~Secret() = default;
Secret::Secret(Secret&&) noexcept = default;
Secret& Secret::operator=(Secret&&) noexcept = default;

Secret Secret::from_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw SecretError(unusable(path, "cannot be read: " + std::system_category().message(errno)));
  struct stat status {};
  std::array<char, kMaxSecretBytes + 1> bytes;
  const bool regular = ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
  const ssize_t n = regular ? ::read(fd, bytes.data(), bytes.size()) : 0;
  const int error = errno;
  ::close(fd);
  if (!regular) throw SecretError(unusable(path, "is no regular file"));
  if (n < 0) throw SecretError(unusable(path, "cannot be read: " + std::system_category().message(error)));
  const std::size_t size = static_cast<std::size_t>(n);
  if (size > kMaxSecretBytes) {
    throw SecretError(unusable(path, "has more than " + std::to_string(kMaxSecretBytes) + " bytes"));
  }
  if (size < kMinSecretBytes) {
    throw SecretError(
        unusable(path, "has " + std::to_string(size) + " bytes, and a secret needs at least " +
                           std::to_string(kMinSecretBytes) +
                           ": make one with 'head -c 32 /dev/urandom > FILE', and give every node "
                           "a copy"));
  }
  Secret secret{std::string_view(bytes.data(), size)};
  OPENSSL_cleanse(bytes.data(), bytes.size());
  return secret;
}

ByteStream Secret::accept(int fd) const {
  return over(contexts_->server.get(), fd, SSL_set_accept_state);
}

ByteStream Secret::connect(int fd) const {
  return over(contexts_->client.get(), fd, SSL_set_connect_state);
}

bool readable_by_others(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && (status.st_mode & (S_IRGRP | S_IROTH)) != 0;
}

}  // namespace cpprun::store
