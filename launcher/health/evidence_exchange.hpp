// Gathers what every node of an attempt can tell of its workers, by way of the workers' store, which all
// nodes' agents reach. Whoever wants to know writes a request; every agent waits for one, answers, and goes
// on waiting:
//
//   cpprun/evidence/<attempt>/request/<n>       {"by": group rank, "why": text, "limit_ms": number}, n from 1
//   cpprun/evidence/<attempt>/<n>/<group rank>  that node's evidence, bytes that mean nothing to the exchange
//
// Two that ask at the same moment share one request: the first to write it wins, and both get its answers.
// Before the first request nothing is written. A node uses one connection to the store, and a second one to
// exchange last words (last_words.hpp); a job of one node none.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/health/last_words.hpp"
#include "rendezvous/async/event.hpp"
#include "rendezvous/store/store_client.hpp"

namespace cpprun::launcher {

// By group rank.
struct Gathered {
  std::map<int, std::string> by_node;
  std::vector<int> missing;  // did not answer in time, or not with something of a fit length
};

// The evidence of this node, at most EvidenceExchange::kMostBytes. Cancelled when it takes too long.
using CaptureEvidence = std::function<awaitable<std::string>(std::string why)>;

// This node's place in an attempt.
struct ExchangeSeat {
  store::StoreEndpoint store;  // as workers of this node reach it
  int attempt = 0;
  int group_rank = 0;
  int group_world_size = 1;
};

// Told of every request's outcome at the node that asked and at group rank 0. Throws nothing.
using KeepEvidence = std::function<awaitable<void>(int attempt, int request, Gathered gathered)>;

class EvidenceExchange {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{4} << 20;
  static constexpr std::chrono::milliseconds kGatherLimit{5'000};
  static constexpr std::chrono::milliseconds kWordsLimit{500};

  EvidenceExchange(asio::any_io_executor executor, CaptureEvidence capture, KeepEvidence keep,
                   WordsSource words);

  // The workers of another attempt start; the store of the one before is left alone from now on.
  void begin(ExchangeSeat seat);

  // Answers requests, until cancelled. Trouble with the store is logged and tried again, never thrown.
  awaitable<void> run();

  // Everybody's evidence, within `limit` and a moment. Without an attempt of several nodes, or a store, this
  // node's alone. Calls may overlap. Cancel-safe; throws nothing but the end of a cancelled wait.
  awaitable<Gathered> gather(std::string why, std::chrono::milliseconds limit = kGatherLimit);

  // The attempt fails, and these nodes are lost: what they said last and what node 0 says of itself, as far
  // as it can be heard within kWordsLimit. Cancel-safe; throws nothing else.
  awaitable<std::vector<NodeWords>> last_words(std::vector<int> lost);

 private:
  struct Request;

  awaitable<void> replaced(std::uint64_t generation);
  awaitable<void> serve_patiently(ExchangeSeat seat);
  awaitable<void> serve(ExchangeSeat seat);
  awaitable<void> answer_requests(store::Store& store, const ExchangeSeat& seat);
  awaitable<void> talk(store::Store& store);
  awaitable<void> next_request(store::Store& store, std::string key);
  awaitable<std::optional<Request>> claim(store::Store& store, const ExchangeSeat& seat, std::string key);
  awaitable<void> answer(store::Store& store, const ExchangeSeat& seat, int number, const Request& request);
  awaitable<std::optional<std::string>> own_evidence(std::string why, std::chrono::milliseconds limit);
  awaitable<Gathered> collect(store::Store& store, const ExchangeSeat& seat, int number,
                              async::Deadline limit);
  awaitable<Gathered> alone(std::string why, std::chrono::milliseconds limit);
  bool wanted() const { return asked_ > answered_; }

  CaptureEvidence capture_;
  KeepEvidence keep_;
  async::Event changed_;  // any of what follows
  LastWords words_;
  std::optional<ExchangeSeat> seat_;  // nothing: no attempt of several nodes
  std::uint64_t generation_ = 0;      // of seat_
  int next_ = 1;                      // number of the request to wait for
  // Calls of gather(), by number, and the outcome of the latest that was answered.
  std::uint64_t asked_ = 0;
  std::uint64_t answered_ = 0;
  std::string why_;
  std::chrono::milliseconds limit_{0};
  Gathered latest_;
};

}  // namespace cpprun::launcher
