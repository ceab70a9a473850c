// How often one address may fail to prove the secret: who guesses is not even heard for a while. Pure.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <chrono>
#include <cstddef>
#include <map>

#include "rendezvous/async/clock.hpp"

namespace cpprun::store {

class RefusalLimit {
 public:
  static constexpr int kFailures = 20;
  static constexpr std::chrono::seconds kWindow{10};  // from the first of them
  static constexpr std::size_t kAddresses = 1024;     // that are remembered; further ones are not limited

  using TimePoint = async::Clock::time_point;
  using Address = boost::asio::ip::address;

  void failed(const Address& address, TimePoint now) {
    if (failures_.size() >= kAddresses) {
      std::erase_if(failures_, [now](const auto& entry) { return entry.second.until <= now; });
    }
    if (failures_.size() >= kAddresses && !failures_.contains(address)) return;
    Count& count = failures_[address];
    if (count.until <= now) count = {0, now + kWindow};
    ++count.number;
  }

  bool exceeded(const Address& address, TimePoint now) const {
    const auto count = failures_.find(address);
    return count != failures_.end() && count->second.number >= kFailures && now < count->second.until;
  }

 private:
  struct Count {
    int number = 0;
    TimePoint until{};
  };
  std::map<Address, Count> failures_;
};

}  // namespace cpprun::store
