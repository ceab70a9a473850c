// Bytes as etcd's JSON carries them: base64 with padding, without line ends.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace cpprun::rendezvous {

std::string to_base64(std::string_view bytes);
// Nothing if `text` is no base64.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace cpprun::rendezvous
