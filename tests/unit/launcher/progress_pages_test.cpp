// The pages of a node's workers: made for each attempt, read whatever the workers do to them, and removed.
#include "launcher/health/progress_pages.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "launcher/process/log_layout.hpp"
#include "worker_runtime/contract/cpprun_progress.h"

namespace cpprun::launcher {
namespace {

namespace fs = std::filesystem;

class Pages : public ::testing::Test {
 protected:
  // What a worker does when it opens its page.
  cpprun_progress_page* open_as_worker(const std::string& file) {
    cpprun_progress_page* page = cpprun_progress_map_(file.c_str());
    EXPECT_NE(page, nullptr);
    return page;
  }

  const std::string folder_ = ProgressPages::plan_folder(random_suffix());
  ProgressPages pages_{folder_};
};

TEST_F(Pages, EachAttemptHasFreshOnes) {
  EXPECT_FALSE(fs::exists(folder_));
  pages_.make(3, 2);
  EXPECT_EQ(pages_.file_of(1), ProgressPages::page_file(folder_, 3, 1));
  EXPECT_EQ(pages_.file_of(2), "");
  EXPECT_EQ(fs::status(folder_).permissions(), fs::perms::owner_all);
  struct stat about {};
  ASSERT_EQ(::stat(pages_.file_of(0).c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
  EXPECT_EQ(about.st_size, 4096);
  EXPECT_GE(about.st_blocks, 8);  // memory is there already

  EXPECT_FALSE(pages_.reading(0));
  cpprun_progress_page* page = open_as_worker(pages_.file_of(0));
  page->step = 12;
  cpprun_progress_write_section_(page, 5, "load");
  ASSERT_TRUE(pages_.reading(0));
  EXPECT_EQ(pages_.reading(0)->step, 12);
  EXPECT_EQ(pages_.reading(0)->section, "load");
  EXPECT_FALSE(pages_.reading(1));
  EXPECT_FALSE(pages_.reading(2));

  pages_.remove_files();
  EXPECT_FALSE(fs::exists(folder_));
  EXPECT_EQ(pages_.reading(0)->step, 12);  // for the report
  pages_.make(4, 1);
  EXPECT_FALSE(pages_.reading(0));
  EXPECT_FALSE(fs::exists(ProgressPages::page_file(folder_, 3, 0)));
  EXPECT_FALSE(fs::exists(ProgressPages::page_file(folder_, 3, 1)));
  ::munmap(page, CPPRUN_PROGRESS_PAGE_SIZE);
}

// Removing a folder takes a descriptor too.
TEST_F(Pages, NothingIsLeftWhereDescriptorsRunOut) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the undefined-behaviour sanitizer opens pipes of its own";
#endif
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const int next = ::dup(0);
  ASSERT_GE(next, 0);
  ::close(next);
  const rlimit few{.rlim_cur = static_cast<rlim_t>(next) + 2, .rlim_max = limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  pages_.make(0, 8);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_EQ(pages_.file_of(0), "");
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(Pages, AWorkerThatCutsItsPageOffHarmsNobody) {
  pages_.make(0, 1);
  ::munmap(open_as_worker(pages_.file_of(0)), CPPRUN_PROGRESS_PAGE_SIZE);
  ASSERT_TRUE(pages_.reading(0));
  ASSERT_EQ(::truncate(pages_.file_of(0).c_str(), 100), 0);
  EXPECT_FALSE(pages_.reading(0));
  ASSERT_EQ(::truncate(pages_.file_of(0).c_str(), 0), 0);
  EXPECT_FALSE(pages_.reading(0));
  fs::remove(pages_.file_of(0));
  EXPECT_FALSE(pages_.reading(0));
}

TEST(AbandonedPages, AreThoseWhoseOwnerIsGone) {
  std::string pattern = (fs::temp_directory_path() / "cpprun-pages-XXXXXX").string();
  const fs::path root = ::mkdtemp(pattern.data());
  const fs::path dead = root / "cpprun_progress_dead";
  const fs::path spared[] = {root / "cpprun_progress_alive", root / "cpprun_progress_of_another_version",
                             root / "cpprun_progress_writable", root / "something_else"};
  ProgressPages alive(spared[0].string());
  alive.make(0, 1);
  for (const fs::path& folder : {dead, spared[2], spared[3]}) {
    fs::create_directory(folder);
    fs::permissions(folder, fs::perms::owner_all);
    std::ofstream(folder / "owner") << "";
    std::ofstream(folder / "attempt_0_rank_0") << "page";
  }
  fs::create_directory(spared[1]);
  fs::permissions(spared[2], fs::perms::all);
  fs::create_directory_symlink(spared[3], root / "cpprun_progress_link");
  ProgressPages::remove_abandoned(root.string());
  EXPECT_FALSE(fs::exists(dead));
  for (const fs::path& folder : spared) EXPECT_TRUE(fs::exists(folder)) << folder;
  EXPECT_TRUE(fs::exists(alive.file_of(0)));
  EXPECT_TRUE(fs::exists(spared[3] / "owner"));
  alive.make(1, 1);  // of the next attempt likewise
  ProgressPages::remove_abandoned(root.string());
  EXPECT_TRUE(fs::exists(alive.file_of(0)));
  fs::remove_all(root);
}

TEST(PagesWithoutRoom, AreNone) {
  for (const char* folder : {"", "/no/such/folder", "/proc/cpprun_progress"}) {
    ProgressPages pages(folder);
    pages.make(0, 2);
    EXPECT_EQ(pages.file_of(0), "");
    EXPECT_FALSE(pages.reading(0));
    pages.remove_files();
  }
  EXPECT_EQ(ProgressPages::page_file("", 0, 0), "");
}

}  // namespace
}  // namespace cpprun::launcher
