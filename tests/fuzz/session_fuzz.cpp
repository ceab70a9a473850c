// Several clients at one table, their sessions at the other end of socket pairs: the input says what each
// sends, in which pieces, when it takes its replies and when it goes. What the server does between its epoll
// and the sessions is done here. A second decoder reads along, so that this file knows what a session must
// make of its bytes.
//
// The input is a list of steps: a byte whose low two bits name the client and whose next three bits the step,
// and what the step needs.
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/store/store_session.hpp"
#include "rendezvous/store/table_handler.hpp"
#include "tests/fuzz/require.hpp"

namespace {

using namespace cpprun::store;
using cpprun::async::Clock;
using cpprun::fuzz::require;
using State = StoreSession::State;

constexpr std::size_t kClients = 4;
constexpr std::size_t kReadBytes = 4096;
constexpr std::size_t kLargeValue = std::size_t{100} << 10;
constexpr std::uint32_t kNonce = 0x5EEDF00D;

// The client's side of a connection, and what the bytes it has sent should lead to.
struct Client {
  int fd = -1;
  RequestDecoder decoder;
  std::string unread;          // what the decoder still lacks
  Fault fault = Fault::None;   // of the bytes
  bool sends = true;           // has not closed its sending side
  bool asked_to_open = false;  // then what comes behind is nobody's request
  std::size_t sent = 0;        // bytes
  std::uint64_t requests = 0;  // whole ones
  std::uint64_t served = 0;    // of them
  std::size_t waits = 0;       // WAIT and BARRIER requests
  std::size_t wakes = 0;       // by others' requests
  std::string received;        // the end of it
};

constexpr std::string_view kRun = "run";

class Desk : public AgentDesk {
 public:
  std::uint8_t admit(const Opening& opening) override { return opening.run == kRun ? kOpened : kOtherRun; }
  void take(const Opening&, OpenedConnection&&) override { require(false, "the server hands over"); }
};

class Server {
 public:
  explicit Server(bool agents_meet_here) {
    if (agents_meet_here) config_.desk = &desk_;
    config_.torchrun_agents = !agents_meet_here;
    config_.limits.reply_bytes = std::size_t{2} << 20;
    config_.limits.bytes = std::size_t{8} << 20;
    for (ConnectionId id = 0; id < kClients; ++id) connect(id);
  }
  ~Server() {
    for (ConnectionId id = 0; id < kClients; ++id) disconnect(id);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  void connect(ConnectionId id);
  void disconnect(ConnectionId id);
  void close_sending(ConnectionId id);
  void send(ConnectionId id, std::string_view bytes);
  void receive(ConnectionId id);
  // One round of what the session's socket is ready for. False if that was nothing.
  bool serve(ConnectionId id);
  // Everybody takes replies until there are none.
  void drain();
  // Whoever is connected and between requests must still be answered.
  void check_answers();
  std::size_t waiting() const { return table_.table().waiting(); }

 private:
  std::uint64_t served() const;  // requests, everybody's
  void read_along(Client& client, std::string_view bytes);
  void settle(ConnectionId id, State state);
  void close(ConnectionId id, Fault fault);

  Desk desk_;
  StoreServerConfig config_;
  StoreUse use_;
  std::vector<char> input_ = std::vector<char>(kReadBytes);
  TableHandler table_{config_};
  SessionWork work_{table_, config_, use_, input_};
  std::array<std::unique_ptr<StoreSession>, kClients> sessions_;
  std::array<Client, kClients> clients_;
};

void Server::connect(ConnectionId id) {
  disconnect(id);
  int ends[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0,
          "a pair of sockets");
  const int small = 8192;  // so that replies are left over
  ::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  sessions_[id] =
      std::make_unique<StoreSession>(ByteStream(ends[0]), id, StoreSession::Endpoint(), Clock::now());
  clients_[id].fd = ends[1];
}

void Server::disconnect(ConnectionId id) {
  Client& client = clients_[id];
  if (client.fd >= 0) ::close(client.fd);
  // What it has sent before is served first.
  while (sessions_[id]) {
    if (!serve(id)) close(id, Fault::None);
  }
  client = Client();
}

void Server::close_sending(ConnectionId id) {
  clients_[id].sends = false;
  ::shutdown(clients_[id].fd, SHUT_WR);
}

void Server::send(ConnectionId id, std::string_view bytes) {
  Client& client = clients_[id];
  if (!client.sends) return;
  // Read along first: what the server makes of the bytes is compared with that.
  read_along(client, bytes);
  client.sent += bytes.size();
  while (!bytes.empty() && sessions_[id]) {
    const ssize_t n = ::send(client.fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else {
      require(errno == EAGAIN || errno == EPIPE || errno == ECONNRESET, "a send fails for a known reason");
      if (errno != EAGAIN) return;
      if (!serve(id)) receive(id);
    }
  }
}

void Server::read_along(Client& client, std::string_view bytes) {
  client.unread.append(bytes);
  while (client.fault == Fault::None && !client.asked_to_open) {
    Request request;
    const RequestDecoder::Result result = client.decoder.next(client.unread, request);
    if (result.state == RequestDecoder::State::Complete) {
      client.waits += request.op == Op::Wait || request.op == Op::Barrier ? 1 : 0;
      client.asked_to_open = request.op == Op::Open || request.op == Op::Link;
      client.requests += client.asked_to_open ? 0 : 1;
    }
    client.fault = result.fault;
    client.unread.erase(0, result.consumed);
    if (result.state != RequestDecoder::State::Complete) return;
  }
}

void Server::receive(ConnectionId id) {
  Client& client = clients_[id];
  char bytes[16384];
  for (;;) {
    const ssize_t n = ::recv(client.fd, bytes, sizeof bytes, 0);
    if (n <= 0) break;
    client.received.append(bytes, static_cast<std::size_t>(n));
  }
  if (client.received.size() > sizeof kNonce)
    client.received.erase(0, client.received.size() - sizeof kNonce);
}

std::uint64_t Server::served() const {
  return std::accumulate(use_.requests.begin(), use_.requests.end(), std::uint64_t{0});
}

bool Server::serve(ConnectionId id) {
  if (!sessions_[id]) return false;
  const std::uint64_t before = served();
  StoreSession& session = *sessions_[id];
  const short events =
      static_cast<short>((session.wants_read() ? POLLIN : 0) | (session.wants_write() ? POLLOUT : 0));
  pollfd ready{session.fd(), events, 0};
  if (::poll(&ready, 1, 0) <= 0) return false;
  if ((ready.revents & POLLOUT) != 0) {
    settle(id, session.on_writable(work_));
  } else if (session.wants_read()) {
    settle(id, session.on_readable(work_));
  } else {
    settle(id, State::Left);  // gone, with replies that it has not taken
  }
  clients_[id].served += served() - before;
  return true;
}

void Server::settle(ConnectionId id, State state) {
  require(work_.reply.empty(), "replies are sent or kept by the session");
  std::array<bool, kClients> told{};
  for (const ConnectionId woken : std::exchange(work_.woken, {})) {
    require(woken < kClients && woken != id, "the others' wake-ups are others'");
    require(sessions_[woken] != nullptr, "who has gone is not woken");
    require(!std::exchange(told[woken], true), "one request wakes a connection once");
    require(++clients_[woken].wakes <= clients_[woken].waits, "only who has waited is woken");
    settle(woken, sessions_[woken]->on_woken());
  }
  StoreSession& session = *sessions_[id];
  if (state == State::Opened) {
    require(clients_[id].asked_to_open && config_.desk, "only who asks is handed over");
    const StoreSession::Released released = session.release();
    require(released.early.size() < clients_[id].sent, "what comes early was sent");
    require(released.opening && released.opening->run == kRun, "only its own run is opened");
    ::close(released.stream.fd());
  }
  if (state != State::Open) return close(id, state == State::Faulty ? session.fault() : Fault::None);
  require(session.fault() == Fault::None, "a session with a fault is not kept");
  require(!session.wants_write() || session.limit(config_.limits).has_value(),
          "who does not read has a limit");
}

void Server::close(ConnectionId id, Fault fault) {
  const Client& client = clients_[id];
  switch (fault) {
    case Fault::NotANumber:  // what the bytes mean, not how they are written
    case Fault::ReplyTooLong:
    case Fault::TooManyWaits:
    case Fault::TableFull:
    case Fault::TorchrunAgent:
      break;
    case Fault::TlsHello:
      require(client.fault == Fault::NotValidated, "no client of a store begins like that");
      break;
    case Fault::UnknownOpcode:
      require(client.fault == fault || client.asked_to_open,
              "the opcode is unknown, or OPEN or LINK out of place");
      break;
    default:
      require(fault == Fault::None || client.fault == fault || client.asked_to_open,
              "the bytes have that fault");
  }
  sessions_[id]->close(work_);
  sessions_[id].reset();
  require(waiting() < kClients, "who has gone waits for nothing");
}

void Server::drain() {
  for (bool busy = true; busy;) {
    busy = false;
    for (ConnectionId id = 0; id < kClients; ++id) {
      receive(id);
      while (serve(id)) busy = true;
    }
  }
}

void Server::check_answers() {
  for (ConnectionId id = 0; id < kClients; ++id) {
    Client& client = clients_[id];
    if (!sessions_[id]) continue;
    require(client.sends, "whose sending side is closed has gone");
    require(client.fault == Fault::None || client.asked_to_open,
            "a fault of the bytes has ended the connection");
    require(client.served == client.requests, "each whole request is served, once");
    if (!client.unread.empty() || client.asked_to_open || !client.decoder.validated()) continue;
    std::string ping;
    put_number(ping, Op::Ping);
    put_number(ping, kNonce);
    Request unfinished;  // the rest of a MULTI_SET takes any bytes
    RequestDecoder decoder = client.decoder;
    if (decoder.next(ping, unfinished).state != RequestDecoder::State::Complete || unfinished.op != Op::Ping)
      continue;
    send(id, ping);
    drain();
    std::string nonce;
    put_number(nonce, kNonce);
    require(client.received.ends_with(nonce), "a client in order is answered");
  }
}

class Input {
 public:
  explicit Input(std::string_view bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  std::size_t byte() {
    if (bytes_.empty()) return 0;
    const unsigned char first = static_cast<unsigned char>(bytes_.front());
    bytes_.remove_prefix(1);
    return first;
  }
  std::string_view take(std::size_t size) {
    const std::string_view part = bytes_.substr(0, size);
    bytes_.remove_prefix(part.size());
    return part;
  }

 private:
  std::string_view bytes_;
};

void step(Server& server, Input& input) {
  const std::size_t byte = input.byte();
  const ConnectionId id = static_cast<ConnectionId>(byte % kClients);
  switch (byte / kClients % 8) {
    case 0:  // sends, and is served
    case 1:
      server.send(id, input.take(input.byte()));
      server.serve(id);
      break;
    case 2:  // sends more, and is not served yet
      server.send(id, input.take(16 * input.byte()));
      break;
    case 3: {
      std::string validate;
      put_number(validate, Op::Validate);
      put_number(validate, kMagic);
      server.send(id, validate);
      break;
    }
    case 4: {  // more than an input should have to hold
      std::string set;
      put_number(set, Op::Set);
      put_text(set, "/b");
      put_text(set, std::string(kLargeValue, 'b'));
      server.send(id, set);
      break;
    }
    case 5:
      server.receive(id);
      server.serve(id);
      break;
    case 6:
      server.close_sending(id);
      break;
    default:
      server.connect(id);
      break;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(std::string_view(reinterpret_cast<const char*>(data), size));
  Server server(input.byte() % 2 == 1);
  while (!input.empty()) step(server, input);
  server.drain();
  server.check_answers();
  for (ConnectionId id = 0; id < kClients; ++id) server.disconnect(id);
  require(server.waiting() == 0, "nobody waits when all have gone");
  return 0;
}
