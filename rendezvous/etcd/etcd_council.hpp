// Who leads a run, among agents that meet in etcd: each process has one, which stands for election whenever
// nobody leads. The leader key hangs on its process's lease; who creates it leads until it is gone.
#pragma once

#include <memory>
#include <string>

#include "rendezvous/async/task_group.hpp"
#include "rendezvous/coordinator.hpp"
#include "rendezvous/etcd/etcd_client.hpp"
#include "rendezvous/etcd/etcd_keys.hpp"
#include "rendezvous/etcd/etcd_reign.hpp"
#include "rendezvous/etcd/etcd_session.hpp"
#include "rendezvous/farewell.hpp"

namespace cpprun::rendezvous {

struct EtcdCouncilConfig {
  std::string name;  // of this process, for people who look into etcd
  EtcdKeys keys;
  CoordinatorRules rules;  // with one endpoint
};

class EtcdCouncil : public Farewell {
 public:
  // Both outlive this.
  EtcdCouncil(asio::any_io_executor executor, EtcdCouncilConfig config, EtcdClient& client,
              EtcdSession& session);

  // Keeps the session up and stands for election, until cancelled or until the farewell.
  awaitable<void> run();

  // What was decided here is put; then the session ends, and with it the lead.
  awaitable<void> say_farewell(std::string why) override;

 private:
  awaitable<void> stand();
  awaitable<bool> stand_once();
  awaitable<void> lead(Revision created);
  awaitable<bool> await_vacancy(Revision from);

  asio::any_io_executor executor_;
  EtcdCouncilConfig config_;
  EtcdClient& client_;
  EtcdSession& session_;
  std::shared_ptr<EtcdReign> reign_;  // the last one
  async::TaskGroup tasks_;
};

}  // namespace cpprun::rendezvous
