#include "rendezvous/store/byte_stream.hpp"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace cpprun::store {
namespace {

int length_of(std::size_t bytes) {
  return static_cast<int>(std::min<std::size_t>(bytes, INT_MAX));
}

TlsFailure failure_for(int reason, bool understood) {
  if (understood) return TlsFailure::Broken;
  switch (reason) {
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_UNEXPECTED_MESSAGE:
    case SSL_R_BAD_RECORD_TYPE:
    case SSL_R_RECORD_LENGTH_MISMATCH:
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:  // what refuse_tls() sends
      return TlsFailure::NotTls;
    default:
      return TlsFailure::OtherSecret;
  }
}

}  // namespace

void ByteStream::FreeTls::operator()(ssl_st* tls) const {
  SSL_free(tls);
}

ssize_t ByteStream::receive(std::span<char> into) {
  if (!tls_) {
    waits_to_write_ = false;
    return ::recv(fd_, into.data(), into.size(), 0);
  }
  ERR_clear_error();
  return result_of(SSL_read(tls_.get(), into.data(), length_of(into.size())));
}

ssize_t ByteStream::send(std::string_view bytes) {
  if (!tls_) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    waits_to_write_ = n < 0;
    return n;
  }
  ERR_clear_error();
  return result_of(SSL_write(tls_.get(), bytes.data(), length_of(bytes.size())));
}

// Of a call on tls_.
ssize_t ByteStream::result_of(int n) {
  if (n > 0) {
    understood_ = true;
    waits_to_write_ = false;
    return n;
  }
  const int system = errno;
  switch (SSL_get_error(tls_.get(), n)) {
    case SSL_ERROR_ZERO_RETURN:
      return 0;
    case SSL_ERROR_WANT_READ:
      waits_to_write_ = false;
      errno = EAGAIN;
      return -1;
    case SSL_ERROR_WANT_WRITE:
      waits_to_write_ = true;
      errno = EAGAIN;
      return -1;
    case SSL_ERROR_SYSCALL:
      errno = system == 0 ? ECONNRESET : system;
      return -1;
    default:
      failure_ = failure_for(ERR_GET_REASON(ERR_peek_error()), understood_);
      ERR_clear_error();
      errno = EPROTO;
      return -1;
  }
}

}  // namespace cpprun::store
