// The addresses a host name stands for, asked for without holding up this thread or the end of the process.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/async/deadline.hpp"

namespace cpprun::store {

struct HostAddresses {
  std::vector<asio::ip::tcp::endpoint> endpoints;  // in the order to try them; empty: see `error`
  std::string error;
  bool answered = true;  // false: not in time
};

// Questions to the system's resolver that outlive the wait for their answer. It can be neither awaited nor
// cancelled, so each name is asked for on a thread of its own, which touches nothing but its question and
// ends at the latest with the process.
class HostLookups {
 public:
  // A numeric address is taken as it is, without asking anybody. At the deadline, or when cancelled, the
  // caller goes on, and who asks for that name again waits for the same answer: a resolver whose first name
  // server is dead takes longer than one try to connect.
  awaitable<HostAddresses> look_up(std::string host, std::uint16_t port, async::Deadline deadline);

 private:
  struct Question;
  struct LookUp;
  static void ask(const std::shared_ptr<Question>& question, int closed_at_the_end);
  static std::shared_ptr<LookUp> begin(const asio::any_io_executor& executor, const std::string& host);

  std::map<std::string, std::shared_ptr<LookUp>> pending_;
};

// One question, where nobody will ask again.
awaitable<HostAddresses> look_up(std::string host, std::uint16_t port, async::Deadline deadline);

}  // namespace cpprun::store
