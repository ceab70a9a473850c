#include "rendezvous/etcd/http_connection.hpp"

#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <boost/none.hpp>
#include <boost/system/system_error.hpp>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>

#include "rendezvous/store/address_text.hpp"
#include "rendezvous/store/socket_options.hpp"

namespace cpprun::rendezvous {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using async::Deadline;
using async::error_code;
using async::use_error;
using TlsStream = asio::ssl::stream<tcp::socket>;

constexpr std::uint64_t kMaxBodyBytes = 64 * 1024 * 1024;

EtcdError unreachable(const std::string& name, const std::string& reason) {
  return EtcdError(EtcdFailure::Unreachable, "cannot connect to etcd at " + name + ": " + reason);
}
EtcdError no_answer(const std::string& name, const std::string& reason) {
  return EtcdError(EtcdFailure::NoAnswer, "no answer from etcd at " + name + ": " + reason);
}
EtcdError refused(const std::string& name, const std::string& reason) {
  return EtcdError(EtcdFailure::Refused, "cannot use etcd at " + name + ": " + reason);
}

// A vanished peer answers no probe; unanswered data counts as one.
void notice_silence(int socket, std::chrono::milliseconds limit) {
  const auto set = [socket](int level, int option, int value) {
    ::setsockopt(socket, level, option, &value, sizeof value);
  };
  const int limit_ms = static_cast<int>(limit.count());
  const int probe_s = std::max(1, limit_ms / 3000);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, probe_s);
  set(IPPROTO_TCP, TCP_KEEPINTVL, probe_s);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, limit_ms);
}

tcp::socket& socket_of(tcp::socket& stream) {
  return stream;
}
const tcp::socket& socket_of(const tcp::socket& stream) {
  return stream;
}
tcp::socket& socket_of(TlsStream& stream) {
  return stream.next_layer();
}
const tcp::socket& socket_of(const TlsStream& stream) {
  return stream.next_layer();
}

bool is_http_fault(const error_code& error) {
  return error.category() == make_error_code(http::error::bad_version).category() &&
         error != http::error::end_of_stream && error != http::error::partial_message;
}

template <typename Stream>
class Connection final : public HttpConnection {
 public:
  Connection(Stream stream, std::string name) : stream_(std::move(stream)), name_(std::move(name)) {}

  awaitable<HttpReply> ask(std::string target, std::string body, Deadline deadline) override {
    co_await send(std::move(target), std::move(body), deadline);
    start_reply(kMaxBodyBytes);
    HttpReply reply = co_await whole_reply(deadline);
    co_return reply;
  }

  awaitable<HttpReply> ask_stream(std::string target, std::string body, Deadline deadline) override {
    co_await send(std::move(target), std::move(body), deadline);
    start_reply(boost::none);
    const std::optional<std::tuple<error_code, std::size_t>> read =
        co_await async::before(deadline, http::async_read_header(stream_, received_, *parser_, use_error));
    require_answer(read);
    answered_ = true;
    HttpReply reply;
    if (parser_->get().result() == http::status::ok) {
      reply.status = parser_->get().result_int();
    } else {
      reply = co_await whole_reply(deadline);
    }
    co_return reply;
  }

  awaitable<std::string> more() override {
    std::string& body = parser_->get().body();
    // Not eager, the parser returns what it has of a chunk rather than wait for the next chunk's head.
    while (body.empty() && !parser_->is_done()) {
      const std::tuple<error_code, std::size_t> read =
          co_await http::async_read_some(stream_, received_, *parser_, use_error);
      if (body.empty()) require(std::get<0>(read));
    }
    co_return std::exchange(body, std::string());
  }

  bool usable() override {
    char byte = 0;
    const ssize_t n = ::recv(socket_of(stream_).native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return parser_ && parser_->is_done() && parser_->keep_alive() && received_.size() == 0 && n < 0 &&
           errno == EAGAIN;
  }

  std::string local_address() const override {
    error_code unknown;
    const tcp::endpoint own = socket_of(stream_).local_endpoint(unknown);
    return unknown ? std::string() : store::to_text(own.address());
  }

  void cut(const std::string& reason) override {
    cut_reason_ = reason;
    error_code ignored;
    socket_of(stream_).shutdown(tcp::socket::shutdown_both, ignored);
  }

 private:
  awaitable<void> send(std::string target, std::string body, Deadline deadline) {
    http::request<http::string_body> request(http::verb::post, target, 11);
    request.body().swap(body);
    request.set(http::field::host, name_);
    request.set(http::field::content_type, "application/json");
    // A member that has lost its cluster says so at once, and ends its watches, instead of being silent.
    request.set("Grpc-Metadata-hasleader", "true");
    request.prepare_payload();
    const std::optional<std::tuple<error_code, std::size_t>> written =
        co_await async::before(deadline, http::async_write(stream_, request, use_error));
    require_answer(written);
  }

  template <typename Limit>
  void start_reply(Limit body_limit) {
    parser_.emplace();
    parser_->body_limit(body_limit);
  }

  awaitable<HttpReply> whole_reply(Deadline deadline) {
    const std::optional<std::tuple<error_code, std::size_t>> read =
        co_await async::before(deadline, http::async_read(stream_, received_, *parser_, use_error));
    require_answer(read);
    answered_ = true;
    http::response<http::string_body>& message = parser_->get();
    co_return HttpReply{message.result_int(), std::move(message.body())};
  }

  void require_answer(const std::optional<std::tuple<error_code, std::size_t>>& result) const {
    if (!result) throw no_answer(name_, "the time limit is over");
    require(std::get<0>(*result));
  }

  void require(const error_code& error) const {
    if (!error) return;
    if (error == asio::error::operation_aborted) throw boost::system::system_error(error);
    if (!cut_reason_.empty()) throw no_answer(name_, cut_reason_);
    if (is_http_fault(error)) {
      throw refused(name_, "what answers there does not speak " + spoken() + " (" + error.message() + ")");
    }
    if (error.category() == asio::error::get_ssl_category()) {
      throw refused(name_, "TLS failed (" + error.message() + ")");
    }
    const bool closed = error == asio::error::eof || error == http::error::end_of_stream ||
                        error == http::error::partial_message || error == asio::ssl::error::stream_truncated;
    if (!closed) throw no_answer(name_, error.message());
    // So does an etcd that expects TLS.
    const bool mute = !std::is_same_v<Stream, TlsStream> && !answered_;
    throw no_answer(name_, mute ? "it closed the connection without a word; is it protocol=https?"
                                : "it closed the connection");
  }

  static std::string spoken() {
    return std::is_same_v<Stream, TlsStream> ? "HTTP over TLS" : "plain HTTP; is it protocol=https?";
  }

  Stream stream_;
  std::string name_;
  std::string cut_reason_;
  bool answered_ = false;
  beast::flat_buffer received_;  // read and not yet parsed
  std::optional<http::response_parser<http::string_body>> parser_;
};

// A family of addresses that this host lacks is no reason to give up the peer's others.
tcp::socket socket_for(const asio::any_io_executor& executor, const HttpPeer& peer) {
  try {
    return store::open_socket(executor, peer.address);
  } catch (const std::system_error& error) {
    throw unreachable(peer.name, error.what());
  }
}

// Whom the certificate must be for: a name, which is also told to the server, or an address.
void expect_host(SSL* tls, const std::string& host) {
  error_code not_numeric;
  asio::ip::make_address(host, not_numeric);
  if (!not_numeric) {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), host.c_str());
  } else {
    SSL_set1_host(tls, host.c_str());
    SSL_set_tlsext_host_name(tls, host.c_str());
  }
}

EtcdError no_tls(const std::string& name, SSL* tls, const error_code& error) {
  const long verdict = SSL_get_verify_result(tls);
  if (verdict != X509_V_OK) {
    return refused(name, std::string("its certificate is not accepted (") +
                             X509_verify_cert_error_string(verdict) + "); is cacert right?");
  }
  if (error.category() != asio::error::get_ssl_category()) {
    return unreachable(name, "it closed the connection when TLS began; is it protocol=http?");
  }
  if (ERR_GET_REASON(static_cast<unsigned long>(error.value())) == SSL_R_WRONG_VERSION_NUMBER) {
    return refused(name, "what answers there does not speak TLS; is it protocol=http?");
  }
  return refused(name, "TLS failed (" + error.message() + ")");
}

awaitable<std::unique_ptr<HttpConnection>> secured(tcp::socket socket, asio::ssl::context& context,
                                                   HttpPeer peer, Deadline deadline) {
  TlsStream stream(std::move(socket), context);
  expect_host(stream.native_handle(), peer.host);
  const std::optional<std::tuple<error_code>> done =
      co_await async::before(deadline, stream.async_handshake(TlsStream::client, use_error));
  if (!done) throw unreachable(peer.name, "it accepted the connection and did not answer in TLS");
  const error_code error = std::get<0>(*done);
  if (error == asio::error::operation_aborted) throw boost::system::system_error(error);
  if (error) throw no_tls(peer.name, stream.native_handle(), error);
  co_return std::make_unique<Connection<TlsStream>>(std::move(stream), std::move(peer.name));
}

}  // namespace

awaitable<std::unique_ptr<HttpConnection>> HttpConnection::open(HttpPeer peer, asio::ssl::context* tls,
                                                                std::chrono::milliseconds silence_limit,
                                                                Deadline deadline) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  tcp::socket socket = socket_for(executor, peer);
  notice_silence(socket.native_handle(), silence_limit);
  const std::optional<std::tuple<error_code>> connected =
      co_await async::before(deadline, socket.async_connect(peer.address, use_error));
  if (!connected) throw unreachable(peer.name, "it did not answer in time");
  const error_code error = std::get<0>(*connected);
  if (error == asio::error::operation_aborted) throw boost::system::system_error(error);
  if (error) throw unreachable(peer.name, error.message());
  if (tls == nullptr) {
    co_return std::make_unique<Connection<tcp::socket>>(std::move(socket), std::move(peer.name));
  }
  std::unique_ptr<HttpConnection> connection =
      co_await secured(std::move(socket), *tls, std::move(peer), deadline);
  co_return connection;
}

}  // namespace cpprun::rendezvous
