#include "rendezvous/store/secret.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>

namespace cpprun::store {
namespace {

const std::string kBytes(kMinSecretBytes, 'k');
const std::string kOther(kMinSecretBytes, 'o');

// Two connected sockets that do not block.
struct Pair {
  Pair() { EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0); }
  ~Pair() {
    for (const int end : ends) ::close(end);
  }
  int ends[2];
};

std::string all_of(int fd) {
  std::string text;
  std::array<char, 4096> bytes;
  for (ssize_t n; (n = ::recv(fd, bytes.data(), bytes.size(), 0)) > 0;)
    text.append(bytes.data(), static_cast<std::size_t>(n));
  return text;
}

// What comes out at `to` when `from` sends the text; empty where one of them fails.
std::string carry(ByteStream& from, ByteStream& to, const std::string& text) {
  std::array<char, 4096> bytes;
  std::string received;
  bool sent = false;
  for (int turn = 0; turn < 20 && received.size() < text.size(); ++turn) {
    if (!sent) {
      const ssize_t n = from.send(text);
      sent = n == static_cast<ssize_t>(text.size());
      if (n < 0 && errno != EAGAIN) break;
    }
    const ssize_t n = to.receive(bytes);
    if (n > 0) received.append(bytes.data(), static_cast<std::size_t>(n));
    if (n == 0 || (n < 0 && errno != EAGAIN)) break;
    if (!sent) from.receive(std::span<char>(bytes).first(0));
  }
  return received;
}

// One more step of the handshake.
ssize_t receive(ByteStream& stream) {
  std::array<char, 4096> bytes;
  return stream.receive(bytes);
}

TEST(Secret, WhoHasItIsUnderstoodBothWays) {
  const Secret secret(kBytes);
  Pair pair;
  ByteStream client = secret.connect(pair.ends[0]);
  ByteStream server = secret.accept(pair.ends[1]);
  EXPECT_EQ(carry(client, server, "hello"), "hello");
  EXPECT_EQ(carry(server, client, "welcome"), "welcome");
  EXPECT_EQ(server.failure(), TlsFailure::None);
  client.send("secret words");
  EXPECT_EQ(all_of(pair.ends[1]).find("secret words"), std::string::npos);
}

TEST(Secret, AnotherOneIsRefusedOnBothSides) {
  const Secret secret(kBytes);
  const Secret other(kOther);
  Pair pair;
  ByteStream client = other.connect(pair.ends[0]);
  ByteStream server = secret.accept(pair.ends[1]);
  EXPECT_EQ(carry(client, server, "hello"), "");
  EXPECT_EQ(server.failure(), TlsFailure::OtherSecret);
  EXPECT_LT(receive(client), 0);
  EXPECT_EQ(client.failure(), TlsFailure::OtherSecret);
}

TEST(Secret, WhatIsNoTlsIsKnownAsThat) {
  const Secret secret(kBytes);
  for (const std::string& first : {std::string("\x00\xce\xf7\x85\x3c\x0d____", 10),
                                   std::string("GET / HTTP/1.1\r\n\r\n"), std::string(64, 'x')}) {
    Pair pair;
    ByteStream server = secret.accept(pair.ends[1]);
    ASSERT_GT(::send(pair.ends[0], first.data(), first.size(), 0), 0);
    EXPECT_LT(receive(server), 0);
    EXPECT_EQ(errno, EPROTO);
    EXPECT_EQ(server.failure(), TlsFailure::NotTls) << first;
  }
}

TEST(Secret, AServerWithoutOneIsKnownAsThat) {
  const Secret secret(kBytes);
  Pair pair;
  ByteStream client = secret.connect(pair.ends[0]);
  client.send("hello");
  const std::string alert("\x15\x03\x03\x00\x02\x02\x46",
                          7);  // the store's answer to a hello where it has no secret
  ASSERT_GT(::send(pair.ends[1], alert.data(), alert.size(), 0), 0);
  EXPECT_LT(receive(client), 0);
  EXPECT_EQ(client.failure(), TlsFailure::NotTls);
}

TEST(Secret, ARecordedConversationIsWorthNothing) {
  const Secret secret(kBytes);
  Pair wire;  // client on one end; what it says is recorded on its way to the server
  Pair far;
  ByteStream client = secret.connect(wire.ends[0]);
  ByteStream server = secret.accept(far.ends[1]);
  std::string recorded;
  const auto pass_on = [&] {
    const std::string up = all_of(wire.ends[1]);
    recorded += up;
    if (!up.empty()) ::send(far.ends[0], up.data(), up.size(), 0);
    std::array<char, 4096> bytes;
    const ssize_t n = server.receive(bytes);
    const std::string down = all_of(far.ends[0]);
    if (!down.empty()) ::send(wire.ends[1], down.data(), down.size(), 0);
    return n > 0 ? std::string(bytes.data(), static_cast<std::size_t>(n)) : std::string();
  };
  std::string heard;
  for (int turn = 0; turn < 10 && heard.empty(); ++turn) {
    client.send("set the key");
    heard = pass_on();
  }
  ASSERT_EQ(heard, "set the key");

  Pair again;
  ByteStream same_server = secret.accept(again.ends[1]);
  ASSERT_GT(::send(again.ends[0], recorded.data(), recorded.size(), 0), 0);
  EXPECT_LT(receive(same_server), 0);
  EXPECT_NE(errno, EAGAIN);
}

TEST(Secret, WhatIsChangedOnItsWayEndsTheConnection) {
  const Secret secret(kBytes);
  Pair pair;
  ByteStream client = secret.connect(pair.ends[0]);
  ByteStream server = secret.accept(pair.ends[1]);
  ASSERT_EQ(carry(client, server, "hello"), "hello");
  client.send("one record");
  std::string record = all_of(pair.ends[1]);
  record.back() = static_cast<char>(record.back() ^ 1);
  Pair other_way;
  ASSERT_EQ(::dup2(other_way.ends[1], pair.ends[1]), pair.ends[1]);
  ASSERT_GT(::send(other_way.ends[0], record.data(), record.size(), 0), 0);
  EXPECT_LT(receive(server), 0);
  EXPECT_EQ(server.failure(), TlsFailure::Broken);
}

// A client of OpenSSL's that is not ours.
struct ForeignClient {
  explicit ForeignClient(int fd, int version) : context(SSL_CTX_new(TLS_client_method())) {
    SSL_CTX_set_max_proto_version(context, version);
    tls = SSL_new(context);
    SSL_set_fd(tls, fd);
    SSL_set_connect_state(tls);
  }
  ~ForeignClient() {
    SSL_free(tls);
    SSL_CTX_free(context);
  }
  SSL_CTX* context;
  SSL* tls = nullptr;
};

TEST(Secret, NoOlderTlsAndNoClientWithoutIt) {
  const Secret secret(kBytes);
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    Pair pair;
    ForeignClient client(pair.ends[0], version);
    ByteStream server = secret.accept(pair.ends[1]);
    EXPECT_LT(SSL_connect(client.tls), 0);
    EXPECT_LT(receive(server), 0);
    EXPECT_EQ(server.failure(), TlsFailure::OtherSecret) << version;
  }
}

TEST(Secret, AServerThatCannotProveItIsRefused) {
  const Secret secret(kBytes);
  const Secret other(kOther);
  Pair pair;
  ByteStream client = secret.connect(pair.ends[0]);
  ByteStream server = other.accept(pair.ends[1]);
  EXPECT_EQ(carry(client, server, "hello"), "");
}

class SecretFile : public testing::Test {
 protected:
  SecretFile() {
    std::string pattern = testing::TempDir() + "secret_XXXXXX";
    path_ = ::mkdtemp(pattern.data());
    path_ += "/secret";
  }
  ~SecretFile() override {
    ::unlink(path_.c_str());
    ::rmdir(path_.substr(0, path_.rfind('/')).c_str());
  }
  void write(std::size_t size) { std::ofstream(path_, std::ios::binary) << std::string(size, 's'); }
  std::string refusal() const {
    try {
      Secret::from_file(path_);
    } catch (const SecretError& error) {
      return error.what();
    }
    return "";
  }
  std::string path_;
};

TEST_F(SecretFile, ItsLengthIsChecked) {
  for (const auto& [size, good] : {std::pair<std::size_t, bool>{0, false},
                                   {kMinSecretBytes - 1, false},
                                   {kMinSecretBytes, true},
                                   {kMaxSecretBytes, true},
                                   {kMaxSecretBytes + 1, false}}) {
    write(size);
    EXPECT_EQ(refusal().empty(), good) << size << ": " << refusal();
  }
  write(31);
  EXPECT_NE(refusal().find("31 bytes"), std::string::npos) << refusal();
  EXPECT_NE(refusal().find(path_), std::string::npos) << refusal();
}

TEST_F(SecretFile, WhatIsNoFileIsRefused) {
  EXPECT_NE(refusal().find("No such file"), std::string::npos) << refusal();
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_NE(refusal().find("no regular file"), std::string::npos) << refusal();
  path_ = "/dev/urandom";
  EXPECT_NE(refusal().find("no regular file"), std::string::npos) << refusal();
  path_ = "";
  EXPECT_FALSE(refusal().empty());
}

TEST_F(SecretFile, OthersMayNotReadIt) {
  write(32);
  ::chmod(path_.c_str(), 0600);
  EXPECT_FALSE(readable_by_others(path_));
  ::chmod(path_.c_str(), 0640);
  EXPECT_TRUE(readable_by_others(path_));
}

}  // namespace
}  // namespace cpprun::store
