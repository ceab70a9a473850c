#include "rendezvous/store/store_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/store/protocol.hpp"
#include "tests/unit/rendezvous/bytes_in_use.hpp"

namespace cpprun::store {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Parked = StoreTable::Parked;
using Keys = std::vector<std::string_view>;

constexpr ConnectionId kAlice = 1;
constexpr ConnectionId kBob = 2;
constexpr ConnectionId kCarol = 3;

class StoreTableTest : public ::testing::Test {
 protected:
  Wakeups set(std::string_view key, std::string_view value = "v") {
    Wakeups woken;
    table.set(key, value, woken);
    return woken;
  }
  Wakeups push(std::string_view key, std::string_view value = "v") {
    Wakeups woken;
    table.queue_push(key, value, woken);
    return woken;
  }
  std::optional<std::int64_t> add(std::string_view key, std::int64_t delta) {
    return table.add(key, delta, unused);
  }

  StoreTable table;
  Wakeups unused;
};

TEST_F(StoreTableTest, SetOverwritesAndAnAbsentKeyReadsEmpty) {
  EXPECT_EQ(table.get("k"), "");
  set("k", "one");
  set("k", "two");
  EXPECT_EQ(table.get("k"), "two");
  EXPECT_EQ(table.size(), 1);
}

TEST_F(StoreTableTest, KeysAndValuesAreAnyBytes) {
  const std::string key("\0\xff", 2);
  const std::string value("a\0b", 3);
  set(key, value);
  set("", "empty key");
  EXPECT_EQ(table.get(key), value);
  EXPECT_EQ(table.get(""), "empty key");
}

TEST_F(StoreTableTest, AShortValueDoesNotKeepTheRoomOfALongOne) {
  set("k", std::string(100'000, 'x'));
  set("k", "short");
  EXPECT_EQ(table.get("k"), "short");
}

TEST_F(StoreTableTest, AppendCreatesAndExtends) {
  table.append("k", "ab", unused);
  table.append("k", "cd", unused);
  EXPECT_EQ(table.get("k"), "abcd");
}

TEST_F(StoreTableTest, EraseTellsWhetherTheKeyWasThere) {
  set("k");
  EXPECT_TRUE(table.erase("k"));
  EXPECT_FALSE(table.erase("k"));
  EXPECT_EQ(table.size(), 0);
  EXPECT_EQ(table.get("k"), "");
}

TEST_F(StoreTableTest, KeysListsWhatIsPresent) {
  set("a");
  set("b");
  push("queue");
  EXPECT_EQ(table.wait(kAlice, Keys{"awaited"}), Parked::Yes);
  EXPECT_THAT(table.keys(), UnorderedElementsAre("a", "b"));
  EXPECT_EQ(table.size(), 2);
}

struct AddCase {
  const char* old;
  std::int64_t delta;
  std::optional<std::int64_t> sum;
};

TEST_F(StoreTableTest, AddReadsTheNumberAValueStartsWith) {
  const AddCase cases[] = {
      {"5", 2, 7},
      {"12abc", 1, 13},
      {" \t\n\v\f\r 7", 1, 8},
      {"+4", 1, 5},
      {"-4", 1, -3},
      {"007", 1, 8},
      {"9223372036854775807", 1, INT64_MIN},
      {"-9223372036854775808", -1, INT64_MAX},
      {"9223372036854775808", 1, std::nullopt},
      {"-9223372036854775809", 1, std::nullopt},
      {"", 1, std::nullopt},
      {"abc", 1, std::nullopt},
      {"+", 1, std::nullopt},
      {"-", 1, std::nullopt},
      {"+-4", 1, std::nullopt},
      {"- 4", 1, std::nullopt},
      {"0x10", 1, 1},
  };
  for (const AddCase& c : cases) {
    set("k", c.old);
    EXPECT_EQ(add("k", c.delta), c.sum) << '"' << c.old << '"';
    EXPECT_EQ(table.get("k"), c.sum ? std::to_string(*c.sum) : c.old);
  }
}

TEST_F(StoreTableTest, AddToAnAbsentKeyStartsAtZero) {
  EXPECT_EQ(add("k", -3), -3);
  EXPECT_EQ(table.get("k"), "-3");
  EXPECT_EQ(add("other", 0), 0);
  EXPECT_EQ(table.get("other"), "0");
}

TEST_F(StoreTableTest, CompareSetRepliesAsTheProtocolSays) {
  EXPECT_EQ(table.compare_set("k", "expected", "new", unused), "expected") << "absent: nothing is stored";
  EXPECT_EQ(table.size(), 0);
  EXPECT_EQ(table.compare_set("k", "", "new", unused), "new") << "absent and nothing expected: stored";
  EXPECT_EQ(table.compare_set("k", "new", "newer", unused), "newer") << "equal: stored";
  EXPECT_EQ(table.compare_set("k", "wrong", "x", unused), "newer") << "different: the value";
  EXPECT_EQ(table.compare_set("k", "", "x", unused), "newer");
  EXPECT_EQ(table.get("k"), "newer");
  set("empty", "");
  EXPECT_EQ(table.compare_set("empty", "", "x", unused), "x");
}

TEST_F(StoreTableTest, CheckSeesKeysAndQueuesThatAreNotEmpty) {
  EXPECT_TRUE(table.check({}));
  EXPECT_FALSE(table.check(Keys{"k"}));
  set("k");
  push("q");
  EXPECT_TRUE(table.check(Keys{"k", "q"}));
  EXPECT_FALSE(table.check(Keys{"k", "other"}));
  table.queue_pop("q");
  EXPECT_FALSE(table.check(Keys{"q"}));
}

TEST_F(StoreTableTest, QueuesAreFifoAndApartFromKeys) {
  EXPECT_EQ(table.queue_pop("q"), std::nullopt);
  push("q", "one");
  push("q", "two");
  set("q", "value");
  EXPECT_EQ(table.queue_length("q"), 2);
  EXPECT_TRUE(table.erase("q"));
  EXPECT_EQ(table.queue_pop("q"), "one");
  EXPECT_EQ(table.queue_pop("q"), "two");
  EXPECT_EQ(table.queue_length("q"), 0);
  EXPECT_EQ(table.size(), 0);
}

TEST_F(StoreTableTest, WaitEndsWhenTheLastKeyIsWritten) {
  set("there");
  EXPECT_EQ(table.wait(kAlice, Keys{"there"}), Parked::No);
  EXPECT_EQ(table.wait(kAlice, Keys{}), Parked::No);
  EXPECT_EQ(table.wait(kAlice, Keys{"a", "there", "b"}), Parked::Yes);
  EXPECT_THAT(set("a"), IsEmpty());
  EXPECT_THAT(set("a"), IsEmpty()) << "a key counts once";
  EXPECT_THAT(set("b"), ElementsAre(kAlice));
  EXPECT_THAT(set("b"), IsEmpty());
  EXPECT_EQ(table.waiting(), 0U);
}

TEST_F(StoreTableTest, AKeySetAndErasedStillCounts) {
  table.wait(kAlice, Keys{"a", "b"});
  set("a");
  table.erase("a");
  EXPECT_THAT(set("b"), ElementsAre(kAlice));
}

TEST_F(StoreTableTest, AKeyListedTwiceNeedsOneWrite) {
  EXPECT_EQ(table.wait(kAlice, Keys{"a", "a"}), Parked::Yes);
  EXPECT_THAT(set("a"), ElementsAre(kAlice));
}

TEST_F(StoreTableTest, EveryKindOfWriteWakesAllWhoWaitOldestFirst) {
  const auto wakes = [this](auto write) {
    for (const ConnectionId id : {kBob, kAlice, kCarol}) table.wait(id, Keys{"k"});
    Wakeups woken;
    write(woken);
    EXPECT_THAT(woken, ElementsAre(kBob, kAlice, kCarol));
    table.erase("k");
  };
  wakes([this](Wakeups& woken) { table.set("k", "v", woken); });
  wakes([this](Wakeups& woken) { table.append("k", "v", woken); });
  wakes([this](Wakeups& woken) { table.add("k", 1, woken); });
  wakes([this](Wakeups& woken) { table.compare_set("k", "", "v", woken); });
  wakes([this](Wakeups& woken) { table.compare_set("k", "not there", "v", woken); });
}

TEST_F(StoreTableTest, CompareSetThatStoresNothingWakesToo) {
  set("k", "value");
  table.wait(kAlice, Keys{"k", "other"});
  EXPECT_EQ(table.waiting(), 1U);
  Wakeups woken;
  table.compare_set("other", "no", "v", woken);
  EXPECT_THAT(woken, ElementsAre(kAlice));
  EXPECT_FALSE(table.check(Keys{"other"}));
}

TEST_F(StoreTableTest, AFailedAddWakesNobody) {
  push("q");
  set("k", "text");
  table.wait(kAlice, Keys{"other"});
  Wakeups woken;
  EXPECT_EQ(table.add("k", 1, woken), std::nullopt);
  EXPECT_THAT(woken, IsEmpty());
}

TEST_F(StoreTableTest, ForgetEndsAWaitWithoutAWakeUp) {
  table.wait(kAlice, Keys{"a", "b", "a"});
  table.wait(kBob, Keys{"a"});
  table.forget(kAlice);
  table.forget(kAlice);
  EXPECT_THAT(set("b"), IsEmpty());
  EXPECT_THAT(set("a"), ElementsAre(kBob));
}

TEST_F(StoreTableTest, TheFirstKeyOfTwoOpenWaitsEndsBoth) {
  table.wait(kAlice, Keys{"a"});
  table.wait(kAlice, Keys{"b"});
  EXPECT_THAT(set("a"), ElementsAre(kAlice));
  EXPECT_THAT(set("b"), IsEmpty());
}

TEST_F(StoreTableTest, ALaterWaitIsNotEndedByAnEarlierOnesKeys) {
  table.wait(kAlice, Keys{"a"});
  table.wait(kAlice, Keys{"b"});
  set("a");
  table.wait(kAlice, Keys{"c"});
  EXPECT_THAT(set("b"), IsEmpty());
  EXPECT_THAT(set("c"), ElementsAre(kAlice));
}

TEST_F(StoreTableTest, OnePushWakesOneWaiterOldestFirst) {
  table.wait(kAlice, Keys{"q"});
  table.wait(kBob, Keys{"q"});
  EXPECT_THAT(push("q"), ElementsAre(kAlice));
  EXPECT_THAT(push("q"), ElementsAre(kBob));
  EXPECT_THAT(push("q"), IsEmpty());
  EXPECT_EQ(table.queue_length("q"), 3);
}

TEST_F(StoreTableTest, APushPassesOverAWaiterThatNeedsMore) {
  table.wait(kAlice, Keys{"q", "k"});
  table.wait(kBob, Keys{"q"});
  EXPECT_THAT(push("q"), ElementsAre(kBob));
  EXPECT_THAT(set("k"), ElementsAre(kAlice)) << "the push counted for it";
}

TEST_F(StoreTableTest, AWriteWakesWhoWaitsForAQueueOfThatName) {
  table.wait(kAlice, Keys{"q"});
  EXPECT_THAT(set("q"), ElementsAre(kAlice));
}

TEST_F(StoreTableTest, AQueueThatIsNotEmptyDoesNotExcuseTheOtherKeys) {
  push("q");
  EXPECT_EQ(table.wait(kAlice, Keys{"q", "k"}), Parked::Yes);
  EXPECT_THAT(set("k"), IsEmpty()) << "the queue's name is waited for as well, as by LibTorch's server";
  EXPECT_THAT(push("q"), ElementsAre(kAlice));
}

TEST_F(StoreTableTest, OpenWaitsMayNameOnlySoManyKeys) {
  const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (std::uint64_t i = 0; i < kMaxKeysPerRequest; ++i) all.push_back(std::to_string(i));
    return all;
  }();
  const Keys keys(names.begin(), names.end());
  EXPECT_EQ(table.wait(kAlice, keys), Parked::Yes);
  EXPECT_EQ(table.wait(kAlice, Keys{"one more"}), Parked::TooMany);
  EXPECT_EQ(table.wait(kBob, Keys{"one more"}), Parked::Yes);
  EXPECT_EQ(table.arrive(kAlice, "barrier", 2, unused).parked, Parked::TooMany);
  EXPECT_EQ(table.get("barrier"), "");
  table.forget(kAlice);
  EXPECT_EQ(table.wait(kAlice, Keys{"one more"}), Parked::Yes);
}

TEST_F(StoreTableTest, TheLastArrivalAtABarrierWakesTheOthers) {
  Wakeups woken;
  EXPECT_EQ(table.arrive(kAlice, "b", 3, woken).parked, Parked::Yes);
  EXPECT_EQ(table.arrive(kBob, "b", 3, woken).parked, Parked::Yes);
  EXPECT_THAT(woken, IsEmpty());
  EXPECT_TRUE(table.check(Keys{"b"})) << "present from the first arrival";
  EXPECT_EQ(table.arrive(kCarol, "b", 3, woken).parked, Parked::No);
  EXPECT_THAT(woken, ElementsAre(kAlice, kBob));
  EXPECT_EQ(table.get("b"), "3");
  EXPECT_EQ(table.arrive(kAlice, "b", 3, woken).parked, Parked::No) << "the count is never reset";
}

TEST_F(StoreTableTest, ABarrierOfOneOrLessPasses) {
  for (const std::int64_t world : {std::int64_t{1}, std::int64_t{0}, std::int64_t{-5}}) {
    EXPECT_EQ(table.arrive(kAlice, "b" + std::to_string(world), world, unused).parked, Parked::No);
  }
}

TEST_F(StoreTableTest, ACancelledArrivalStillCounts) {
  table.arrive(kAlice, "b", 2, unused);
  table.forget(kAlice);
  EXPECT_EQ(table.arrive(kBob, "b", 2, unused).parked, Parked::No);
}

TEST_F(StoreTableTest, AnyWriteOfABarriersKeyReleasesIt) {
  table.arrive(kAlice, "b", 2, unused);
  EXPECT_THAT(set("b", "9"), ElementsAre(kAlice));
}

TEST_F(StoreTableTest, ABarrierNeedsANumber) {
  set("b", "text");
  EXPECT_FALSE(table.arrive(kAlice, "b", 2, unused).number);
  EXPECT_EQ(table.get("b"), "text");
  EXPECT_EQ(table.waiting(), 0U);
}

// Against a plain model: whoever waits is woken by the write that completes its set of keys, and by nothing
// else.
TEST_F(StoreTableTest, RandomWaitsAndWritesAgreeWithAModel) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto pick = [&random](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  std::map<ConnectionId, std::set<std::string>> waiting;
  std::set<std::string> present;
  for (int step = 0; step < 20'000; ++step) {
    const ConnectionId who = static_cast<ConnectionId>(pick(8));
    const std::string key = std::to_string(pick(12));
    const int what = pick(10);
    if (what < 4 && waiting.count(who) == 0) {
      std::vector<std::string> names;
      std::set<std::string> absent;
      for (int i = pick(4); i >= 0; --i) {
        names.push_back(std::to_string(pick(12)));
        if (present.count(names.back()) == 0) absent.insert(names.back());
      }
      const Keys keys(names.begin(), names.end());
      ASSERT_EQ(table.wait(who, keys), absent.empty() ? Parked::No : Parked::Yes);
      if (!absent.empty()) waiting[who] = absent;
    } else if (what < 7) {
      std::set<ConnectionId> expected;
      for (auto it = waiting.begin(); it != waiting.end();) {
        it->second.erase(key);
        if (it->second.empty()) expected.insert(it->first);
        it = it->second.empty() ? waiting.erase(it) : std::next(it);
      }
      const Wakeups woken = set(key);
      present.insert(key);
      ASSERT_EQ(std::set<ConnectionId>(woken.begin(), woken.end()), expected);
      ASSERT_EQ(woken.size(), expected.size());
    } else if (what < 9) {
      ASSERT_EQ(table.erase(key), present.erase(key) == 1);
    } else {
      table.forget(who);
      waiting.erase(who);
    }
    ASSERT_EQ(table.waiting(), waiting.size());
    ASSERT_EQ(table.size(), static_cast<std::int64_t>(present.size()));
  }
}

TEST_F(StoreTableTest, ALongValueGivesItsRoomBack) {
  const std::size_t before = bytes_in_use();
  if (before == 0) GTEST_SKIP() << "the allocator does not say";
  constexpr std::size_t kLong = 4'000'000;
  set("replaced", std::string(kLong, 'v'));
  set("replaced", "short");
  EXPECT_LT(bytes_in_use(), before + kLong / 2);
  push("a queue too");
  set("a queue too", std::string(kLong, 'v'));
  EXPECT_TRUE(table.erase("a queue too"));
  EXPECT_LT(bytes_in_use(), before + kLong / 2);
}

}  // namespace
}  // namespace cpprun::store
