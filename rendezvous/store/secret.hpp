// What the nodes of a job share so that nobody else can speak to its stores: a key for TLS 1.3 (RFC 8446,
// external PSK with an ephemeral exchange), which authenticates both sides. There are no certificates.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "rendezvous/store/byte_stream.hpp"

namespace cpprun::store {

inline constexpr std::size_t kMinSecretBytes = 32;
inline constexpr std::size_t kMaxSecretBytes = 4096;

// A secret that cannot be used; the sentence names the file and what to do.
struct SecretError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Secret {
 public:
  // The file's bytes, all of them. Throws SecretError: unreadable, no regular file, or of another length than
  // allowed.
  static Secret from_file(const std::string& path);
  // `bytes`: kMinSecretBytes to kMaxSecretBytes, which nobody could guess.
  explicit Secret(std::string_view bytes);
  ~Secret();
  Secret(Secret&&) noexcept;
  Secret& operator=(Secret&&) noexcept;

  // TLS on a connected, non-blocking socket, which stays the caller's. The handshake is done by the first
  // calls that receive or send.
  ByteStream accept(int fd) const;
  ByteStream connect(int fd) const;

 private:
  struct Contexts;
  std::unique_ptr<Contexts> contexts_;
};

// Whether others than its owner may read the file, of which a user should hear.
bool readable_by_others(const std::string& path);

}  // namespace cpprun::store
