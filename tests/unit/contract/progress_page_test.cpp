// What a worker says about its progress arrives, whole and printable, whatever the worker is or does.
#include "worker_runtime/contract/progress_page.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "tests/unit/contract/progress_in_c.h"
#include "worker_runtime/contract/cpprun_progress.hpp"
#include "worker_runtime/contract/printable_text.hpp"

namespace cpprun::worker {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;
using TimePoint = ProgressReading::TimePoint;
namespace said = cpprun::progress;

// What the process keeps of its page is forgotten, as at its start.
void forget_page() {
  if (cpprun_progress_state_.page) ::munmap(cpprun_progress_state_.page, CPPRUN_PROGRESS_PAGE_SIZE);
  cpprun_progress_state_ = {nullptr, PTHREAD_ONCE_INIT, 0, 0};
}

class ProgressPage : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string file = ::testing::TempDir() + "progress_page_XXXXXX";
    const int fd = ::mkstemp(file.data());
    ASSERT_EQ(::ftruncate(fd, CPPRUN_PROGRESS_PAGE_SIZE), 0);
    page_ = static_cast<cpprun_progress_page*>(
        ::mmap(nullptr, CPPRUN_PROGRESS_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    ::close(fd);
    file_ = file;
    ::setenv(CPPRUN_PROGRESS_ENV, file.c_str(), 1);
    forget_page();
  }
  void TearDown() override {
    forget_page();
    ::munmap(page_, CPPRUN_PROGRESS_PAGE_SIZE);
    ::unlink(file_.c_str());
    ::unsetenv(CPPRUN_PROGRESS_ENV);
  }
  ProgressReading reading() {
    const std::optional<ProgressReading> read = read_progress(page_);
    EXPECT_TRUE(read);
    return read.value_or(ProgressReading{});
  }
  // What `child` returns in a process of its own.
  int in_child(int (*child)()) {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(child());
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string file_;
  cpprun_progress_page* page_ = nullptr;
};

TEST_F(ProgressPage, NothingBeforeAWorkerOpensIt) {
  EXPECT_FALSE(read_progress(page_));
  ASSERT_TRUE(said::open());
  const ProgressReading opened = reading();
  EXPECT_EQ(opened.writer, static_cast<std::uint32_t>(::getpid()));
  EXPECT_EQ(opened.phase, Phase::Starting);
  EXPECT_FALSE(opened.step || opened.collective || opened.last_progress || opened.last_heartbeat);
  EXPECT_EQ(opened.section + opened.message, "");
  page_->version = CPPRUN_PROGRESS_VERSION + 1;
  EXPECT_FALSE(read_progress(page_));
}

TEST_F(ProgressPage, SaidInCpp) {
  said::phase(said::Phase::Evaluating);
  said::heartbeat();
  said::heartbeat();
  said::step(1200);
  said::collective(0);
  said::message("na\xc3\xafve");
  const said::Section section("forward");
  const ProgressReading read = reading();
  EXPECT_EQ(read.phase, Phase::Evaluating);
  EXPECT_EQ(read.heartbeats, 2u);
  EXPECT_EQ(read.step, 1200);
  EXPECT_EQ(read.collective, 0);
  EXPECT_EQ(read.message, "na\xc3\xafve");
  EXPECT_EQ(read.section, "forward");
  const TimePoint now = TimePoint::clock::now();
  for (const TimePoint then : {read.phase_since, read.section_since, read.message_since, *read.last_progress,
                               *read.last_heartbeat}) {
    EXPECT_LE(then, now);
    EXPECT_GT(then, now - seconds(60));
  }
}

TEST_F(ProgressPage, SaidInC) {
  ASSERT_EQ(tell_progress_in_c(), 1);
  said::step(42);  // the C part and this one share the page
  const ProgressReading read = reading();
  EXPECT_EQ(read.phase, Phase::Compiling);
  EXPECT_EQ(read.heartbeats, 1u);
  EXPECT_EQ(read.step, 42);
  EXPECT_EQ(read.collective, 7);
  EXPECT_EQ(read.message, "in C");
  EXPECT_EQ(read.section, "c section");
}

TEST_F(ProgressPage, WhatIsProgress) {
  struct Case {
    const char* name;
    void (*call)();
    bool progress;
  };
  for (const Case& c :
       {Case{"heartbeat", [] { said::heartbeat(); }, false},
        Case{"message", [] { said::message("x"); }, false}, Case{"step", [] { said::step(1); }, true},
        Case{"collective", [] { said::collective(1); }, true},
        Case{"section", [] { said::section("x"); }, true},
        Case{"leaving it", [] { said::section(""); }, true},
        Case{"phase", [] { said::phase(said::Phase::Waiting); }, true}}) {
    said::open();
    page_->last_progress = 0;
    c.call();
    EXPECT_EQ(reading().last_progress.has_value(), c.progress) << c.name;
  }
}

TEST_F(ProgressPage, SectionsWithinSections) {
  {
    const said::Section outer("epoch");
    const TimePoint entered = reading().section_since;
    page_->section[page_->section_count % 2].since -= 5'000'000'000;
    {
      const said::Section inner("forward");
      EXPECT_EQ(reading().section, "forward");
      EXPECT_GE(reading().section_since, entered);
    }
    EXPECT_EQ(reading().section, "epoch");
    EXPECT_EQ(reading().section_since, entered - seconds(5));
  }
  EXPECT_EQ(reading().section, "");
  {
    const said::PhaseScope evaluating(said::Phase::Evaluating);
    EXPECT_EQ(reading().phase, Phase::Evaluating);
  }
  EXPECT_EQ(reading().phase, Phase::Starting);
}

TEST_F(ProgressPage, LongTextsAreCut) {
  const std::string text(10'000, 'x');
  said::section(text.c_str());
  said::message(text.c_str());
  EXPECT_EQ(reading().section, std::string(63, 'x'));
  EXPECT_EQ(reading().message, std::string(503, 'x'));
  for (std::size_t size = 0; size < 64; ++size) {
    said::section(text.substr(0, size).c_str());
    EXPECT_EQ(reading().section.size(), size);
  }
}

TEST_F(ProgressPage, ATextThatItsWriterWasKilledInIsNotSeen) {
  said::section("whole");
  page_->section[(page_->section_count + 1) % 2].text[0] = 0x6e726f74;  // "torn", and its number unwritten
  EXPECT_EQ(reading().section, "whole");
  said::section("next");
  EXPECT_EQ(reading().section, "next");
}

TEST_F(ProgressPage, TextsAreWholeWhileTheyChange) {
  const std::string kinds[] = {std::string(63, 'a'), std::string(40, 'b'), std::string(5, 'c')};
  said::open();
  std::atomic<bool> enough = false;
  std::thread writer([&] {
    for (std::size_t i = 0; !enough; ++i) said::section(kinds[i % 3].c_str());
  });
  int changes = 0;
  std::string before;
  for (int i = 0; i < 200'000 || (changes < 100 && i < 100'000'000); ++i) {
    const std::string seen = read_progress(page_)->section;
    if (!seen.empty() && std::find(std::begin(kinds), std::end(kinds), seen) == std::end(kinds)) {
      ADD_FAILURE() << "torn: " << seen;
      break;
    }
    changes += seen != before;
    before = seen;
  }
  enough = true;
  writer.join();
  EXPECT_GE(changes, 100);
}

TEST_F(ProgressPage, CopiesTellWhetherATextChangedMeanwhile) {
  said::open();
  const auto changes = [this](void (*call)()) {
    const cpprun_progress_page earlier = *page_;
    call();
    return !texts_unchanged(&earlier, page_);
  };
  EXPECT_FALSE(changes([] { said::step(1); }));
  EXPECT_FALSE(changes([] { said::heartbeat(); }));
  EXPECT_TRUE(changes([] { said::section("x"); }));
  EXPECT_TRUE(changes([] { said::message("x"); }));
}

TEST_F(ProgressPage, ThreadsDoNotMixTheirTexts) {
  said::message("first");
  cpprun_progress_state_.writing = 1;  // another thread is about to write, or this one was interrupted then
  said::message("second");
  said::section("second");
  EXPECT_EQ(reading().message, "first");
  EXPECT_EQ(reading().section, "");
  cpprun_progress_state_.writing = 0;
  said::message("third");
  EXPECT_EQ(reading().message, "third");
}

TEST_F(ProgressPage, OneProcessWritesAsLongAsItLives) {
  said::step(1);
  const auto another = [] {
    forget_page();
    said::step(99);
    return said::open() ? 1 : 0;
  };
  EXPECT_EQ(in_child(another), 0);
  EXPECT_EQ(reading().step, 1);
  // As if the writer were gone: no process has this number.
  page_->pid = 0x7ffffff0;
  EXPECT_EQ(in_child(another), 1);
  EXPECT_EQ(reading().step, 99);
  EXPECT_NE(reading().writer, static_cast<std::uint32_t>(::getpid()));
}

TEST_F(ProgressPage, AForkedChildIsSilent) {
  said::step(1);
  EXPECT_EQ(in_child([] {
              said::step(99);
              said::section("child");
              said::message("child");
              return said::open() ? 1 : 0;
            }),
            0);
  EXPECT_EQ(reading().step, 1);
  EXPECT_EQ(reading().section + reading().message, "");
}

TEST_F(ProgressPage, WithoutAPageNothingHappens) {
  for (const char* file : {"", "/no/such/file", "/dev/zero", "/"}) {
    forget_page();
    ::setenv(CPPRUN_PROGRESS_ENV, file, 1);
    EXPECT_EQ(tell_progress_in_c(), 0) << file;
    EXPECT_FALSE(said::open());
  }
  ::setenv(CPPRUN_PROGRESS_ENV, file_.c_str(), 1);
  ASSERT_EQ(::truncate(file_.c_str(), 100), 0);
  forget_page();
  EXPECT_FALSE(said::open());
  ASSERT_EQ(::truncate(file_.c_str(), CPPRUN_PROGRESS_PAGE_SIZE), 0);
}

TEST_F(ProgressPage, GarbageIsReadWithoutHarm) {
  std::mt19937_64 random(7);
  const TimePoint now = TimePoint::clock::now();
  for (int round = 0; round < 3000; ++round) {
    std::uint64_t* words = reinterpret_cast<std::uint64_t*>(page_);
    for (std::size_t i = 0; i < CPPRUN_PROGRESS_PAGE_SIZE / sizeof *words; ++i) words[i] = random();
    page_->magic = CPPRUN_PROGRESS_MAGIC;
    page_->version = CPPRUN_PROGRESS_VERSION;
    const ProgressReading read = reading();
    const std::string text = to_text(read, now);
    EXPECT_EQ(printable(text), text);
    EXPECT_TRUE(json::parse(to_json(read, now)).is_object());
    EXPECT_TRUE(read.python_stacks_signal == 0 ||
                (read.python_stacks_signal >= 32 && read.python_stacks_signal <= 64));
  }
}

TEST_F(ProgressPage, OnlyRealTimeSignalsAskForStacks) {
  said::open();
  for (const auto& [written, read] :
       {std::pair{0u, 0}, {9u, 0}, {31u, 0}, {62u, 62}, {65u, 0}, {1u << 31, 0}}) {
    page_->python_stacks_signal = written;
    EXPECT_EQ(reading().python_stacks_signal, read);
  }
}

TEST(ProgressText, OfEachPhase) {
  EXPECT_EQ(to_text(Phase::Starting), "starting");
  EXPECT_EQ(to_text(Phase::Finishing), "finishing");
  EXPECT_EQ(to_text(static_cast<Phase>(17)), "phase 17");
}

TEST(ProgressText, OneLine) {
  const TimePoint now = TimePoint(seconds(1000));
  ProgressReading reading;
  EXPECT_EQ(to_text(reading, now), "no step yet, starting, no progress yet");
  reading.step = 1200;
  reading.phase = Phase::Training;
  reading.section = "forward";
  reading.section_since = now - milliseconds(12'300);
  reading.last_progress = now - seconds(14);
  reading.message = "shard 7";
  EXPECT_EQ(to_text(reading, now),
            "step 1200, training, section 'forward' for 12.3 s, last progress 14.0 s ago, message 'shard 7'");
  reading.section = "";
  reading.collective = 340;
  reading.last_heartbeat = now + milliseconds(3);  // by a clock that is a little ahead
  EXPECT_EQ(to_text(reading, now),
            "step 1200, training, collective 340, last progress 14.0 s ago, last heartbeat 0.0 s ago, "
            "message 'shard 7'");
}

TEST(ProgressText, Json) {
  const TimePoint now = TimePoint(seconds(1000));
  ProgressReading reading;
  reading.writer = 77;
  reading.phase_since = now - seconds(3);
  EXPECT_EQ(
      json::parse(to_json(reading, now)),
      json::parse(R"({"pid": 77, "step": null, "phase": "starting", "phase_seconds": 3.0, "section": null,
                            "section_seconds": null, "collective": null, "last_progress_seconds": null,
                            "heartbeats": 0, "last_heartbeat_seconds": null, "message": null,
                            "message_seconds": null})"));
  reading.step = 5;
  reading.section = "load";
  reading.section_since = now - seconds(2);
  reading.last_progress = now - seconds(1);
  const json object = json::parse(to_json(reading, now));
  EXPECT_EQ(object.at("step"), 5);
  EXPECT_EQ(object.at("section"), "load");
  EXPECT_EQ(object.at("section_seconds"), 2.0);
  EXPECT_EQ(object.at("last_progress_seconds"), 1.0);
}

TEST(PrintableText, OneLineOfUtf8) {
  for (const auto& [text, shown] : {
           std::pair<std::string, std::string>{"", ""},
           {"plain ~", "plain ~"},
           {"a\nb\tc\x1b[31m\x7f", "a b c [31m "},
           {"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"},
           {"\xc2\x9b"
            "31m",
            " 31m"},                      // a control character of two bytes
           {"\xff\xc3", "??"},            // no head, and cut short
           {"\xc0\xaf", "??"},            // spelled longer than it is
           {"\xed\xa0\x80", "???"},       // half of a pair of UTF-16
           {"\xf4\x90\x80\x80", "????"},  // beyond the last character
           {"\xe2\x82"
            "x",
            "??x"},
       }) {
    EXPECT_EQ(printable(text), shown);
  }
}

}  // namespace
}  // namespace cpprun::worker
