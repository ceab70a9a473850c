// Replies that are not quite what etcd would say: its real ones are seen by etcd_client_test.
#include "rendezvous/etcd/etcd_messages.hpp"

#include <gtest/gtest.h>

#include "rendezvous/etcd/etcd_options.hpp"

namespace cpprun::rendezvous {
namespace {

using namespace messages;

TEST(EtcdMessagesTest, APrefixEndsWhereTheNextBegins) {
  // Base64: "ab" YWI=, "ac" YWM=, zero AA==, "a\xff" Yf8=, "b" Yg==, "\xff" /w==.
  const std::tuple<std::string, const char*, const char*> cases[] = {
      {"ab", "YWI=", "YWM="}, {"a\xff", "Yf8=", "Yg=="}, {"", "AA==", "AA=="}, {"\xff", "/w==", "AA=="}};
  for (const auto& [prefix, key, end] : cases) {
    EXPECT_EQ(delete_request({prefix, true}),
              std::string(R"({"key":")") + key + R"(","range_end":")" + end + "\"}");
  }
  EXPECT_EQ(delete_request({"ab", false}), R"({"key":"YWI="})");
}

TEST(EtcdMessagesTest, NumbersMayBeStringsOrNumbers) {
  EXPECT_EQ(read_revision(R"({"header":{"cluster_id":"1","revision":"9223372036854775807"}})"),
            9223372036854775807);
  EXPECT_EQ(read_revision(R"({"header":{"cluster_id":"1","revision":7}})"), 7);
}

TEST(EtcdMessagesTest, RubbishIsRefused) {
  const char* const bodies[] = {"",
                                "[]",
                                "null",
                                "{",
                                "{}",
                                R"({"header":[]})",
                                R"({"header":{"revision":"1"}})",
                                R"({"header":{"cluster_id":"1","revision":"1x"}})",
                                R"({"header":{"cluster_id":"1","revision":[]}})",
                                R"({"header":{"cluster_id":"1"},"kvs":{}})",
                                R"({"header":{"cluster_id":"1"},"kvs":[{"key":"?"}]})"};
  for (const char* body : bodies) EXPECT_THROW(read_list(body), BadReply) << body;
  for (const char* body : {"{}", R"({"result":{}})", R"({"result":5})", R"({"header":{"cluster_id":"1"}})"}) {
    EXPECT_THROW(read_watch(body), BadReply) << body;
    EXPECT_THROW(read_keep_alive(body), BadReply) << body;
  }
  EXPECT_THROW(read_grant(R"({"header":{"cluster_id":"1"}})"), BadReply);
}

TEST(EtcdMessagesTest, FaultsComeInThreeForms) {
  const char* const forms[] = {R"({"error":"no","message":"no","code":14})",
                               R"({"message":"no","code":14,"details":[]})",
                               R"({"error":{"grpc_code":14,"http_code":503,"message":"no"}})"};
  for (const char* body : forms) {
    const std::optional<Fault> fault = read_fault(body);
    ASSERT_TRUE(fault) << body;
    EXPECT_EQ(fault->code, kUnavailable);
    EXPECT_EQ(fault->message, "no");
  }
  for (const char* body : {"", "Not Found", "[]", "{}", R"({"error":5})", R"({"message":"no"})"}) {
    EXPECT_FALSE(read_fault(body)) << body;
  }
}

TEST(EtcdOptionsTest, ReadFromTheRendezvousSettings) {
  EXPECT_FALSE(etcd_options_of({}).https);
  const EtcdOptions options =
      etcd_options_of(parse_settings("protocol=https,cert=c.pem,key=k.pem,cacert=a.pem,timeout=5"));
  EXPECT_TRUE(options.https);
  EXPECT_EQ(options.tls.cert, "c.pem");
  EXPECT_EQ(options.tls.key, "k.pem");
  EXPECT_EQ(options.tls.cacert, "a.pem");
  EXPECT_THROW(etcd_options_of({{"protocol", "gopher"}}), SettingsError);
  EXPECT_THROW(etcd_options_of({{"key", "k.pem"}}), SettingsError);
}

}  // namespace
}  // namespace cpprun::rendezvous
