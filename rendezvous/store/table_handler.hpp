// Serves requests from a table, within the limits of its server.
#pragma once

#include "rendezvous/store/request_handler.hpp"
#include "rendezvous/store/server_config.hpp"

namespace cpprun::store {

class TableHandler : public RequestHandler {
 public:
  // `config` outlives this.
  explicit TableHandler(const StoreServerConfig& config) : config_(config) {}

  Fault serve(ConnectionId client, const Request& request, std::string& reply, Wakeups& woken) override;
  void forget(ConnectionId client) override { table_.forget(client); }

  const StoreTable& table() const { return table_; }
  // Its clients are to be gone.
  void start_empty() { table_ = StoreTable(); }

 private:
  const StoreServerConfig& config_;
  StoreTable table_;
};

}  // namespace cpprun::store
