#include "rendezvous/etcd/etcd_client.hpp"

#include <algorithm>
#include <array>
#include <boost/asio/ssl/context.hpp>
#include <cassert>
#include <iterator>
#include <utility>

#include "rendezvous/async/deadline.hpp"
#include "rendezvous/etcd/etcd_messages.hpp"
#include "rendezvous/etcd/http_connection.hpp"
#include "rendezvous/etcd/tls_context.hpp"
#include "rendezvous/store/address_text.hpp"
#include "rendezvous/store/host_lookup.hpp"

namespace cpprun::rendezvous {
namespace {

using async::Deadline;
using std::chrono::seconds;

constexpr std::size_t kMaxIdle = 4;
constexpr int kPageEntries = 1000;
// Of one message of a watch: more than etcd lets one request change.
constexpr std::size_t kMaxLineBytes = 64 * 1024 * 1024;

std::string name_of(const EtcdEndpoint& endpoint) {
  return store::to_text(endpoint.host, endpoint.port);
}

// An error by etcd's own word, of which the caller may know better.
struct ToldError : EtcdError {
  ToldError(EtcdFailure failure, const std::string& sentence, int told)
      : EtcdError(failure, sentence), code(told) {}
  int code;
};

// The member answers, but cannot do its work at present.
bool is_passing(int code) {
  constexpr std::array kPassing{messages::kCanceled, messages::kDeadlineExceeded, messages::kUnavailable};
  return std::find(kPassing.begin(), kPassing.end(), code) != kPassing.end();
}

ToldError told_error(const std::string& name, const messages::Fault& fault) {
  if (is_passing(fault.code)) {
    return {EtcdFailure::NoAnswer, "etcd at " + name + " cannot answer at present: " + fault.message,
            fault.code};
  }
  return {EtcdFailure::Refused, "etcd at " + name + " refused a request: " + fault.message, fault.code};
}

EtcdError not_etcd(const std::string& name, const std::string& cause) {
  return EtcdError(EtcdFailure::Refused, "cannot use etcd at " + name +
                                             ": what answers there is no etcd of version 3.4 or newer (" +
                                             cause + ")");
}

void require_success(const std::string& name, const HttpReply& reply) {
  if (const std::optional<messages::Fault> fault = messages::read_fault(reply.body)) {
    throw told_error(name, *fault);
  }
  if (reply.status != 200) throw not_etcd(name, "HTTP status " + std::to_string(reply.status));
}

}  // namespace

struct EtcdClient::Impl {
  // A connection in use, of the endpoint with that index.
  struct Borrowed {
    std::size_t index = 0;
    std::unique_ptr<HttpConnection> connection;
  };
  struct Answer {
    std::string name;  // of the endpoint
    std::string body;
  };

  Deadline limit() const { return Deadline::after(options.request_limit); }
  Deadline limit(std::chrono::milliseconds patience) const {
    return Deadline::after(std::min(options.request_limit, patience));
  }
  std::string name(std::size_t index) const { return name_of(endpoints[index]); }
  asio::ssl::context* tls_context() { return tls ? &*tls : nullptr; }

  awaitable<std::unique_ptr<HttpConnection>> connect_to(std::size_t index, Deadline deadline);
  awaitable<Borrowed> connect(Deadline deadline);
  awaitable<Borrowed> borrow(Deadline deadline);
  void leave(std::size_t index, bool silent);
  awaitable<Answer> ask(std::string target, std::string body,
                        std::chrono::milliseconds patience = std::chrono::milliseconds::max());

  std::vector<EtcdEndpoint> endpoints;
  EtcdOptions options;
  std::optional<asio::ssl::context> tls;
  std::size_t current = 0;  // the endpoint to begin with
  std::string local_address;
  std::vector<Borrowed> idle;
  std::vector<EtcdWatch::Impl*> watches;
};

struct EtcdWatch::Impl {
  Impl(EtcdClient::Impl& owner, EtcdClient::Impl::Borrowed borrowed)
      : client(owner), index(borrowed.index), connection(std::move(borrowed.connection)) {
    client.watches.push_back(this);
  }
  ~Impl() { client.watches.erase(std::find(client.watches.begin(), client.watches.end(), this)); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::string name() const { return client.name(index); }
  awaitable<void> begin(std::string request, Deadline deadline);
  awaitable<std::string> line();
  awaitable<messages::WatchReply> reply();
  WatchNews ended(const messages::WatchReply& last) const;

  EtcdClient::Impl& client;
  std::size_t index;
  std::unique_ptr<HttpConnection> connection;
  std::string received;  // a part of a line
  std::optional<WatchNews> end;
};

namespace {

// A part of the time left, so that each candidate has its turn.
Deadline share_of(Deadline deadline, std::size_t candidates) {
  return Deadline::after(deadline.remaining() / static_cast<std::int64_t>(candidates));
}

template <typename T>
T understood(const std::string& name, const std::string& body, T (*read)(const std::string&)) {
  try {
    return read(body);
  } catch (const messages::BadReply& error) {
    throw not_etcd(name, error.what());
  }
}

// What several endpoints had to say; Refused if all of them refused.
EtcdError none_of(const std::vector<EtcdError>& failures) {
  if (failures.size() == 1) return failures.front();
  std::string sentence = "none of etcd's endpoints can be used";
  const char* separator = ": ";
  bool all_refused = true;
  for (const EtcdError& failure : failures) {
    sentence += separator + std::string(failure.what());
    separator = "; ";
    all_refused = all_refused && failure.failure() == EtcdFailure::Refused;
  }
  return EtcdError(all_refused ? EtcdFailure::Refused : EtcdFailure::Unreachable, sentence);
}

}  // namespace

awaitable<std::unique_ptr<HttpConnection>> EtcdClient::Impl::connect_to(std::size_t index,
                                                                        Deadline deadline) {
  const EtcdEndpoint& endpoint = endpoints[index];
  const store::HostAddresses host = co_await store::look_up(endpoint.host, endpoint.port, deadline);
  EtcdError failure(EtcdFailure::Unreachable, "cannot connect to etcd at " + name(index) + ": " + host.error);
  for (std::size_t i = 0; i < host.endpoints.size(); ++i) {
    HttpPeer peer{endpoint.host, name(index), host.endpoints[i]};
    try {
      std::unique_ptr<HttpConnection> connection =
          co_await HttpConnection::open(std::move(peer), tls_context(), options.silence_limit,
                                        share_of(deadline, host.endpoints.size() - i));
      co_return connection;
    } catch (const EtcdError& error) {
      failure = error;
    }
  }
  throw failure;
}

awaitable<EtcdClient::Impl::Borrowed> EtcdClient::Impl::connect(Deadline deadline) {
  const std::size_t first = current;
  std::vector<EtcdError> failures;
  for (std::size_t i = 0; i < endpoints.size(); ++i) {
    Borrowed borrowed;
    borrowed.index = (first + i) % endpoints.size();
    const Deadline attempt = share_of(deadline, endpoints.size() - i);
    try {
      borrowed.connection = co_await connect_to(borrowed.index, attempt);
      current = borrowed.index;
      local_address = borrowed.connection->local_address();
      co_return borrowed;
    } catch (const EtcdError& error) {
      failures.push_back(error);
    }
  }
  throw none_of(failures);
}

awaitable<EtcdClient::Impl::Borrowed> EtcdClient::Impl::borrow(Deadline deadline) {
  while (!idle.empty()) {
    Borrowed borrowed = std::move(idle.back());
    idle.pop_back();
    if (borrowed.index == current && borrowed.connection->usable()) co_return borrowed;
  }
  Borrowed borrowed = co_await connect(deadline);
  co_return borrowed;
}

// An endpoint was of no use: the next call goes to the next one. One that is silent would leave its watches
// waiting; they are better off elsewhere, if there is an elsewhere.
void EtcdClient::Impl::leave(std::size_t index, bool silent) {
  if (current == index) current = (index + 1) % endpoints.size();
  if (!silent || endpoints.size() == 1) return;
  for (const EtcdWatch::Impl* watch : watches) {
    if (watch->index == index) watch->connection->cut("a request to it got no answer in time");
  }
}

awaitable<EtcdClient::Impl::Answer> EtcdClient::Impl::ask(std::string target, std::string body,
                                                          std::chrono::milliseconds patience) {
  Borrowed borrowed = co_await borrow(limit(patience));
  const Deadline deadline = limit(patience);
  Answer answer{name(borrowed.index), ""};
  try {
    HttpReply reply = co_await borrowed.connection->ask(std::move(target), std::move(body), deadline);
    require_success(answer.name, reply);
    answer.body = std::move(reply.body);
  } catch (const EtcdError& error) {
    if (error.failure() == EtcdFailure::NoAnswer) leave(borrowed.index, deadline.passed());
    throw;
  }
  if (idle.size() < kMaxIdle) idle.push_back(std::move(borrowed));
  co_return answer;
}

EtcdClient::EtcdClient(std::vector<EtcdEndpoint> endpoints, const EtcdOptions& options)
    : impl_(std::make_unique<Impl>()) {
  assert(!endpoints.empty());
  impl_->endpoints = std::move(endpoints);
  impl_->options = options;
  if (options.https) impl_->tls = make_tls_context(options.tls);
}
EtcdClient::~EtcdClient() {
  assert(impl_->watches.empty() && "an EtcdClient ended before its watches");
}

awaitable<KeyReading> EtcdClient::get(std::string key) {
  const KeyRange range{key, false};
  const Impl::Answer answer =
      co_await impl_->ask("/v3/kv/range", messages::list_request(range, range.key, 1, 0));
  messages::ListReply reply = understood(answer.name, answer.body, messages::read_list);
  KeyReading reading{std::nullopt, reply.revision};
  if (!reply.entries.empty()) reading.entry = std::move(reply.entries.front());
  co_return reading;
}

awaitable<PrefixReading> EtcdClient::list(std::string prefix) {
  const KeyRange range{std::move(prefix), true};
  PrefixReading reading;
  std::string first = range.key;
  for (bool more = true; more;) {
    Impl::Answer answer;
    try {
      answer = co_await impl_->ask("/v3/kv/range",
                                   messages::list_request(range, first, kPageEntries, reading.revision));
    } catch (const ToldError& error) {
      if (error.code != messages::kOutOfRange) throw;
      throw EtcdError(EtcdFailure::NoAnswer, error.what());
    }
    messages::ListReply page = understood(answer.name, answer.body, messages::read_list);
    if (reading.revision == 0) reading.revision = page.revision;
    std::move(page.entries.begin(), page.entries.end(), std::back_inserter(reading.entries));
    more = page.more && !page.entries.empty();
    if (more) first = reading.entries.back().key + '\0';
  }
  co_return reading;
}

awaitable<Revision> EtcdClient::put(std::string key, std::string value, LeaseId lease) {
  const Impl::Answer answer = co_await impl_->ask("/v3/kv/put", messages::put_request(key, value, lease));
  co_return understood(answer.name, answer.body, messages::read_revision);
}

awaitable<bool> EtcdClient::put_fenced(std::string key, std::string value, Fence fence, LeaseId lease) {
  const Impl::Answer answer =
      co_await impl_->ask("/v3/kv/txn", messages::fenced_put_request(key, value, lease, fence));
  co_return understood(answer.name, answer.body, messages::read_txn).succeeded;
}

awaitable<CreateResult> EtcdClient::create(std::string key, std::string value, LeaseId lease) {
  const Impl::Answer answer = co_await impl_->ask("/v3/kv/txn", messages::create_request(key, value, lease));
  messages::TxnReply reply = understood(answer.name, answer.body, messages::read_txn);
  if (reply.succeeded) {
    KeyValue own{std::move(key), std::move(value), reply.revision, reply.revision, lease};
    co_return CreateResult{true, std::move(own), reply.revision};
  }
  if (!reply.found) throw not_etcd(answer.name, "it found a key to be there and absent");
  co_return CreateResult{false, std::move(*reply.found), reply.revision};
}

awaitable<bool> EtcdClient::erase(std::string key) {
  const KeyRange range{std::move(key), false};
  const Impl::Answer answer = co_await impl_->ask("/v3/kv/deleterange", messages::delete_request(range));
  co_return understood(answer.name, answer.body, messages::read_deleted) > 0;
}

awaitable<std::int64_t> EtcdClient::erase_prefix(std::string prefix) {
  const KeyRange range{std::move(prefix), true};
  const Impl::Answer answer = co_await impl_->ask("/v3/kv/deleterange", messages::delete_request(range));
  co_return understood(answer.name, answer.body, messages::read_deleted);
}

awaitable<bool> EtcdClient::erase_fenced(std::string key, Fence fence) {
  const Impl::Answer answer = co_await impl_->ask("/v3/kv/txn", messages::fenced_delete_request(key, fence));
  co_return understood(answer.name, answer.body, messages::read_txn).succeeded;
}

awaitable<Lease> EtcdClient::grant(seconds time_to_live) {
  const Impl::Answer answer = co_await impl_->ask("/v3/lease/grant", messages::grant_request(time_to_live));
  co_return understood(answer.name, answer.body, messages::read_grant);
}

awaitable<std::optional<seconds>> EtcdClient::keep_alive(LeaseId lease, std::chrono::milliseconds patience) {
  const Impl::Answer answer =
      co_await impl_->ask("/v3/lease/keepalive", messages::lease_request(lease), patience);
  co_return understood(answer.name, answer.body, messages::read_keep_alive);
}

awaitable<bool> EtcdClient::revoke(LeaseId lease) {
  try {
    co_await impl_->ask("/v3/lease/revoke", messages::lease_request(lease));
  } catch (const ToldError& error) {
    if (error.code != messages::kNotFound) throw;
    co_return false;
  }
  co_return true;
}

awaitable<std::unique_ptr<EtcdWatch>> EtcdClient::watch(KeyRange range, Revision from) {
  Impl::Borrowed borrowed = co_await impl_->connect(impl_->limit());
  std::unique_ptr<EtcdWatch::Impl> begun = std::make_unique<EtcdWatch::Impl>(*impl_, std::move(borrowed));
  const Deadline deadline = impl_->limit();
  try {
    co_await begun->begin(messages::watch_request(range, from), deadline);
  } catch (const EtcdError& error) {
    if (error.failure() == EtcdFailure::NoAnswer) impl_->leave(begun->index, deadline.passed());
    throw;
  }
  co_return std::make_unique<EtcdWatch>(std::move(begun));
}

const std::string& EtcdClient::local_address() const {
  return impl_->local_address;
}

EtcdWatch::EtcdWatch(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
EtcdWatch::~EtcdWatch() = default;

awaitable<void> EtcdWatch::Impl::begin(std::string request, Deadline deadline) {
  const HttpReply head = co_await connection->ask_stream("/v3/watch", std::move(request), deadline);
  if (head.status != 200 || !head.body.empty()) require_success(name(), head);
  const std::optional<messages::WatchReply> first = co_await async::before(deadline, reply());
  if (!first) {
    throw EtcdError(EtcdFailure::NoAnswer, "no answer from etcd at " + name() + ": it did not begin a watch");
  }
  if (first->canceled && first->compacted == 0) {
    throw EtcdError(EtcdFailure::Refused, "etcd at " + name() + " refused a watch: " + first->reason);
  }
  if (first->canceled) end = ended(*first);
}

// The next line that is not empty.
awaitable<std::string> EtcdWatch::Impl::line() {
  std::size_t searched = 0;
  for (;;) {
    const std::size_t at = received.find('\n', searched);
    if (at != std::string::npos) {
      std::string found = received.substr(0, at);
      received.erase(0, at + 1);
      searched = 0;
      if (!found.empty()) co_return found;
      continue;
    }
    searched = received.size();
    if (searched > kMaxLineBytes) throw not_etcd(name(), "a message of a watch has no end");
    const std::string more = co_await connection->more();
    // The last word, an error's, has no line's end.
    if (more.empty() && !received.empty()) co_return std::exchange(received, std::string());
    if (more.empty()) {
      throw EtcdError(EtcdFailure::NoAnswer, "no answer from etcd at " + name() + ": it ended a watch");
    }
    received += more;
  }
}

awaitable<messages::WatchReply> EtcdWatch::Impl::reply() {
  const std::string text = co_await line();
  if (const std::optional<messages::Fault> fault = messages::read_fault(text))
    throw told_error(name(), *fault);
  co_return understood(name(), text, messages::read_watch);
}

WatchNews EtcdWatch::Impl::ended(const messages::WatchReply& last) const {
  if (last.compacted > 0) {
    return {
        WatchNews::Kind::Compacted,
        {},
        "etcd at " + name() + " has forgotten the changes before revision " + std::to_string(last.compacted)};
  }
  return {WatchNews::Kind::Broken, {}, "etcd at " + name() + " ended a watch: " + last.reason};
}

awaitable<WatchNews> EtcdWatch::next() {
  while (!impl_->end) {
    try {
      messages::WatchReply reply = co_await impl_->reply();
      if (!reply.events.empty()) co_return WatchNews{WatchNews::Kind::Events, std::move(reply.events), ""};
      if (reply.canceled) impl_->end = impl_->ended(reply);
    } catch (const EtcdError& error) {
      impl_->client.leave(impl_->index, false);
      impl_->end = WatchNews{WatchNews::Kind::Broken, {}, error.what()};
    }
  }
  co_return *impl_->end;
}

}  // namespace cpprun::rendezvous
