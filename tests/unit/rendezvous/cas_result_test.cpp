#include "rendezvous/store/cas_result.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace cpprun::store {
namespace {

struct Case {
  const char* reply;
  const char* expected;
  const char* desired;
  CasOutcome outcome;
  const char* current;
};

TEST(CasResult, IsReadFromTheReply) {
  const Case cases[] = {
      {"new", "old", "new", CasOutcome::Won, "new"},
      {"new", "", "new", CasOutcome::Won, "new"},
      {"", "old", "", CasOutcome::Won, ""},
      {"old", "old", "new", CasOutcome::Absent, ""},
      {"other", "old", "new", CasOutcome::Lost, "other"},
      {"other", "", "new", CasOutcome::Lost, "other"},
      {"", "old", "new", CasOutcome::Lost, ""},
  };
  for (const Case& c : cases) {
    const CasResult result = read_cas_reply(c.reply, c.expected, c.desired);
    EXPECT_EQ(result.outcome, c.outcome) << c.reply << "," << c.expected << "," << c.desired;
    EXPECT_EQ(result.current, c.current);
  }
}

TEST(CasResult, EqualValuesAreRefused) {
  EXPECT_THROW(require_distinct("same", "same"), std::invalid_argument);
  EXPECT_NO_THROW(require_distinct("", "x"));
}

}  // namespace
}  // namespace cpprun::store
