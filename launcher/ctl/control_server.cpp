#include "launcher/ctl/control_server.hpp"

#include <fcntl.h>
#include <spdlog/spdlog.h>

#include <array>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>
#include <tuple>
#include <utility>

#include "launcher/ctl/control_socket.hpp"
#include "rendezvous/async/deadline.hpp"

namespace cpprun::launcher {
namespace {

using async::Deadline;

constexpr std::chrono::milliseconds kAcceptPause(200);

// Asio is given a descriptor of its own, to close when it likes.
asio::local::stream_protocol::acceptor adopt(asio::io_context& io, const FileDescriptor& listener) {
  asio::local::stream_protocol::acceptor acceptor(io);
  const int own = ::fcntl(listener.get(), F_DUPFD_CLOEXEC, 0);
  if (own < 0) throw std::system_error(errno, std::generic_category(), "a second descriptor");
  acceptor.assign(asio::local::stream_protocol(), own);
  return acceptor;
}

std::string reply(const std::string& name, const std::string& json) {
  return "{\"protocol\":1,\"" + name + "\":" + json + "}\n";
}

std::string refusal(const std::string& sentence) {
  return reply("error",
               nlohmann::json(sentence).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
}

// Empty for what is no request.
std::string name_of_request(const std::string& line) {
  const nlohmann::json request = nlohmann::json::parse(line, nullptr, false);
  if (!request.is_object()) return "";
  const nlohmann::json::const_iterator name = request.find("request");
  return name != request.end() && name->is_string() ? name->get<std::string>() : "";
}

}  // namespace

ControlServer::ControlServer(asio::io_context& io, FileDescriptor listener, ControlAnswers answers,
                             ControlLimits limits)
    : acceptor_(adopt(io, listener)),
      answers_(std::move(answers)),
      limits_(limits),
      fewer_(io.get_executor()),
      tasks_(io.get_executor()) {}

awaitable<void> ControlServer::run() {
  co_await asio::this_coro::throw_if_cancelled(false);
  tasks_.start(accept());
  try {
    co_await tasks_.join();
  } catch (const std::exception& error) {
    spdlog::warn("cpprunctl cannot reach this run any more: {}", error.what());
  }
}

awaitable<void> ControlServer::accept() {
  for (;;) {
    while (tasks_.size() > limits_.connections) co_await fewer_.wait();
    auto [error, socket] = co_await acceptor_.async_accept(async::use_error);
    if (error == asio::error::operation_aborted) co_return;
    if (error) {  // as at the limit of open files
      const async::Clock::time_point retry = async::Clock::now() + kAcceptPause;
      co_await fewer_.wait_until(retry);
    } else if (peer_is_trusted(socket.native_handle())) {
      tasks_.start(serve(std::move(socket)));
    }
  }
}

awaitable<void> ControlServer::serve(Socket socket) {
  try {
    co_await exchange(socket);
  } catch (const std::exception& error) {
    if (async::is_cancellation(std::current_exception())) throw;
    spdlog::debug("a request by cpprunctl failed: {}", error.what());
  }
  fewer_.notify_all();
}

awaitable<void> ControlServer::exchange(Socket& socket) {
  using Written = std::tuple<async::error_code, std::size_t>;
  std::optional<std::string> line = co_await request_line(socket);
  if (!line) co_return;
  const std::string bytes = co_await reply_to(std::move(*line));
  awaitable<Written> writing = asio::async_write(socket, asio::buffer(bytes), async::use_error);
  co_await async::before(Deadline::after(limits_.reply), std::move(writing));
}

// Nothing from a client that is gone or too slow; of too long a line, its beginning.
awaitable<std::optional<std::string>> ControlServer::request_line(Socket& socket) {
  using Read = std::tuple<async::error_code, std::size_t>;
  const Deadline limit = Deadline::after(limits_.request);
  std::string line;
  std::array<char, 512> buffer;
  while (line.size() <= limits_.request_bytes) {
    awaitable<Read> reading = socket.async_read_some(asio::buffer(buffer), async::use_error);
    const std::optional<Read> read = co_await async::before(limit, std::move(reading));
    if (!read || std::get<0>(*read)) co_return std::nullopt;
    line.append(buffer.data(), std::get<1>(*read));
    const std::size_t end = line.find('\n');
    if (end != std::string::npos) co_return line.substr(0, end);
  }
  co_return line;
}

awaitable<std::string> ControlServer::reply_to(std::string line) {
  if (line.size() > limits_.request_bytes) co_return refusal("the request is too long");
  const std::string name = name_of_request(line);
  if (name == "status") co_return reply(name, answers_.status());
  if (name != "stacks") {
    co_return refusal("this is no request that cpprun " CPPRUN_VERSION " knows");
  }
  std::string answer = co_await shared_stacks();
  co_return answer;
}

awaitable<std::string> ControlServer::shared_stacks() {
  const std::shared_ptr<Capture> running = capture_;
  if (running) {
    while (!running->answer) co_await running->answered.wait();  // it has a deadline
    co_return *running->answer;
  }
  const std::shared_ptr<Capture> mine = std::make_shared<Capture>(acceptor_.get_executor());
  capture_ = mine;
  std::string answer = co_await stacks();
  mine->answer = std::move(answer);
  capture_.reset();
  mine->answered.notify_all();
  co_return *mine->answer;
}

awaitable<std::string> ControlServer::stacks() {
  std::string sentence;
  try {
    const Deadline limit = Deadline::after(limits_.answer);
    const std::optional<std::string> json = co_await async::before(limit, answers_.stacks());
    if (json) co_return reply("stacks", *json);
    sentence = "the stacks were not there in time";
  } catch (const std::exception& error) {
    sentence = std::string("the stacks cannot be had: ") + error.what();
  }
  co_return refusal(sentence);
}

}  // namespace cpprun::launcher
