#include "rendezvous/liveness.hpp"

namespace cpprun::rendezvous {

void Liveness::observe(int node, std::int64_t count, TimePoint now) {
  const auto [entry, first] = nodes_.try_emplace(node, Seen{count, now, 0});
  Seen& seen = entry->second;
  if (first) return;
  if (count == seen.count) {
    ++seen.looks_since;
  } else {
    seen = {count, now, 0};
  }
}

bool Liveness::dead(int node, TimePoint now) const {
  const auto entry = nodes_.find(node);
  if (entry == nodes_.end()) return false;
  const Seen& seen = entry->second;
  return seen.looks_since >= attempts_ && now - seen.moved >= interval_ * attempts_;
}

bool Liveness::moved_after(int node, TimePoint then) const {
  const auto entry = nodes_.find(node);
  return entry != nodes_.end() && entry->second.moved > then;
}

}  // namespace cpprun::rendezvous
