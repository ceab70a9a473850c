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
#include <optional>
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

constexpr std::size_t kReadBytes = 16 * 1024;

StoreError unreachable(const std::string& name, const std::string& reason,
                       StoreFailure failure = StoreFailure::Unreachable) {
  return StoreError(failure, "cannot connect to the store at " + name + ": " + reason);
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
                                                                  std::optional<Opening> opening,
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

  std::unique_ptr<StoreConnection> connection(new StoreConnection(std::move(socket), endpoint, name));
  co_await connection->greet(deadline);
  if (opening) co_await connection->open_run(std::move(*opening), deadline);
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
    throw unreachable(name_, error.failure() == StoreFailure::NoAnswer
                                 ? "it accepted the connection and said nothing"
                                 : "it closed the connection");
  }
  if (answer != nonce) {
    throw StoreError(StoreFailure::Refused,
                     "cannot use the store at " + name_ + ": what answers there is not a store");
  }
}

awaitable<void> StoreConnection::open_run(Opening opening, Deadline deadline) {
  std::string request;
  put_number(request, Op::Open);
  put_text(request, opening.run);
  put_text(request, opening.rules);
  std::uint8_t answer = 0;
  try {
    co_await send(request, deadline);
    answer = co_await receive_number<std::uint8_t>(deadline);
  } catch (const StoreError& error) {
    if (error.failure() == StoreFailure::NoAnswer) throw unreachable(name_, "it did not answer in time");
    // c10d's servers close the connection at an opcode that they do not have.
    throw StoreError(StoreFailure::Refused,
                     "cannot join at " + name_ +
                         ": a store answers there, but no cpprun agent of several nodes "
                         "(a torchrun agent, or another job's workers?)");
  }
  if (answer == kOpened) co_return;
  const bool passing = answer == kNoRoom || answer == kClosing;
  throw StoreError(passing ? StoreFailure::Unreachable : StoreFailure::Refused,
                   "cannot join run '" + opening.run + "' at " + name_ + ": " + why_not_opened(answer));
}

awaitable<void> StoreConnection::send(std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) throw lost(name_, text_of(errno));
    const bool ready = co_await wait_socket(tcp::socket::wait_write, deadline);
    if (!ready) throw no_answer(name_);
  }
}

awaitable<bool> StoreConnection::wait_readable(Deadline deadline) {
  // The reactor may report the arrival of bytes that were read since: only bytes in hand are an answer.
  while (received_.empty() && !read_some()) {
    const bool ready = co_await wait_socket(tcp::socket::wait_read, deadline);
    if (!ready) co_return false;
  }
  co_return true;
}

awaitable<std::string> StoreConnection::receive(std::size_t size, Deadline deadline) {
  while (received_.size() < size) {
    if (read_some()) continue;
    const bool ready = co_await wait_socket(tcp::socket::wait_read, deadline);
    if (!ready) throw no_answer(name_);
  }
  std::string bytes = received_.substr(0, size);
  received_.erase(0, size);
  co_return bytes;
}

// False if there is nothing to read yet.
bool StoreConnection::read_some() {
  std::array<char, kReadBytes> buffer;
  for (;;) {
    const ssize_t n = ::recv(socket_.native_handle(), buffer.data(), buffer.size(), 0);
    if (n > 0) received_.append(buffer.data(), static_cast<std::size_t>(n));
    if (n > 0) return true;
    if (n == 0) throw lost(name_, "the store closed it");
    if (errno == EAGAIN) return false;
    if (errno != EINTR) throw lost(name_, text_of(errno));
  }
}

// False at the deadline.
awaitable<bool> StoreConnection::wait_socket(tcp::socket::wait_type what, Deadline deadline) {
  if (deadline.time() == async::Clock::time_point::max()) {
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
