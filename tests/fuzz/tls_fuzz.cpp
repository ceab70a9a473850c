// What a stranger may send to a store that has a secret: none of it is ever taken for a client's bytes, and
// the peer is answered, waited for or refused.
//
// The input is a list of pieces, each a two-byte length and the bytes.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "rendezvous/store/secret.hpp"
#include "tests/fuzz/require.hpp"

using namespace cpprun::store;
using cpprun::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Secret secret(std::string(kMinSecretBytes, 's'));
  std::string_view input(reinterpret_cast<const char*>(data), size);
  int ends[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0,
          "a pair of sockets");
  ByteStream server = secret.accept(ends[0]);
  std::array<char, 4096> bytes;
  for (bool open = true; open;) {
    const bool last = input.size() < 2;
    if (last) {
      ::shutdown(ends[1], SHUT_WR);
    } else {
      const std::size_t length =
          static_cast<unsigned char>(input[0]) + std::size_t{256} * static_cast<unsigned char>(input[1]);
      const std::string_view piece = input.substr(2, length);
      input.remove_prefix(2 + piece.size());
      if (!piece.empty()) ::send(ends[1], piece.data(), piece.size(), MSG_NOSIGNAL);
    }
    const ssize_t n = server.receive(bytes);
    require(n <= 0, "nobody without the secret is understood");
    open = n < 0 && errno == EAGAIN && !last;
    require(open || n == 0 || last || server.failure() != TlsFailure::None, "a refusal has a reason");
    while (::recv(ends[1], bytes.data(), bytes.size(), 0) > 0) {
    }
  }
  ::close(ends[0]);
  ::close(ends[1]);
  return 0;
}
