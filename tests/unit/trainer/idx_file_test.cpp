#include "trainer/datasets/idx_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "worker_runtime/recorded_main.hpp"

namespace cpprun::trainer {
namespace {

using testing::HasSubstr;
using namespace std::string_literals;

class IdxFile : public testing::Test {
 protected:
  ~IdxFile() override { std::filesystem::remove(path_); }

  IdxArray read(const std::string& bytes, std::size_t dimensions) {
    std::ofstream(path_, std::ios::binary) << bytes;
    return read_idx(path_, dimensions);
  }

  std::string refusal(const std::string& bytes, std::size_t dimensions) {
    try {
      read(bytes, dimensions);
    } catch (const worker::ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr(path_));
      return error.what();
    }
    return "accepted";
  }

  const std::string path_ = testing::TempDir() + "/idx_file_test." + std::to_string(getpid());
};

TEST_F(IdxFile, GivesShapeAndValues) {
  const IdxArray labels = read("\0\0\x08\x01\0\0\0\x02\x07\xff"s, 1);
  EXPECT_EQ(labels.shape, std::vector<std::int64_t>{2});
  EXPECT_EQ(labels.values, (std::vector<std::uint8_t>{7, 255}));
  const IdxArray images = read("\0\0\x08\x03\0\0\0\x01\0\0\0\x02\0\0\0\x03"s + "abcdef", 3);
  EXPECT_EQ(images.shape, (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(images.values.back(), 'f');
}

TEST_F(IdxFile, MayBeEmpty) {
  EXPECT_TRUE(read("\0\0\x08\x01\0\0\0\0"s, 1).values.empty());
}

TEST_F(IdxFile, RefusesWhatIsNotAsItsHeaderSays) {
  EXPECT_THAT(refusal("", 1), HasSubstr("is no IDX file"));
  EXPECT_THAT(refusal("\x1f\x8b\x08\0\0\0\0\0"s, 1), HasSubstr("is no IDX file"));  // still gzipped
  EXPECT_THAT(refusal("\0\0\x0d\x01\0\0\0\0"s, 1), HasSubstr("holds values of IDX type 13"));
  EXPECT_THAT(refusal("\0\0\x08\x03\0\0\0\0"s, 1), HasSubstr("has 3 dimensions instead of 1"));
  EXPECT_THAT(refusal("\0\0\x08\x01\0\0"s, 1), HasSubstr("is cut short within its header"));
  EXPECT_THAT(refusal("\0\0\x08\x01\0\0\0\x03"s + "ab", 1),
              HasSubstr("is cut short: its header promises 3 values, the file has 10 bytes"));
  EXPECT_THAT(refusal("\0\0\x08\x01\0\0\0\x01"s + "ab", 1),
              HasSubstr("is longer than its header's 1 values"));
  // A product of dimensions that overflows 64 bits must not look small.
  EXPECT_THAT(refusal("\0\0\x08\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"s, 3),
              HasSubstr("is cut short"));
}

TEST_F(IdxFile, NamesAFileThatIsMissing) {
  try {
    read_idx(path_, 1);
    ADD_FAILURE();
  } catch (const worker::ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr(path_ + " cannot be read"));
  }
}

}  // namespace
}  // namespace cpprun::trainer
