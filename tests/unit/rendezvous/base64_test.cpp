#include "rendezvous/etcd/base64.hpp"

#include <gtest/gtest.h>

namespace cpprun::rendezvous {
namespace {

TEST(Base64Test, TheVectorsOfItsStandard) {
  const std::pair<const char*, const char*> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : vectors) {
    EXPECT_EQ(to_base64(bytes), text);
    EXPECT_EQ(from_base64(text), bytes);
  }
}

TEST(Base64Test, EveryByteComesBack) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  for (std::size_t size = 250; size <= bytes.size(); ++size) {
    const std::string part = bytes.substr(0, size);
    EXPECT_EQ(from_base64(to_base64(part)), part);
  }
}

TEST(Base64Test, OtherTextIsRefused) {
  for (const char* text :
       {"Zg", "Zg=", "Z===", "====", "Zg==Zg==", "Z=g=", " Zg=", "Zm9v\n", "Zm-_", "Zm9v\nZm9"}) {
    EXPECT_EQ(from_base64(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace cpprun::rendezvous
