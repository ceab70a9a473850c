#include "rendezvous/store/store_connection.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <boost/asio/deferred.hpp>
#include <boost/asio/experimental/parallel_group.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/system/system_error.hpp>
#include <cerrno>
#include <system_error>
#include <tuple>
#include <utility>

#include "rendezvous/async/tokens.hpp"
#include "rendezvous/store/address_text.hpp"
#include "rendezvous/store/protocol.hpp"
#include "rendezvous/store/socket_options.hpp"

namespace cpprun::store {
namespace {

using asio::ip::tcp;
using async::error_code;
using async::use_error;

constexpr std::size_t kReadBytes =
    16 * 1024;  // at least TLS's longest record, of which nothing is left behind then
// The first byte of a TLS server's answer to what is not TLS.
constexpr std::uint8_t kTlsAlert = 0x15;

const Deadline kNever = Deadline::at(async::Clock::time_point::max());

StoreError unreachable(const std::string& name, const std::string& reason,
                       StoreFailure failure = StoreFailure::Unreachable) {
  return StoreError(failure, "cannot connect to the store at " + name + ": " + reason);
}

StoreError refused(const std::string& name, const std::string& reason) {
  return StoreError(StoreFailure::Refused, "cannot use the store at " + name + ": " + reason);
}

StoreError lost(const std::string& name, const std::string& reason) {
  return StoreError(StoreFailure::Lost, "lost the connection to the store at " + name + ": " + reason);
}

StoreError no_answer(const std::string& name) {
  return StoreError(StoreFailure::NoAnswer, "the store at " + name + " did not answer a request in time");
}

std::string text_of(int error) {
  return std::system_category().message(error);
}

const char* why_not_opened(std::uint8_t answer) {
  switch (answer) {
    case kOtherRun:
      return "the agent there serves another run (compare --rdzv-id)";
    case kNoRoom:
      return "the server there serves as many runs as it may";
    case kClosing:
      return "the server there is about to end";
    case kSoleLeader:
      return "cpprund serves there, which must be the only endpoint of a run";
    default:
      return "the server there is of another version of cpprun";
  }
}

}  // namespace

awaitable<std::unique_ptr<StoreConnection>> StoreConnection::open(tcp::endpoint endpoint, std::string name,
                                                                  ConnectionPurpose purpose,
                                                                  Deadline deadline) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  tcp::socket socket = open_socket(executor, endpoint);
  keep_alive(socket.native_handle());
  const std::optional<std::tuple<error_code>> connected =
      co_await async::before(deadline, socket.async_connect(endpoint, use_error));
  if (!connected) throw unreachable(name, "it did not answer in time");
  if (const error_code error = std::get<0>(*connected)) {
    const bool refused = error == asio::error::connection_refused;
    throw unreachable(name, error.message(),
                      refused ? StoreFailure::NobodyListens : StoreFailure::Unreachable);
  }

  const int fd = socket.native_handle();
  ByteStream stream = purpose.secret ? purpose.secret->connect(fd) : ByteStream(fd);
  std::unique_ptr<StoreConnection> connection(
      new StoreConnection(std::move(socket), std::move(stream), endpoint, name));
  co_await connection->greet(deadline);
  if (auto* opening = std::get_if<Opening>(&purpose.use)) {
    co_await connection->open_run(std::move(*opening), deadline);
  } else if (auto* link = std::get_if<Linking>(&purpose.use)) {
    co_await connection->open_link(std::move(*link), deadline);
  }
  co_return connection;
}

awaitable<void> StoreConnection::greet(Deadline deadline) {
  const std::uint32_t nonce = static_cast<std::uint32_t>(::getpid());
  std::string hello;
  put_number(hello, Op::Validate);
  put_number(hello, kMagic);
  put_number(hello, Op::Ping);
  put_number(hello, nonce);
  std::uint32_t answer = 0;
  try {
    co_await send(hello, deadline);
    answer = co_await receive_number<std::uint32_t>(deadline);
  } catch (const StoreError& error) {
    if (error.failure() == StoreFailure::Refused) throw;
    if (error.failure() == StoreFailure::NoAnswer) {
      throw unreachable(name_, "it accepted the connection and said nothing");
    }
    throw unreachable(name_, stream_.secret() ? "it closed the connection: has it the same --secret-file?"
                                              : "it closed the connection");
  }
  if (answer == nonce) co_return;
  if (static_cast<std::uint8_t>(answer) == kTlsAlert) {
    throw refused(name_, "it asks for a secret, and this node has none: give --secret-file");
  }
  throw refused(name_, "what answers there is not a store");
}

awaitable<void> StoreConnection::open_run(Opening opening, Deadline deadline) {
  Request request;
  request.op = Op::Open;
  request.key = opening.run;
  request.value = opening.rules;
  const std::uint8_t answer =
      co_await ask(request,
                   "no cpprun agent of several nodes (a torchrun agent, or another job's "
                   "workers?)",
                   deadline);
  if (answer == kOpened) co_return;
  const bool passing = answer == kNoRoom || answer == kClosing;
  throw StoreError(passing ? StoreFailure::Unreachable : StoreFailure::Refused,
                   "cannot join run '" + opening.run + "' at " + name_ + ": " + why_not_opened(answer));
}

awaitable<void> StoreConnection::open_link(Linking link, Deadline deadline) {
  Request request;
  request.op = Op::Link;
  request.key = link.run;
  const std::uint8_t answer = co_await ask(request, "none that serves proxies", deadline);
  if (answer != kOpened) throw refused(name_, why_not_opened(answer));
}

// The answer to OPEN or LINK. `else_there`: what answers where the request is not known.
awaitable<std::uint8_t> StoreConnection::ask(const Request& request, const char* else_there,
                                             Deadline deadline) {
  std::string bytes;
  put_request(bytes, request);
  try {
    co_await send(bytes, deadline);
    const std::uint8_t answer = co_await receive_number<std::uint8_t>(deadline);
    co_return answer;
  } catch (const StoreError& error) {
    if (error.failure() == StoreFailure::NoAnswer) throw unreachable(name_, "it did not answer in time");
    // c10d's servers close the connection at an opcode that they do not have.
    throw StoreError(StoreFailure::Refused,
                     "cannot join at " + name_ + ": a store answers there, but " + else_there);
  }
}

awaitable<void> StoreConnection::send(std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t n = stream_.send(bytes);
    if (n > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
      continue;
    }
    if (n == 0) throw lost(name_, "the store closed it");
    if (errno == EINTR) continue;
    if (errno != EAGAIN) throw broken();
    const bool ready = co_await wait_socket(deadline);
    if (!ready) throw no_answer(name_);
  }
}

// After a call on the stream that failed.
StoreError StoreConnection::broken() {
  const int error = errno;
  switch (stream_.failure()) {
    case TlsFailure::None:
      return lost(name_, text_of(error));
    case TlsFailure::NotTls:
      return refused(
          name_, "it uses no secret, and this node has one: give --secret-file on every node, or on none");
    case TlsFailure::OtherSecret:
      return refused(name_, "it has another secret: --secret-file must be the same on every node");
    case TlsFailure::Broken:
      break;
  }
  return lost(name_, "what came was changed on its way");
}

awaitable<bool> StoreConnection::wait_readable(Deadline deadline) {
  // The reactor may report the arrival of bytes that were read since: only bytes in hand are an answer.
  while (received_.empty() && !read_some()) {
    const bool ready = co_await wait_socket(deadline);
    if (!ready) co_return false;
  }
  co_return true;
}

awaitable<std::string> StoreConnection::receive(std::size_t size, Deadline deadline) {
  while (received_.size() < size) {
    if (read_some()) continue;
    const bool ready = co_await wait_socket(deadline);
    if (!ready) throw no_answer(name_);
  }
  std::string bytes = received_.substr(0, size);
  received_.erase(0, size);
  co_return bytes;
}

awaitable<std::string> StoreConnection::receive_some() {
  while (received_.empty() && !read_some()) co_await wait_socket(kNever);
  co_return std::exchange(received_, {});
}

// False if there is nothing to read yet.
bool StoreConnection::read_some() {
  std::array<char, kReadBytes> buffer;
  for (;;) {
    const ssize_t n = stream_.receive(buffer);
    if (n > 0) received_.append(buffer.data(), static_cast<std::size_t>(n));
    if (n > 0) return true;
    if (n == 0) throw lost(name_, "the store closed it");
    if (errno == EAGAIN) return false;
    if (errno != EINTR) throw broken();
  }
}

// For what the stream's last call asks for. False at the deadline.
awaitable<bool> StoreConnection::wait_socket(Deadline deadline) {
  const tcp::socket::wait_type what =
      stream_.waits_to_write() ? tcp::socket::wait_write : tcp::socket::wait_read;
  if (deadline.time() == kNever.time()) {
    const auto [failure] = co_await socket_.async_wait(what, use_error);
    if (failure) throw boost::system::system_error(failure);  // our caller was cancelled
    co_return true;
  }
  // Without before(), which starts a coroutine for what it waits for: many agents wait here often.
  asio::steady_timer timer(socket_.get_executor(), deadline.time());
  auto race = asio::experimental::make_parallel_group(socket_.async_wait(what, asio::deferred),
                                                      timer.async_wait(asio::deferred));
  auto [order, error, timer_error] =
      co_await race.async_wait(asio::experimental::wait_for_one(), asio::use_awaitable);
  if (!error) co_return true;
  // The socket's wait was cancelled: by the timer or, with it, by our caller.
  if (timer_error) throw boost::system::system_error(error);
  co_return false;
}

awaitable<std::string> StoreConnection::receive_text(Deadline deadline) {
  const std::uint64_t size = co_await receive_number<std::uint64_t>(deadline);
  if (size > kMaxReplyBytes) throw lost(name_, "its reply is longer than the protocol allows");
  std::string text = co_await receive(size, deadline);
  co_return text;
}

bool StoreConnection::usable() {
  char byte = 0;
  const ssize_t n = ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK);
  return received_.empty() && n < 0 && errno == EAGAIN;
}

std::string StoreConnection::local_address() const {
  return to_text(socket_.local_endpoint().address());
}

}  // namespace cpprun::store
