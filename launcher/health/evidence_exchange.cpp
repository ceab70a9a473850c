#include "launcher/health/evidence_exchange.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/steady_timer.hpp>
#include <nlohmann/json.hpp>
#include <utility>

#include "rendezvous/async/failure_of.hpp"

namespace cpprun::launcher {

using namespace boost::asio::experimental::awaitable_operators;

namespace {

using async::Deadline;
using std::chrono::milliseconds;

// Of one request to the store, one with a node's whole evidence among them.
constexpr milliseconds kStoreLimit{5'000};
constexpr milliseconds kConnectLimit{60'000};
// Before a store that failed is tried again.
constexpr milliseconds kPause{1'000};
// Between two looks at what is to be said, and while words are waited for.
constexpr milliseconds kTalkEvery{2'000};
constexpr milliseconds kListenEvery{20};
// Beyond the limit of gathering, for what is there to be read.
constexpr milliseconds kMargin{2'000};
constexpr milliseconds kShortestLimit{100};
constexpr milliseconds kLongestLimit{60'000};
// Of an attempt: workers can write to the store too.
constexpr int kMostRequests = 1'000;
constexpr std::size_t kMostGathered = std::size_t{64} << 20;
constexpr std::size_t kMostWhy = 1'024;
// A node's evidence is removed when so many further requests were made: whoever collects may be slow.
constexpr int kKeptRequests = 2;

const Deadline kNever = Deadline::at(async::Clock::time_point::max());

std::string root(const ExchangeSeat& seat) {
  return "cpprun/evidence/" + std::to_string(seat.attempt) + "/";
}

store::Key request_key(const ExchangeSeat& seat, int number) {
  return root(seat) + "request/" + std::to_string(number);
}

store::Key evidence_key(const ExchangeSeat& seat, int number, int group_rank) {
  return root(seat) + std::to_string(number) + "/" + std::to_string(group_rank);
}

// For a race, which would outlive what is thrown.
awaitable<std::exception_ptr> written(store::Store& store, store::Key key) {
  std::vector<store::Key> keys{std::move(key)};
  try {
    co_await store.wait(std::move(keys), kNever);
  } catch (...) {
    co_return std::current_exception();
  }
  co_return nullptr;
}

}  // namespace

struct EvidenceExchange::Request {
  int by = 0;
  std::string why;
  milliseconds limit{0};
  // The calls of gather() here that its outcome answers; 0: none.
  std::uint64_t answers = 0;

  std::string to_json() const {
    const nlohmann::json object = {{"by", by}, {"why", why}, {"limit_ms", limit.count()}};
    return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  static std::optional<Request> parse(const std::string& text) {
    const nlohmann::json object = nlohmann::json::parse(text, nullptr, false);
    if (!object.is_object()) return std::nullopt;
    const nlohmann::json by = object.value("by", nlohmann::json());
    const nlohmann::json why = object.value("why", nlohmann::json());
    const nlohmann::json limit = object.value("limit_ms", nlohmann::json());
    if (!by.is_number_integer() || !why.is_string() || !limit.is_number_integer()) return std::nullopt;
    const std::int64_t wished = limit.get<std::int64_t>();
    return Request{by.get<int>(), why.get<std::string>().substr(0, kMostWhy),
                   milliseconds(std::clamp(wished, kShortestLimit.count(), kLongestLimit.count())), 0};
  }
};

EvidenceExchange::EvidenceExchange(asio::any_io_executor executor, CaptureEvidence capture, KeepEvidence keep,
                                   WordsSource words)
    : capture_(std::move(capture)),
      keep_(std::move(keep)),
      changed_(std::move(executor)),
      words_(std::move(words)) {}

void EvidenceExchange::begin(ExchangeSeat seat) {
  words_.begin(seat.attempt, seat.group_rank);
  seat_.reset();
  if (seat.group_world_size > 1) seat_ = std::move(seat);
  ++generation_;
  next_ = 1;
  changed_.notify_all();
}

awaitable<void> EvidenceExchange::run() {
  for (;;) {
    while (!seat_) co_await changed_.wait();
    const std::uint64_t generation = generation_;
    awaitable<void> served = serve_patiently(*seat_);
    awaitable<void> over = replaced(generation);
    co_await (std::move(served) || std::move(over));
    co_await replaced(generation);
  }
}

awaitable<void> EvidenceExchange::replaced(std::uint64_t generation) {
  while (generation_ == generation) co_await changed_.wait();
}

// Throws nothing, as it is raced: a race in which everybody throws throws something else. Returns when it is
// cancelled, or there were too many requests.
awaitable<void> EvidenceExchange::serve_patiently(ExchangeSeat seat) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  for (;;) {
    co_await asio::this_coro::throw_if_cancelled(false);  // serve() sets it
    const std::exception_ptr failure = co_await async::failure_of(serve(seat));
    const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
    if (!failure || state.cancelled() != asio::cancellation_type::none) co_return;
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      spdlog::debug("evidence of other nodes cannot be had at the moment: {}", error.what());
    }
    timer.expires_after(kPause);
    co_await timer.async_wait(async::use_error);
  }
}

// Never returns.
awaitable<void> EvidenceExchange::serve(ExchangeSeat seat) {
  co_await asio::this_coro::throw_if_cancelled(true);
  const Deadline limit = Deadline::after(kConnectLimit);
  const std::unique_ptr<store::StoreClient> store =
      co_await store::StoreClient::connect(seat.store, limit, kStoreLimit);
  // The first to fail takes the other with it: they use the same store.
  awaitable<std::exception_ptr> answering = async::failure_of(answer_requests(*store, seat));
  awaitable<std::exception_ptr> talking = async::failure_of(talk(*store));
  const std::variant<std::exception_ptr, std::exception_ptr> first =
      co_await (std::move(answering) || std::move(talking));
  std::rethrow_exception(first.index() == 0 ? std::get<0>(first) : std::get<1>(first));
}

// What the nodes say, until cancelled.
awaitable<void> EvidenceExchange::talk(store::Store& store) {
  Deadline pause = Deadline::after(kTalkEvery);
  for (;;) {
    if (pause.passed() || words_.waits()) {
      co_await words_.exchange(store);
      pause = Deadline::after(kTalkEvery);
      changed_.notify_all();
    }
    const Deadline again = words_.waits() ? Deadline::after(kListenEvery) : pause;
    co_await changed_.wait_until(again.time());
  }
}

// Until cancelled; after too many requests none is answered any more.
awaitable<void> EvidenceExchange::answer_requests(store::Store& store, const ExchangeSeat& seat) {
  for (; next_ <= kMostRequests; ++next_) {
    const int number = next_;
    const store::Key key = request_key(seat, number);
    co_await next_request(store, key);
    const std::optional<Request> request = co_await claim(store, seat, key);
    if (request) {
      co_await answer(store, seat, number, *request);
    } else {
      spdlog::debug("{} in the workers' store is no request of an agent", key);
    }
  }
  spdlog::warn("attempt {}: no more evidence is gathered, after {} requests", seat.attempt, kMostRequests);
  for (;;) co_await changed_.wait();
}

awaitable<std::vector<NodeWords>> EvidenceExchange::last_words(std::vector<int> lost) {
  std::vector<NodeWords> words;
  if (!seat_) co_return words;
  words_.fail(lost);
  changed_.notify_all();
  const std::uint64_t generation = generation_;
  const Deadline end = Deadline::after(kWordsLimit);
  while (words_.waits() && generation_ == generation && !end.passed())
    co_await changed_.wait_until(end.time());
  for (const auto& [node, said] : words_.heard()) words.push_back(said);
  co_return words;
}

// Returns when somebody has written the key, or this node wants to.
awaitable<void> EvidenceExchange::next_request(store::Store& store, std::string key) {
  while (!wanted()) {
    awaitable<std::exception_ptr> by_anybody = written(store, key);
    awaitable<void> changed = changed_.wait();
    const std::variant<std::exception_ptr, std::monostate> first =
        co_await (std::move(by_anybody) || std::move(changed));
    if (first.index() == 1) continue;
    if (std::get<0>(first)) std::rethrow_exception(std::get<0>(first));
    co_return;
  }
}

// Writes this node's request unless another's is there already; the one that is there in the end, or nothing
// where that is none.
awaitable<std::optional<EvidenceExchange::Request>> EvidenceExchange::claim(store::Store& store,
                                                                            const ExchangeSeat& seat,
                                                                            std::string key) {
  Request own{seat.group_rank, why_, limit_, wanted() ? asked_ : 0};
  std::string text;
  if (own.answers > 0) {
    const store::CasResult result = co_await store.compare_set(key, "", own.to_json());
    if (result.outcome == store::CasOutcome::Won) co_return own;
    text = result.current;
  } else {
    text = co_await store.get(key);
  }
  std::optional<Request> theirs = Request::parse(text);
  if (theirs) theirs->answers = own.answers;
  co_return theirs;
}

awaitable<void> EvidenceExchange::answer(store::Store& store, const ExchangeSeat& seat, int number,
                                         const Request& request) {
  const Deadline limit = Deadline::after(request.limit);
  spdlog::debug("node {} asks for evidence: {}", request.by, request.why);
  // What comes at the very limit would come too late for who asked.
  std::optional<std::string> own = co_await own_evidence(request.why, request.limit * 4 / 5);
  if (own) co_await store.set(evidence_key(seat, number, seat.group_rank), std::move(*own));
  if (number > kKeptRequests) {
    co_await store.erase(evidence_key(seat, number - kKeptRequests, seat.group_rank));
  }
  if (request.answers == 0 && seat.group_rank != 0) co_return;
  Gathered gathered = co_await collect(store, seat, number, limit);
  co_await keep_(seat.attempt, number, gathered);
  if (request.answers > 0) {
    latest_ = std::move(gathered);
    answered_ = std::max(answered_, request.answers);  // somebody may have given up meanwhile
    changed_.notify_all();
  }
}

awaitable<std::optional<std::string>> EvidenceExchange::own_evidence(std::string why, milliseconds limit) {
  std::string trouble = "it took longer than " + std::to_string(limit.count()) + " ms";
  try {
    const Deadline end = Deadline::after(limit);
    std::optional<std::string> evidence = co_await async::before(end, capture_(std::move(why)));
    if (evidence && evidence->size() <= kMostBytes) co_return evidence;
    if (evidence) trouble = std::to_string(evidence->size()) + " bytes are too many";
  } catch (const std::exception& error) {
    if (async::is_cancellation(std::current_exception())) throw;
    trouble = error.what();
  }
  spdlog::warn("this node's evidence cannot be given: {}", trouble);
  co_return std::nullopt;
}

awaitable<Gathered> EvidenceExchange::collect(store::Store& store, const ExchangeSeat& seat, int number,
                                              Deadline limit) {
  std::vector<store::Key> keys;
  keys.reserve(static_cast<std::size_t>(seat.group_world_size));
  for (int node = 0; node < seat.group_world_size; ++node) keys.push_back(evidence_key(seat, number, node));
  const store::WaitResult all = co_await store.wait(keys, limit);
  Gathered gathered;
  std::size_t bytes = 0;
  for (int node = 0; node < seat.group_world_size; ++node) {
    std::vector<store::Key> one{keys[static_cast<std::size_t>(node)]};
    bool there = all == store::WaitResult::Ready;
    if (!there) there = co_await store.check(one);
    std::string evidence;
    if (there && bytes < kMostGathered) evidence = co_await store.get(std::move(one.front()));
    bytes += evidence.size();
    if (!there || evidence.size() > kMostBytes || bytes > kMostGathered) {
      gathered.missing.push_back(node);
    } else {
      gathered.by_node[node] = std::move(evidence);
    }
  }
  co_return gathered;
}

awaitable<Gathered> EvidenceExchange::alone(std::string why, milliseconds limit) {
  const int rank = seat_ ? seat_->group_rank : 0;
  const int nodes = seat_ ? seat_->group_world_size : 1;
  std::optional<std::string> own = co_await own_evidence(std::move(why), limit);
  Gathered gathered;
  for (int node = 0; node < nodes; ++node) {
    if (node != rank || !own) {
      gathered.missing.push_back(node);
    } else {
      gathered.by_node[node] = std::move(*own);
    }
  }
  co_return gathered;
}

awaitable<Gathered> EvidenceExchange::gather(std::string why, milliseconds limit) {
  limit = std::clamp(limit, kShortestLimit, kLongestLimit);
  const std::uint64_t generation = generation_;
  const int attempt = seat_ ? seat_->attempt : 0;
  if (seat_) {
    const std::uint64_t mine = ++asked_;
    why_ = why;
    limit_ = limit;
    changed_.notify_all();
    const Deadline end = Deadline::after(limit + kMargin);
    while (answered_ < mine && generation_ == generation && !end.passed()) {
      co_await changed_.wait_until(end.time());
    }
    if (answered_ >= mine) co_return latest_;
    answered_ = mine;  // nobody waits for it any more
  }
  // An attempt that began meanwhile does not change who is missing: nobody was asked.
  Gathered gathered = co_await alone(std::move(why), limit);
  co_await keep_(attempt, 0, gathered);
  co_return gathered;
}

}  // namespace cpprun::launcher
