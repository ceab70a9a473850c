#include "rendezvous/store/table_handler.hpp"

#include "rendezvous/store/apply_request.hpp"

namespace cpprun::store {
namespace {

// By the keys at which torchrun's agents meet (c10d) or exchange their roles (static).
bool is_torchrun_agent(const Request& request) {
  return request.key.starts_with("/torch.rendezvous.") ||
         request.key.find("/torchelastic/role_info/") != std::string_view::npos;
}

// Whether what the request adds keeps the table within its limits.
bool has_room(const StoreTable& table, const Request& request, const ServerLimits& limits) {
  switch (request.op) {
    case Op::Set:
    case Op::MultiSet:
    case Op::CompareSet:
    case Op::Append:
    case Op::Add:
    case Op::Barrier:
    case Op::QueuePush: {
      const std::size_t more = request.key.size() + request.value.size();
      if (table.bytes() > limits.bytes || more > limits.bytes - table.bytes()) return false;
      return table.size() < limits.keys || table.holds(request.key);
    }
    default:
      return true;
  }
}

}  // namespace

Fault TableHandler::serve(ConnectionId client, const Request& request, std::string& reply, Wakeups& woken) {
  if (!config_.torchrun_agents && is_torchrun_agent(request)) return Fault::TorchrunAgent;
  if (!has_room(table_, request, config_.limits)) return Fault::TableFull;
  return apply_request(table_, client, request, config_.limits.reply_bytes, reply, woken);
}

}  // namespace cpprun::store
