#include "tests/unit/rendezvous/walks/network.hpp"

#include <algorithm>

namespace cpprun::rendezvous::walks {

Connection& Network::open(const Process& from, Party& party, int to_host,
                          const std::map<int, Listener>& listeners) {
  listeners_ = &listeners;
  std::erase_if(connections_, [](const std::unique_ptr<Connection>& old) {
    return !old->ends[0].party && !old->ends[1].party && old->ways[0].empty() && old->ways[1].empty();
  });
  connections_.push_back(std::make_unique<Connection>());
  Connection& connection = *connections_.back();
  connection.ends[0] = {&from, &party};
  connection.hosts = {from.host, to_host};
  put(connection, 0, Opened{});
  return connection;
}

void Network::send(Connection& connection, Party& from, Message message) {
  const int way = connection.ends[0].party == &from ? 0 : 1;
  if (connection.ends[static_cast<std::size_t>(way)].party == &from) {
    put(connection, way, std::move(message));
  }
}

void Network::close(Connection& connection, Party& from) {
  const int way = connection.ends[0].party == &from ? 0 : 1;
  Connection::End& end = connection.ends[static_cast<std::size_t>(way)];
  if (end.party != &from) return;
  end.party = nullptr;
  put(connection, way, Closed{});
}

void Network::end_of(const Process& process, bool with_host) {
  for (const std::unique_ptr<Connection>& connection : connections_) {
    for (int side = 0; side < 2; ++side) {
      Connection::End& end = connection->ends[static_cast<std::size_t>(side)];
      if (end.process != &process || !end.party) continue;
      end.party = nullptr;
      if (with_host) {
        connection->silent[static_cast<std::size_t>(side)] = true;
        if (dice_.chance(0.5)) {
          std::deque<Connection::Travelling>& way = connection->ways[static_cast<std::size_t>(side)];
          if (!way.empty()) way.erase(way.begin() + 1, way.end());
        }
      } else {
        put(*connection, side, Closed{});
      }
    }
  }
}

void Network::cut(int from, int to, TimePoint until) {
  TimePoint& end = cuts_[{from, to}];
  end = std::max(end, until);
}

void Network::heal() {
  for (auto& [hosts, until] : cuts_) until = std::min(until, time_.now());
}

void Network::break_one() {
  std::vector<Connection*> open;
  for (const std::unique_ptr<Connection>& connection : connections_) {
    if (connection->ends[0].party && connection->ends[1].party) open.push_back(connection.get());
  }
  if (open.empty()) return;
  Connection& connection = *open[static_cast<std::size_t>(dice_.below(static_cast<int>(open.size())))];
  for (int way = 0; way < 2; ++way) {
    std::deque<Connection::Travelling>& queue = connection.ways[static_cast<std::size_t>(way)];
    // The first one's journey is planned.
    if (dice_.chance(0.5) && !queue.empty()) queue.erase(queue.begin() + 1, queue.end());
    if (dice_.chance(0.7)) put(connection, way, Closed{});
    connection.silent[static_cast<std::size_t>(way)] = true;
  }
}

void Network::set_delays(Duration least, Duration most, double chance_of_long, Duration longest) {
  least_ = least;
  most_ = most;
  chance_of_long_ = chance_of_long;
  longest_ = longest;
}

TimePoint Network::passes_at(int from, int to) const {
  const auto found = cuts_.find({from, to});
  return found == cuts_.end() ? TimePoint() : found->second;
}

Duration Network::delay(int from, int to) {
  if (from == to) return dice_.span(std::chrono::microseconds(10), std::chrono::microseconds(200));
  return dice_.chance(chance_of_long_) ? dice_.span(most_, longest_) : dice_.span(least_, most_);
}

void Network::put(Connection& connection, int way, Message message) {
  if (connection.silent[static_cast<std::size_t>(way)]) return;
  const int from = connection.hosts[static_cast<std::size_t>(way)];
  const int to = connection.hosts[static_cast<std::size_t>(1 - way)];
  std::deque<Connection::Travelling>& queue = connection.ways[static_cast<std::size_t>(way)];
  const TimePoint before = queue.empty() ? TimePoint() : queue.back().when;
  queue.push_back({std::max(before, time_.now() + delay(from, to)), std::move(message)});
  if (queue.size() == 1) time_.at(queue.front().when, [this, &connection, way] { carry(connection, way); });
}

// Delivers the first of the way's messages, if it can pass by now.
void Network::carry(Connection& connection, int way) {
  const std::size_t to = static_cast<std::size_t>(1 - way);
  std::deque<Connection::Travelling>& queue = connection.ways[static_cast<std::size_t>(way)];
  Connection::End& end = connection.ends[to];
  const bool opens = std::holds_alternative<Opened>(queue.front().message);
  if (opens) {
    const auto found = listeners_->find(connection.hosts[to]);
    end.process = found == listeners_->end() ? nullptr : found->second.process;
    end.party = found == listeners_->end() ? nullptr : found->second.party;
    connection.refused = !end.party;
  }
  const TimePoint passes = passes_at(connection.hosts[static_cast<std::size_t>(way)], connection.hosts[to]);
  TimePoint later = time_.now();
  if (passes > time_.now()) later = passes + dice_.span(milliseconds(0), milliseconds(1000));
  if (end.party && end.process->frozen_until > later) later = end.process->frozen_until;
  if (later > time_.now()) {
    if (opens) end = {};
    time_.at(later, [this, &connection, way] { carry(connection, way); });
    return;
  }
  const Message message = std::move(queue.front().message);
  queue.pop_front();
  if (!queue.empty()) {
    time_.at(queue.front().when, [this, &connection, way] { carry(connection, way); });
  }
  if (!end.party) {
    // Its machine says that nobody is there.
    if (!std::holds_alternative<Closed>(message)) put(connection, 1 - way, Closed{});
    return;
  }
  Party& party = *end.party;
  if (std::holds_alternative<Closed>(message)) end.party = nullptr;
  party.receive(connection, message);
}

}  // namespace cpprun::rendezvous::walks
