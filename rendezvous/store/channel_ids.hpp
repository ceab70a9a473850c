// The ids of clients that have no connection of their own here: they come over links.
#pragma once

#include <cstdint>
#include <vector>

#include "rendezvous/store/store_table.hpp"

namespace cpprun::store {

class ChannelIds {
 public:
  struct Owner {
    ConnectionId link = 0;
    std::uint32_t channel = 0;  // of that link
  };

  // Apart from the ids of connections, which never come so high.
  static bool holds(ConnectionId id) { return (id & kBit) != 0; }

  ConnectionId take(Owner owner) {
    if (free_.empty()) {
      free_.push_back(static_cast<ConnectionId>(owners_.size()));
      owners_.emplace_back();
    }
    const ConnectionId index = free_.back();
    free_.pop_back();
    owners_[index] = owner;
    return index | kBit;
  }
  void release(ConnectionId id) { free_.push_back(id & ~kBit); }
  const Owner& owner(ConnectionId id) const { return owners_[id & ~kBit]; }

 private:
  static constexpr ConnectionId kBit = 0x80000000;

  std::vector<Owner> owners_;
  std::vector<ConnectionId> free_;
};

}  // namespace cpprun::store
