// --virtual-local-rank: which device each worker is given.
#include "launcher/process/visible_device.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace cpprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(VisibleDevice, WithoutAListTheLocalRankIsTheDevice) {
  const std::vector<worker::Variables> all = one_device_each(2, {});
  ASSERT_EQ(all.size(), 2u);
  EXPECT_THAT(all[0], ElementsAre(Pair("LOCAL_RANK", "0"), Pair("CUDA_VISIBLE_DEVICES", "0")));
  EXPECT_THAT(all[1], ElementsAre(Pair("LOCAL_RANK", "0"), Pair("CUDA_VISIBLE_DEVICES", "1")));
}

TEST(VisibleDevice, EntryOfTheListAtTheRealLocalRank) {
  const std::vector<worker::Variables> all = one_device_each(2, {"4, GPU-a1 ,7", std::nullopt});
  EXPECT_THAT(all[0], ElementsAre(Pair("LOCAL_RANK", "0"), Pair("CUDA_VISIBLE_DEVICES", "4")));
  EXPECT_THAT(all[1], ElementsAre(Pair("LOCAL_RANK", "0"), Pair("CUDA_VISIBLE_DEVICES", "GPU-a1")));
}

TEST(VisibleDevice, HipGoesFirstAndSetsBoth) {
  const std::vector<worker::Variables> all = one_device_each(2, {"0", "5,6"});
  EXPECT_THAT(all[1], ElementsAre(Pair("LOCAL_RANK", "0"), Pair("CUDA_VISIBLE_DEVICES", "6"),
                                  Pair("HIP_VISIBLE_DEVICES", "6")));
  // An empty HIP list counts as none.
  EXPECT_THAT(one_device_each(1, {"3", ""})[0],
              ElementsAre(Pair("LOCAL_RANK", "0"), Pair("CUDA_VISIBLE_DEVICES", "3")));
}

TEST(VisibleDevice, ListTooShort) {
  struct Case {
    int workers;
    DeviceLists lists;
    const char* sentence;
  };
  for (const Case& c : {Case{2, {"5", std::nullopt}, "CUDA_VISIBLE_DEVICES='5' names 1 device, too few"},
                        Case{3, {"0,1,2,3", "1,2"}, "HIP_VISIBLE_DEVICES='1,2' names 2 devices"},
                        Case{2, {"", std::nullopt}, "CUDA_VISIBLE_DEVICES=''"}}) {
    try {
      one_device_each(c.workers, c.lists);
      ADD_FAILURE() << c.sentence;
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr(c.sentence));
    }
  }
}

}  // namespace
}  // namespace cpprun::launcher
