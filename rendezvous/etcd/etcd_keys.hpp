// Where a run's records lie in etcd. See "etcd" in RENDEZVOUS.md.
#pragma once

#include <optional>
#include <string>

namespace cpprun::rendezvous {

struct EtcdKeys {
  std::string root;  // of this run; ends in '/'

  std::string leader() const { return root + "leader"; }
  std::string last_word() const { return root + "last_word"; }
  std::string agents() const { return root + "agents/"; }
  std::string agent(const std::string& id) const { return agents() + id; }
  std::string orders() const { return root + "orders/"; }
  std::string order(const std::string& id) const { return orders() + id; }
};

inline EtcdKeys keys_of(std::string prefix, const std::string& run_id) {
  while (!prefix.empty() && prefix.back() == '/') prefix.pop_back();
  return {prefix + "/" + run_id + "/"};
}

// What follows `prefix` in `key`; nothing if something else does, or nothing at all.
inline std::optional<std::string> id_below(const std::string& prefix, const std::string& key) {
  const bool below = key.size() > prefix.size() && key.compare(0, prefix.size(), prefix) == 0;
  return below ? std::optional<std::string>(key.substr(prefix.size())) : std::nullopt;
}

}  // namespace cpprun::rendezvous
