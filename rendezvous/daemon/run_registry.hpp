// The runs that a daemon leads: one council each, made when its first agent opens it and dropped when the run
// is done, or when nobody has been connected for a while.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/async/deadline.hpp"
#include "rendezvous/async/event.hpp"
#include "rendezvous/council/council.hpp"
#include "rendezvous/store/agent_desk.hpp"
#include "rendezvous/store/run_desk.hpp"

namespace cpprun::rendezvous {

struct RegistryLimits {
  std::size_t runs = 1000;                  // at once
  std::chrono::milliseconds idle{300'000};  // without any agent, after which a run is forgotten
};

struct RunReading {
  std::string run;
  std::size_t agents = 0;  // connected
  RunView view;
};

class RunRegistry : public store::AgentDesk {
 public:
  RunRegistry(asio::any_io_executor executor, RegistryLimits limits);
  ~RunRegistry() override;

  // Until cancelled: drops what is over. Then every council has ended.
  awaitable<void> run();

  // From now on no new run is opened; returns when there is none left, or at the limit.
  awaitable<void> drain(async::Deadline limit);
  // The agents that are left hear that their run ends because of `why`. Bounded; while run() runs.
  awaitable<void> say_farewell(std::string why);

  std::vector<RunReading> runs() const;
  std::uint64_t opened() const { return opened_; }    // runs, ever
  std::uint64_t refused() const { return refused_; }  // connections

  std::uint8_t admit(const store::Opening& opening) override;
  void take(const store::Opening& opening, store::OpenedConnection&& connection) override;

 private:
  struct Run;

  std::uint8_t begin(const store::Opening& opening);
  std::uint8_t refuse(const store::Opening& opening, std::uint8_t answer, const char* why);
  bool is_over(Run& run) const;
  awaitable<void> end(std::unique_ptr<Run> run, const char* why);

  asio::any_io_executor executor_;
  RegistryLimits limits_;
  std::map<std::string, std::unique_ptr<Run>> runs_;
  bool closing_ = false;          // no run is opened any more
  bool saying_farewell_ = false;  // none is dropped any more
  std::uint64_t opened_ = 0;
  std::uint64_t refused_ = 0;
  async::Event fewer_;  // a run was dropped
};

}  // namespace cpprun::rendezvous
