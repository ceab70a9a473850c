// One who finds no leader learns what was wrong at each endpoint, and nothing twice.
#include "rendezvous/endpoint_troubles.hpp"

#include <gtest/gtest.h>

namespace cpprun::rendezvous {
namespace {

TEST(EndpointTroubles, AreSaidOnceAndInTheOrderOfTheEndpoints) {
  EndpointTroubles troubles(3);
  EXPECT_EQ(troubles.all(), "");
  troubles.note(2, "cannot connect to c:1: Connection refused");
  EXPECT_EQ(troubles.all(), "cannot connect to c:1: Connection refused");
  troubles.note(0, "no agent leads the run at a:1");
  EXPECT_EQ(troubles.all(), "no agent leads the run at a:1; cannot connect to c:1: Connection refused");
  troubles.note(0, "no agent leads the run");
  troubles.note(1, "no agent leads the run");
  EXPECT_EQ(troubles.all(), "no agent leads the run; cannot connect to c:1: Connection refused");
  troubles.clear();
  EXPECT_EQ(troubles.all(), "");
}

TEST(EndpointTroubles, WhatIsSaidAlreadyIsNotSaidAgain) {
  EXPECT_EQ(joined("", "a"), "a");
  EXPECT_EQ(joined("a", ""), "a");
  EXPECT_EQ(joined("a", "a"), "a");
  EXPECT_EQ(joined("a", "b; a"), "b; a");
  EXPECT_EQ(joined("a", "b"), "a; b");
}

}  // namespace
}  // namespace cpprun::rendezvous
