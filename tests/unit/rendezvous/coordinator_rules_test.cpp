// The rules of a run, there and back; and what is no such record.
#include "rendezvous/coordinator_rules.hpp"

#include <gtest/gtest.h>

#include <string>

namespace cpprun::rendezvous {
namespace {

using std::chrono::milliseconds;

TEST(CoordinatorRules, ComeBackAsTheyWere) {
  CoordinatorRules rules;
  rules.round = {2, 4, true};
  rules.max_restarts = 7;
  rules.last_call = milliseconds(0);
  rules.death_limit = milliseconds(1500);
  rules.stop_margin = milliseconds(500);
  rules.company = milliseconds(10);
  rules.accept_limit = milliseconds(20);
  rules.endpoints = 3;
  const std::optional<CoordinatorRules> back = rules_from_json(to_json(rules));
  ASSERT_TRUE(back);
  EXPECT_EQ(to_json(*back), to_json(rules));
  EXPECT_EQ(back->round.max_nodes, 4);
  EXPECT_TRUE(back->round.ranks_given);
  EXPECT_EQ(back->death_limit, milliseconds(1500));
  EXPECT_EQ(back->endpoints, 3);
}

TEST(CoordinatorRules, DifferencesAreNamedAsTheUserSaysThem) {
  const CoordinatorRules run{{1, 2, false}};
  CoordinatorRules node = run;
  EXPECT_EQ(differences(node, run), "");
  node.stop_margin = milliseconds(1);  // follows from the others
  node.own_endpoint = 1;
  EXPECT_EQ(differences(node, run), "");
  node.max_restarts = 3;
  EXPECT_EQ(differences(node, run), "--max-restarts 3, not 0");
  node.endpoints = 2;
  node.last_call = milliseconds(500);
  node.death_limit = milliseconds(15'000);
  EXPECT_EQ(
      differences(node, run),
      "--max-restarts 3, not 0; endpoints in --rdzv-endpoint: 2, not 1; last_call_timeout 0.500, not 30; "
      "keep_alive_interval x keep_alive_max_attempt 15, not 3");
}

TEST(CoordinatorRules, WhatIsNoRecordIsNone) {
  for (const char* text : {"", "{}", "[]", "7", "null", "{\"min_nodes\":1}", "\xff"}) {
    EXPECT_FALSE(rules_from_json(text)) << text;
  }
}

TEST(CoordinatorRules, ValuesOutOfRangeAreNone) {
  const std::string good = to_json(CoordinatorRules{{1, 2, false}});
  ASSERT_TRUE(rules_from_json(good));
  const auto with = [&](const std::string& entry, const std::string& other) {
    std::string text = good;
    const std::size_t at = text.find(entry);
    EXPECT_NE(at, std::string::npos) << entry;
    return text.replace(at, entry.size(), other);
  };
  EXPECT_FALSE(rules_from_json(with("\"min_nodes\":1", "\"min_nodes\":0")));
  EXPECT_FALSE(rules_from_json(with("\"min_nodes\":1", "\"min_nodes\":3")));
  EXPECT_FALSE(rules_from_json(with("\"max_nodes\":2", "\"max_nodes\":2000000000")));
  EXPECT_FALSE(rules_from_json(with("\"max_restarts\":0", "\"max_restarts\":-1")));
  EXPECT_FALSE(rules_from_json(with("\"death_limit_ms\":3000", "\"death_limit_ms\":0")));
  EXPECT_FALSE(rules_from_json(with("\"last_call_ms\":30000", "\"last_call_ms\":9223372036854775807")));
  EXPECT_FALSE(rules_from_json(with("\"last_call_ms\":30000", "\"last_call_ms\":\"soon\"")));
}

}  // namespace
}  // namespace cpprun::rendezvous
