// The bytes of one connected, non-blocking socket, plain or under TLS.
#pragma once

#include <sys/types.h>

#include <memory>
#include <span>
#include <string_view>

struct ssl_st;

namespace cpprun::store {

// Why TLS could not begin, or go on.
enum class TlsFailure {
  None,
  NotTls,       // the peer's first bytes are none of TLS
  OtherSecret,  // the peer has another secret, or none
  Broken,       // bytes that nobody who knows the secret has sent
};

class ByteStream {
 public:
  // Plain. The socket stays the caller's.
  explicit ByteStream(int fd) : fd_(fd) {}
  // Under TLS.
  struct FreeTls {
    void operator()(ssl_st* tls) const;
  };
  ByteStream(int fd, std::unique_ptr<ssl_st, FreeTls> tls) : fd_(fd), tls_(std::move(tls)) {}

  // As recv(2) and send(2) do: the number of bytes, 0 at the peer's end, or -1 and errno: EAGAIN where the
  // socket has to become ready first (see waits_to_write), EPROTO where TLS failed (see failure). Neither
  // raises SIGPIPE. After an EAGAIN of send the next call must begin with the same bytes.
  ssize_t receive(std::span<char> into);
  ssize_t send(std::string_view bytes);

  // After EAGAIN: the socket has to become writable, not readable.
  bool waits_to_write() const { return waits_to_write_; }
  TlsFailure failure() const { return failure_; }
  bool secret() const { return tls_ != nullptr; }
  int fd() const { return fd_; }

 private:
  ssize_t result_of(int n);

  int fd_;
  bool waits_to_write_ = false;
  bool understood_ = false;  // under TLS: the handshake is over
  TlsFailure failure_ = TlsFailure::None;
  std::unique_ptr<ssl_st, FreeTls> tls_;
};

}  // namespace cpprun::store
