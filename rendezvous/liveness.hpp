// Which nodes still live, judged by their heartbeat counters. Pure. Counters, not times: the observer notes
// by its own clock when a counter last moved, so that clocks that differ between hosts kill nobody.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>

namespace cpprun::rendezvous {

class Liveness {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // A node is dead when its counter stood still for interval x attempts and in as many looks: an observer
  // that was itself stopped for a while has not looked.
  Liveness(std::chrono::milliseconds interval, int attempts) : interval_(interval), attempts_(attempts) {}

  // The counter of `node` as read at `now`. The first look starts the node's life.
  void observe(int node, std::int64_t count, TimePoint now);
  bool dead(int node, TimePoint now) const;
  // Whether its counter has been seen to move after `then`.
  bool moved_after(int node, TimePoint then) const;

 private:
  struct Seen {
    std::int64_t count;
    TimePoint moved;
    int looks_since;
  };
  std::chrono::milliseconds interval_;
  int attempts_;
  std::map<int, Seen> nodes_;
};

}  // namespace cpprun::rendezvous
