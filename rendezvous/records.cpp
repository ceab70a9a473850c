#include "rendezvous/records.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

namespace cpprun::rendezvous {
namespace {

using nlohmann::json;

constexpr int kMostNodes = 1'000'000;  // of a round; what says more is no record of ours

constexpr std::array<std::pair<AgentState, const char*>, 5> kStates{{{AgentState::Waiting, "waiting"},
                                                                     {AgentState::Running, "running"},
                                                                     {AgentState::Finished, "finished"},
                                                                     {AgentState::Leaving, "leaving"},
                                                                     {AgentState::Gone, "gone"}}};
constexpr std::array<std::pair<Order::Kind, const char*>, 8> kKinds{{{Order::Kind::Wait, "wait"},
                                                                     {Order::Kind::Park, "park"},
                                                                     {Order::Kind::Offer, "offer"},
                                                                     {Order::Kind::Run, "run"},
                                                                     {Order::Kind::End, "end"},
                                                                     {Order::Kind::Finished, "finished"},
                                                                     {Order::Kind::Refused, "refused"},
                                                                     {Order::Kind::Elsewhere, "elsewhere"}}};

template <typename T, std::size_t n>
const char* name_of(T value, const std::array<std::pair<T, const char*>, n>& names) {
  for (const auto& [known, name] : names) {
    if (known == value) return name;
  }
  return "";
}

// Throws as the JSON library does, for the readers below.
template <typename T, std::size_t n>
T value_of(const json& name, const std::array<std::pair<T, const char*>, n>& names) {
  for (const auto& [value, known] : names) {
    if (name.get<std::string>() == known) return value;
  }
  throw json::other_error::create(501, "unknown name", nullptr);
}

json object_of(const Ticket& ticket) {
  return {{"serial", ticket.serial},
          {"round", ticket.round},
          {"rank", ticket.rank},
          {"nodes", ticket.nodes},
          {"restarts", ticket.restarts},
          {"after_serial", ticket.after_serial},
          {"after_nodes", ticket.after_nodes}};
}

Ticket ticket_from(const json& object) {
  Ticket ticket{object.at("serial").get<std::int64_t>(),
                object.at("round").get<int>(),
                object.at("rank").get<int>(),
                object.at("nodes").get<int>(),
                object.at("restarts").get<int>(),
                object.at("after_serial").get<std::int64_t>(),
                object.at("after_nodes").get<int>()};
  const bool possible = ticket.nodes >= 0 && ticket.nodes <= kMostNodes && ticket.rank >= -1 &&
                        ticket.rank < std::max(ticket.nodes, 1);
  if (!possible) throw json::other_error::create(501, "no such place", nullptr);
  return ticket;
}

json object_of(const RoundEnd& end) {
  json object = {
      {"charged", end.charged}, {"final", end.final}, {"sentence", end.sentence}, {"cause", end.cause}};
  if (!end.lost.empty()) object["lost"] = end.lost;
  return object;
}

RoundEnd end_from(const json& object) {
  RoundEnd end{object.at("charged").get<bool>(), object.at("final").get<bool>(),
               object.at("sentence").get<std::string>(), object.at("cause").get<std::string>()};
  if (object.contains("lost")) end.lost = object.at("lost").get<std::vector<int>>();
  return end;
}

json object_of(const StoreEndpoint& store) {
  return {{"address", store.address}, {"port", store.port}};
}

StoreEndpoint store_from(const json& object) {
  return {object.at("address").get<std::string>(), object.at("port").get<std::uint16_t>()};
}

json object_of(const Node& node) {
  json object = {{"host", node.host},           {"pid", node.pid},         {"min_nodes", node.min_nodes},
                 {"max_nodes", node.max_nodes}, {"address", node.address}, {"role", node.role},
                 {"workers", node.workers}};
  if (!node.rules.empty()) object["rules"] = node.rules;
  if (node.wished_rank) object["wished_rank"] = *node.wished_rank;
  return object;
}

Node node_from(const json& object) {
  Node node;
  node.host = object.at("host").get<std::string>();
  node.pid = object.at("pid").get<int>();
  node.min_nodes = object.at("min_nodes").get<int>();
  node.max_nodes = object.at("max_nodes").get<int>();
  if (object.contains("wished_rank")) node.wished_rank = object.at("wished_rank").get<int>();
  node.address = object.at("address").get<std::string>();
  node.role = object.at("role").get<std::string>();
  node.workers = object.at("workers").get<int>();
  node.rules = object.value("rules", "");
  return node;
}

std::string text_of(const json& object) {
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

bool has_workers(const Report& report) {
  return report.state == AgentState::Running || report.state == AgentState::Finished ||
         report.state == AgentState::Leaving;
}

std::string to_json(const Report& report) {
  json object = {
      {"id", report.id}, {"node", object_of(report.node)}, {"state", name_of(report.state, kStates)}};
  if (report.run.serial != 0) object["run"] = object_of(report.run);
  if (report.offered.serial != 0) object["offered"] = object_of(report.offered);
  if (report.store) object["store"] = object_of(*report.store);
  if (report.end) object["end"] = object_of(*report.end);
  return text_of(object);
}

std::optional<Report> report_from_json(const std::string& text) {
  try {
    const json object = json::parse(text);
    Report report;
    report.id = object.at("id").get<std::string>();
    report.node = node_from(object.at("node"));
    report.state = value_of(object.at("state"), kStates);
    if (object.contains("run")) report.run = ticket_from(object.at("run"));
    if (object.contains("offered")) report.offered = ticket_from(object.at("offered"));
    if (object.contains("store")) report.store = store_from(object.at("store"));
    if (object.contains("end")) report.end = end_from(object.at("end"));
    return report;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

std::string to_json(const Order& order) {
  json object = {{"kind", name_of(order.kind, kKinds)}};
  if (!order.text.empty()) object["text"] = order.text;
  if (!order.notice.empty()) object["notice"] = order.notice;
  if (order.ticket.serial != 0) object["ticket"] = object_of(order.ticket);
  if (order.workers.world_size != 0) {
    object["workers"] = {{"first_rank", order.workers.first_rank},
                         {"world_size", order.workers.world_size},
                         {"first_role_rank", order.workers.first_role_rank},
                         {"role_world_size", order.workers.role_world_size}};
  }
  if (order.kind == Order::Kind::Run) object["store"] = object_of(order.store);
  if (order.kind == Order::Kind::End || !order.end.sentence.empty()) object["end"] = object_of(order.end);
  return text_of(object);
}

std::optional<Order> order_from_json(const std::string& text) {
  try {
    const json object = json::parse(text);
    Order order;
    order.kind = value_of(object.at("kind"), kKinds);
    order.text = object.value("text", "");
    order.notice = object.value("notice", "");
    if (object.contains("ticket")) order.ticket = ticket_from(object.at("ticket"));
    if (object.contains("workers")) {
      const json& workers = object.at("workers");
      order.workers = {workers.at("first_rank").get<int>(), workers.at("world_size").get<int>(),
                       workers.at("first_role_rank").get<int>(), workers.at("role_world_size").get<int>()};
    }
    if (object.contains("store")) order.store = store_from(object.at("store"));
    if (object.contains("end")) order.end = end_from(object.at("end"));
    return order;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

}  // namespace cpprun::rendezvous
