#include "rendezvous/endpoint_troubles.hpp"

namespace cpprun::rendezvous {

std::string joined(const std::string& what, const std::string& more) {
  if (what.find(more) != std::string::npos) return what;
  if (more.find(what) != std::string::npos) return more;
  return what + "; " + more;
}

std::string EndpointTroubles::all() const {
  std::string text;
  for (const std::string& phrase : phrases_) text = joined(text, phrase);
  return text;
}

}  // namespace cpprun::rendezvous
