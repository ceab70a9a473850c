// Which lines go to the filtered logs.
#include "launcher/process/line_filter.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/process/redirect_policy.hpp"

namespace cpprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ParseFilters, CommasSeparateAndTwoAreOne) {
  EXPECT_THAT(parse_filters(""), IsEmpty());
  EXPECT_THAT(parse_filters("a,b c"), ElementsAre("a", "b c"));
  EXPECT_THAT(parse_filters("a,,b,c"), ElementsAre("a,b", "c"));
  EXPECT_THAT(parse_filters("a,,,b"), ElementsAre("a,", "b"));
  EXPECT_THAT(parse_filters(",,"), ElementsAre(","));
  EXPECT_THAT(parse_filters(",a,"), ElementsAre("a"));  // an empty text would be in every line
}

TEST(LineFilter, WholeLinesWhereverTheInputIsSplit) {
  const std::string text = "loss 1\nother\nbar 5%\rbar 9% loss\rend\r\nloss 2";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    LineFilter filter({"loss", "nope"});
    std::string out;
    filter.feed(text.substr(0, cut), "P:", out);
    filter.feed(text.substr(cut), "P:", out);
    filter.finish("P:", out);
    EXPECT_EQ(out, "P:loss 1\nP:bar 9% loss\nP:loss 2\n") << cut;
  }
}

TEST(LineFilter, ThePrefixIsNotSearched) {
  LineFilter filter({"rank"});
  std::string out;
  filter.feed("a\nrank\n", "rank0:", out);
  EXPECT_EQ(out, "rank0:rank\n");
}

TEST(LineFilter, EndlessLineIsNotKept) {
  LineFilter filter({"x"});
  std::string out;
  for (int i = 0; i < 4; ++i) filter.feed(std::string(LineFilter::kLongestLine, 'x'), "", out);
  EXPECT_EQ(out.size(), 4 * (LineFilter::kLongestLine + 1));
}

struct Case {
  const char* tee;
  const char* redirects;
  bool shown;
  bool filters;
  bool filtered;
};

TEST(RedirectPolicy, OnlyTeedStreamsOfShownRanksAreFiltered) {
  for (const Case& c : {Case{"1", "0", true, true, true}, Case{"1", "0", true, false, false},
                        Case{"1", "0", false, true, false}, Case{"0", "1", true, true, false},
                        Case{"0", "0", true, true, false}, Case{"2", "0", true, true, false}}) {
    RedirectPolicy policy;
    policy.redirects = StreamSelection::parse(c.redirects);
    policy.tee = StreamSelection::parse(c.tee);
    if (!c.shown) policy.shown_ranks = {7};
    if (c.filters) policy.out_filters = {"x"};
    EXPECT_EQ(routes_of(policy, 0).out.filtered, c.filtered) << c.tee << c.redirects << c.shown << c.filters;
    EXPECT_FALSE(routes_of(policy, 0).err.filtered);
  }
}

}  // namespace
}  // namespace cpprun::launcher
