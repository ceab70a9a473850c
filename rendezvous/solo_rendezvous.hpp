// The rendezvous of a job of one node: there is nobody to meet.
#pragma once

#include <string>

#include "rendezvous/rendezvous_handler.hpp"

namespace cpprun::rendezvous {

class SoloRendezvous : public RendezvousHandler {
 public:
  // `address`: of this machine, for its workers, of which there are so many.
  SoloRendezvous(std::string address, int workers, int max_restarts, OpenWorkerStore open_store);

  awaitable<std::optional<RendezvousInfo>> next_rendezvous() override;
  awaitable<RoundEvent> round_ended() override;
  awaitable<FinishEvent> finish() override;
  awaitable<async::Deadline> fenced_before(async::Deadline limit) override;
  void end_round(RoundEnd wanted) override { end_ = std::move(wanted); }
  awaitable<RoundEnd> settled() override;
  void leave(RoundEnd) override {}
  awaitable<void> close(std::string why) override;

 private:
  std::string address_;
  int workers_;
  int max_restarts_;
  OpenWorkerStore open_store_;
  RoundEnd end_;
  int round_ = -1;
  int restarts_ = 0;
};

}  // namespace cpprun::rendezvous
