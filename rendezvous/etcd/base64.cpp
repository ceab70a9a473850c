#include "rendezvous/etcd/base64.hpp"

#include <openssl/evp.h>

namespace cpprun::rendezvous {
namespace {

unsigned char* raw(std::string& text) {
  return reinterpret_cast<unsigned char*>(text.data());
}
const unsigned char* raw(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // OpenSSL writes a final zero
  const int size = EVP_EncodeBlock(raw(text), raw(bytes), static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(size));
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.empty()) return std::string();
  // OpenSSL would overlook blanks around the text and '=' within it, and it gives the padding as zero bytes.
  const std::size_t end = text.find_last_not_of('=') + 1;
  const std::size_t padding = text.size() - end;
  const bool letters = text.find_first_of("= \t\r\n") >= end;
  if (!letters || text.size() % 4 != 0 || padding > 2) return std::nullopt;
  std::string bytes(text.size() / 4 * 3, '\0');
  if (EVP_DecodeBlock(raw(bytes), raw(text), static_cast<int>(text.size())) < 0) return std::nullopt;
  bytes.resize(bytes.size() - padding);
  return bytes;
}

}  // namespace cpprun::rendezvous
