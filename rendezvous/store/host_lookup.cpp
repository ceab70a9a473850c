#include "rendezvous/store/host_lookup.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

namespace cpprun::store {

using asio::ip::tcp;
using async::error_code;

// Lives as long as the thread that asks, or those who wait, whichever is longer.
struct HostLookups::Question {
  explicit Question(std::string name) : host(std::move(name)) {}
  ~Question() {
    if (found) ::freeaddrinfo(found);
  }
  Question(const Question&) = delete;
  Question& operator=(const Question&) = delete;

  void fail(std::string why) {
    error = std::move(why);
    answered = true;
  }

  const std::string host;
  addrinfo* found = nullptr;
  std::string error;
  std::atomic<bool> answered{false};  // from then on the thread changes nothing
};

struct HostLookups::LookUp {
  std::shared_ptr<Question> question;
  asio::posix::stream_descriptor answered;  // the reading end of a pipe that the thread closes
};

void HostLookups::ask(const std::shared_ptr<Question>& question, int closed_at_the_end) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  const int failure = ::getaddrinfo(question->host.c_str(), nullptr, &hints, &question->found);
  if (failure != 0) {
    const int reason = errno;
    question->found = nullptr;
    question->error =
        failure == EAI_SYSTEM ? std::generic_category().message(reason) : ::gai_strerror(failure);
  }
  question->answered = true;
  ::close(closed_at_the_end);
}

std::shared_ptr<HostLookups::LookUp> HostLookups::begin(const asio::any_io_executor& executor,
                                                        const std::string& host) {
  const std::shared_ptr<Question> question = std::make_shared<Question>(host);
  std::shared_ptr<LookUp> look_up(new LookUp{question, asio::posix::stream_descriptor(executor)});
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    question->fail("cannot ask: " + std::generic_category().message(errno));
    return look_up;
  }
  look_up->answered.assign(ends[0]);
  sigset_t all;  // signals are for the other threads
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(&HostLookups::ask, question, ends[1]).detach();
  } catch (const std::system_error& error) {
    question->fail(std::string("cannot ask: ") + error.what());
    ::close(ends[1]);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return look_up;
}

awaitable<HostAddresses> HostLookups::look_up(std::string host, std::uint16_t port,
                                              async::Deadline deadline) {
  error_code not_numeric;
  const asio::ip::address numeric = asio::ip::make_address(host, not_numeric);
  if (!not_numeric) co_return HostAddresses{{tcp::endpoint(numeric, port)}, ""};

  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  std::shared_ptr<LookUp>& pending = pending_[host];
  if (!pending) pending = begin(executor, host);
  const std::shared_ptr<LookUp> look_up = pending;
  const Question& question = *look_up->question;
  if (!question.answered) {
    awaitable<std::tuple<error_code>> closed =
        look_up->answered.async_wait(asio::posix::stream_descriptor::wait_read, async::use_error);
    co_await async::before(deadline, std::move(closed));
  }
  if (!question.answered) co_return HostAddresses{{}, "the name was not resolved in time", false};
  pending_.erase(host);
  HostAddresses addresses{{}, question.error};
  for (const addrinfo* entry = question.found; entry; entry = entry->ai_next) {
    tcp::endpoint endpoint;
    endpoint.resize(entry->ai_addrlen);
    std::memcpy(endpoint.data(), entry->ai_addr, entry->ai_addrlen);
    endpoint.port(port);
    addresses.endpoints.push_back(endpoint);
  }
  co_return addresses;
}

awaitable<HostAddresses> look_up(std::string host, std::uint16_t port, async::Deadline deadline) {
  HostLookups lookups;
  co_return co_await lookups.look_up(std::move(host), port, deadline);
}

}  // namespace cpprun::store
