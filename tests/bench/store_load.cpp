// The load generator of scripts/bench/store.
//
// Usage: store_load HOST PORT MODE...
//   pipelined KIND CONNECTIONS DEPTH SECONDS [floor]   each connection sends DEPTH requests (set-get: half of
//       them SET, half GET), waits for all answers, checks them (not the floor's) and sends the next
//   wake WAITERS ROUNDS    all wait for one key, which another connection sets; each round with a new key
//   connect COUNT          one connection after the other is opened, greeted and left open
//   hold CONNECTIONS       opens these and keeps them until stdin ends. For every further line on stdin those
//       that were answered ask again. An answer counts unless none has come for a second before it
//   exchange WORKERS PORTS_FILE   connects so many to each of the ports in the file, which lead to one store;
//       each sets a key of its own and counts itself, the last one sets a key that all wait for, and then
//       each reads 8 keys, as workers do that form a process group. Connections stay until stdin ends
// Prints "ready", begins when a line comes on stdin, and prints a line of JSON (`hold`: for every line).

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "tests/bench/store_crowd.hpp"
#include "tests/bench/store_requests.hpp"

namespace {

using namespace cpprun;
using bench::Clock;
using bench::Crowd;

constexpr std::chrono::milliseconds kPatience = std::chrono::minutes(2);
constexpr std::size_t kUngreeted = 1000;  // connections at once: less than a listener's backlog

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "store_load: %s\n", what);
  std::exit(1);
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

bool next_line() {
  for (;;) {
    const int character = std::getchar();
    if (character == EOF) return false;
    if (character == '\n') return true;
  }
}

void wait_for_start() {
  std::puts("ready");
  std::fflush(stdout);
  if (!next_line()) std::exit(0);
}

// One measurement, from its making to its report.
class Measurement {
 public:
  void add_latency(Clock::duration latency) {
    microseconds_.push_back(std::chrono::duration<float, std::micro>(latency).count());
  }
  void add_operations(int operations) { operations_ += operations; }

  void report() {
    const double seconds = seconds_since(start_);
    const double cpu = cpu_seconds() - cpu_;
    std::sort(microseconds_.begin(), microseconds_.end());
    std::printf(
        R"({"operations": %lld, "seconds": %.6f, "generator_cpu_seconds": %.6f, "p50_us": %.1f, "p99_us": %.1f, "max_us": %.1f})"
        "\n",
        operations_, seconds, cpu, percentile(0.5), percentile(0.99), percentile(1));
    std::fflush(stdout);
  }

 private:
  double percentile(double part) const {
    if (microseconds_.empty()) return 0;
    return microseconds_[static_cast<std::size_t>(static_cast<double>(microseconds_.size() - 1) * part)];
  }

  Clock::time_point start_ = Clock::now();
  double cpu_ = cpu_seconds();
  long long operations_ = 0;
  std::vector<float> microseconds_;
};

// Opens connections and greets the server on each; those that it has answered by the time no answer has come
// for as long as `patience`.
std::vector<std::size_t> greet(Crowd& crowd, std::size_t connections, std::chrono::milliseconds patience) {
  std::vector<std::size_t> answered;
  const auto note = [&answered](std::size_t number, std::string_view) { answered.push_back(number); };
  for (std::size_t i = 0; i < connections; ++i) {
    crowd.send(crowd.connect(), bench::kGreeting, bench::kGreetingReply);
    while (crowd.outstanding() >= kUngreeted && crowd.collect(patience, note) > 0) {
    }
  }
  while (crowd.outstanding() > 0 && crowd.collect(patience, note) > 0) {
  }
  return answered;
}

void greet_all(Crowd& crowd, std::size_t connections) {
  if (greet(crowd, connections, kPatience).size() != connections) fail("a connection is not answered");
}

void await_all(Crowd& crowd) {
  while (crowd.outstanding() > 0) {
    if (crowd.collect(kPatience, [](std::size_t, std::string_view) {}) == 0) fail("an answer does not come");
  }
}

// What one connection sends at a time.
struct Batch {
  std::string requests;
  std::string replies;  // that are due
  Clock::time_point sent{};
  bool answered = false;  // ADD's replies are not known before
};

std::vector<Batch> make_batches(bench::Kind kind, std::size_t connections, int depth) {
  std::vector<Batch> batches(connections);
  for (std::size_t i = 0; i < connections; ++i) {
    int operations = 0;
    for (int slot = 0; operations < depth; ++slot) {
      const bench::Exchange exchange = bench::exchange(kind, static_cast<int>(i), slot);
      batches[i].requests += exchange.request;
      batches[i].replies += exchange.reply;
      operations += exchange.operations;
    }
  }
  return batches;
}

void check(bench::Kind kind, Batch& batch, std::string_view replies) {
  if (kind == bench::Kind::Add) {
    // Earlier loads may have counted these keys up; from the first answers on each counts by one.
    if (!batch.answered) batch.replies = replies;
    for (std::size_t at = 0; batch.answered && at < batch.replies.size(); at += sizeof(std::int64_t)) {
      std::int64_t sum = 0;
      std::memcpy(&sum, batch.replies.data() + at, sizeof sum);
      ++sum;
      std::memcpy(batch.replies.data() + at, &sum, sizeof sum);
    }
    batch.answered = true;
  }
  if (replies != batch.replies) fail("wrong answers");
}

void pipelined(Crowd& crowd, bench::Kind kind, std::size_t connections, int depth, double limit,
               bool checked) {
  greet_all(crowd, connections);
  std::vector<Batch> batches = make_batches(kind, connections, depth);
  if (kind == bench::Kind::Get && checked) {
    const std::vector<Batch> sets = make_batches(bench::Kind::SetGet, connections, 2 * depth);
    for (std::size_t i = 0; i < connections; ++i) crowd.send(i, sets[i].requests, sets[i].replies.size());
    await_all(crowd);
  }
  wait_for_start();
  Measurement measurement;
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limit));
  const auto next = [&](std::size_t number, Clock::time_point now) {
    batches[number].sent = now;
    crowd.send(number, batches[number].requests, batches[number].replies.size());
  };
  for (std::size_t i = 0; i < connections; ++i) next(i, Clock::now());
  const auto answered = [&](std::size_t number, std::string_view replies) {
    const Clock::time_point now = Clock::now();
    measurement.add_latency(now - batches[number].sent);
    measurement.add_operations(depth);
    if (checked) check(kind, batches[number], replies);
    if (now < end) next(number, now);
  };
  while (crowd.outstanding() > 0) {
    if (crowd.collect(kPatience, answered) == 0) fail("an answer does not come");
  }
  measurement.report();
}

// Latencies are those of the rounds: from the key's being set to the last waiter's answer.
void wake(Crowd& crowd, std::size_t waiters, int rounds) {
  greet_all(crowd, waiters + 1);  // the last one sets
  wait_for_start();
  Measurement measurement;
  for (int round = 0; round < rounds; ++round) {
    const bench::Waking requests = bench::waking(::getpid(), round);
    for (std::size_t i = 0; i < waiters; ++i) {
      crowd.send(i, requests.wait, bench::kGreetingReply);
      if (i % kUngreeted == 0) await_all(crowd);
    }
    await_all(crowd);
    for (std::size_t i = 0; i < waiters; ++i) crowd.expect(i, 1);
    const Clock::time_point start = Clock::now();
    crowd.send(waiters, requests.set, bench::kGreetingReply);
    // Awake all the while: a server that had to wake this process for every byte would show nothing else.
    while (crowd.outstanding() > 0) {
      crowd.collect(std::chrono::milliseconds(0), [](std::size_t, std::string_view) {});
      if (Clock::now() - start > kPatience) fail("an answer does not come");
    }
    measurement.add_latency(Clock::now() - start);
    measurement.add_operations(static_cast<int>(waiters));
  }
  measurement.report();
}

void connect_each(Crowd& crowd, std::size_t count) {
  wait_for_start();
  Measurement measurement;
  for (std::size_t i = 0; i < count; ++i) {
    const Clock::time_point start = Clock::now();
    crowd.send(crowd.connect(), bench::kGreeting, bench::kGreetingReply);
    await_all(crowd);
    measurement.add_latency(Clock::now() - start);
    measurement.add_operations(1);
  }
  measurement.report();
}

void report_held(std::size_t open, std::size_t answered, Clock::time_point start) {
  std::printf(R"({"answered": %zu, "again": %zu, "seconds": %.3f})"
              "\n",
              open, answered, seconds_since(start));
  std::fflush(stdout);
}

void hold(Crowd& crowd, std::size_t connections) {
  constexpr std::chrono::milliseconds kStalled = std::chrono::seconds(1);
  wait_for_start();
  Clock::time_point start = Clock::now();
  std::vector<std::size_t> open = greet(crowd, connections, kStalled);
  report_held(open.size(), 0, start);
  while (next_line()) {
    start = Clock::now();
    std::vector<char> asked(connections, 0);
    for (const std::size_t number : open) {
      asked[number] = 1;
      crowd.send(number, store::ping_bytes(0), bench::kGreetingReply);
    }
    std::size_t again = 0;
    const auto note = [&](std::size_t number, std::string_view) {
      if (asked[number] != 0) {
        ++again;
      } else {
        open.push_back(number);  // its greeting was still on its way
      }
    };
    while (crowd.outstanding() > 0 && crowd.collect(kStalled, note) > 0) {
    }
    report_held(open.size(), again, start);
  }
}

// One worker of an exchange.
class Exchanging {
 public:
  Exchanging(std::size_t number, std::size_t all) : number_(number), all_(all) {}

  // The next request, and the length of its answer; nothing when it is through. `answer` is the last one's.
  std::pair<std::string, std::size_t> next(std::string_view answer) {
    switch (step_++) {
      case 0:
        return {store::set_bytes(key(number_), value(number_)) + store::add_bytes("/count", 1),
                sizeof(std::int64_t)};
      case 1: {
        std::int64_t count = 0;
        std::memcpy(&count, answer.data(), sizeof count);
        const bool last = count == static_cast<std::int64_t>(all_);
        return {(last ? store::set_bytes("/all", "x") : std::string()) +
                    store::key_list_bytes(store::Op::Wait, {"/all"}),
                1};
      }
      case 2: {
        std::string request =
            store::op_bytes(store::Op::MultiGet) + store::number_bytes<std::uint64_t>(kRead);
        for (std::size_t i = 0; i < kRead; ++i) {
          request += store::text_bytes(key(other(i)));
          due_ += store::text_bytes(value(other(i)));
        }
        return {request, due_.size()};
      }
      default:
        if (answer != due_) fail("wrong answers");
        return {};
    }
  }

 private:
  static constexpr std::size_t kRead = 8;

  static std::string key(std::size_t number) { return "/worker/" + std::to_string(number); }
  static std::string value(std::size_t number) { return "address of " + std::to_string(number); }
  std::size_t other(std::size_t i) const { return (number_ + i * (all_ / kRead) + i) % all_; }

  std::size_t number_;
  std::size_t all_;
  int step_ = 0;
  std::string due_;
};

void exchange(Crowd& crowd, std::size_t workers, const std::vector<int>& ports) {
  const std::size_t all = workers * ports.size();
  std::vector<Exchanging> each;
  for (std::size_t i = 0; i < all; ++i) each.emplace_back(i, all);
  wait_for_start();
  Measurement measurement;
  const auto answered = [&](std::size_t number, std::string_view answer) {
    const auto [request, reply_size] = each[number].next(answer);
    if (!request.empty()) crowd.send(number, request, reply_size);
    if (request.empty()) measurement.add_operations(1);
  };
  for (std::size_t i = 0; i < all; ++i) {
    crowd.send(crowd.connect(ports[i / workers]), bench::kGreeting, bench::kGreetingReply);
    crowd.collect(std::chrono::milliseconds(0), answered);
  }
  while (crowd.outstanding() > 0) {
    if (crowd.collect(kPatience, answered) == 0) fail("an answer does not come");
  }
  measurement.report();
  while (next_line()) {  // the connections are counted meanwhile
  }
}

std::vector<int> ports_in(const char* path) {
  std::ifstream file(path);
  return {std::istream_iterator<int>(file), {}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  Crowd crowd(argv[1], std::atoi(argv[2]));
  const std::string mode = argv[3];
  const auto number = [argv](int at) { return static_cast<std::size_t>(std::atoi(argv[at])); };
  if (mode == "pipelined" && argc >= 8) {
    const bool checked = argc == 8;
    pipelined(crowd, bench::kind_of(argv[4]), number(5), std::atoi(argv[6]), std::atof(argv[7]), checked);
  } else if (mode == "wake" && argc == 6) {
    wake(crowd, number(4), std::atoi(argv[5]));
  } else if (mode == "connect" && argc == 5) {
    connect_each(crowd, number(4));
  } else if (mode == "exchange" && argc == 6) {
    exchange(crowd, number(4), ports_in(argv[5]));
  } else if (mode == "hold" && argc == 5) {
    hold(crowd, number(4));
  } else {
    return 2;
  }
}
