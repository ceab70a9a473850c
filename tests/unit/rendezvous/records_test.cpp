// Reports and orders, there and back; and what is neither.
#include "rendezvous/records.hpp"

#include <gtest/gtest.h>

namespace cpprun::rendezvous {
namespace {

Report full_report() {
  Report report;
  report.id = "h_1_2";
  report.node = {"h", 1, 2, 4, 3, "10.0.0.1", "trainer", 8, "{}"};
  report.state = AgentState::Leaving;
  report.run = {5, 1, 2, 3, 1, 4, 2};
  report.offered = {(std::int64_t{1} << 40) + 1, 2, 0, 3, 1, 5, 3};
  report.store = StoreEndpoint{"fe80::1%eth0", 65535};
  report.end = RoundEnd{true, false, "\"it\" failed\n", "{}"};
  return report;
}

TEST(Records, ReportsComeBackAsTheyWere) {
  EXPECT_EQ(report_from_json(to_json(full_report())), full_report());
  Report empty;
  empty.id = "x";
  EXPECT_EQ(report_from_json(to_json(empty)), empty);
  for (const AgentState state : {AgentState::Waiting, AgentState::Running, AgentState::Finished,
                                 AgentState::Leaving, AgentState::Gone}) {
    empty.state = state;
    EXPECT_EQ(report_from_json(to_json(empty)), empty);
  }
}

TEST(Records, OrdersComeBackAsTheyWere) {
  for (const Order::Kind kind :
       {Order::Kind::Wait, Order::Kind::Park, Order::Kind::Offer, Order::Kind::Run, Order::Kind::End,
        Order::Kind::Finished, Order::Kind::Refused, Order::Kind::Elsewhere}) {
    Order order;
    order.kind = kind;
    order.text = "why";
    order.notice = "by the way";
    order.ticket = {9, 1, 2, 3, 0, 0, 0};
    order.workers = {4, 8, 0, 4};
    if (kind == Order::Kind::Run) order.store = {"10.0.0.1", 29400};
    if (kind == Order::Kind::End) order.end = {true, true, "failed", "cause"};
    EXPECT_EQ(order_from_json(to_json(order)), order);
  }
}

TEST(Records, TextThatIsNotUtf8IsMended) {
  Report report = full_report();
  report.end->sentence = "\xff";
  const std::optional<Report> read = report_from_json(to_json(report));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->end->sentence, "\xef\xbf\xbd");
}

TEST(Records, GarbageIsNoRecord) {
  const std::string good = to_json(full_report());
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("[]"), std::string("7"), std::string("null"),
        good.substr(0, good.size() - 1), std::string(R"({"kind":"dance"})"), std::string(R"({"kind":7})"),
        std::string(R"({"kind":"run","store":{"address":7,"port":"x"}})"), std::string("\xff\x00\x01", 3)}) {
    EXPECT_FALSE(report_from_json(text)) << text;
    EXPECT_FALSE(order_from_json(text)) << text;
  }
}

}  // namespace
}  // namespace cpprun::rendezvous
