// The rendezvous of a job of one node: there is nobody to meet, and the store is this process's own.
#pragma once

#include <optional>

#include "rendezvous/rendezvous_handler.hpp"
#include "rendezvous/store/local_store.hpp"

namespace cpprun::rendezvous {

class SoloRendezvous : public RendezvousHandler {
 public:
  // `address`: of this machine, for the workers.
  SoloRendezvous(asio::any_io_executor executor, std::string address);

  awaitable<RendezvousInfo> next_rendezvous() override;
  store::Store& round_store() override { return *store_; }
  awaitable<RoundEvent> round_ended() override;
  awaitable<FinishEvent> finish() override;
  awaitable<RoundEnd> end_round(RoundEnd wanted) override;
  awaitable<void> leave(RoundEnd wanted) override;
  awaitable<void> close() override;

 private:
  asio::any_io_executor executor_;
  std::string address_;
  std::optional<store::LocalStore> store_;  // of the present round
  int round_ = -1;
  int restarts_ = 0;
};

}  // namespace cpprun::rendezvous
