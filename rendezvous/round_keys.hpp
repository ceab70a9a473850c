// The names of a round's keys; RENDEZVOUS.md says who writes and who reads them.
#pragma once

#include <string>

namespace cpprun::rendezvous::keys {

inline constexpr char kRound[] = "round";  // the only key outside a round
inline constexpr char kArrivals[] = "arrivals";
inline constexpr char kMissing[] = "missing";
inline constexpr char kEnd[] = "end";
inline constexpr char kFinished[] = "finished";
inline constexpr char kAllFinished[] = "all_finished";

inline std::string node(int slot) {
  return "node/" + std::to_string(slot);
}
inline std::string place(int slot) {
  return "place/" + std::to_string(slot);
}
inline std::string alive(int slot) {
  return "alive/" + std::to_string(slot);
}
inline std::string gone(int slot) {
  return "gone/" + std::to_string(slot);
}
inline std::string seen(int slot) {
  return "seen/" + std::to_string(slot);
}

}  // namespace cpprun::rendezvous::keys
