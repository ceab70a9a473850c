#include "launcher/health/hang_policy.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "launcher/health/evidence_request.hpp"

namespace cpprun::launcher {
namespace {

using namespace std::chrono_literals;

TEST(HangLimits, AreReadFromText) {
  EXPECT_FALSE(parse_hang_limits("off").any());
  const HangLimits on = parse_hang_limits("on");
  EXPECT_TRUE(on.learn_step && on.heartbeat && on.silence && on.stuck);
  EXPECT_FALSE(on.startup);
  const HangLimits given =
      parse_hang_limits("on, silence=60,step=1.5,heartbeat=off,section.save all=0.25,startup=9");
  EXPECT_EQ(given.silence, 60s);
  EXPECT_EQ(given.step, 1500ms);
  EXPECT_FALSE(given.learn_step);
  EXPECT_FALSE(given.heartbeat);
  EXPECT_EQ(given.sections.at("save all"), 250ms);
  EXPECT_EQ(given.startup, 9s);
  EXPECT_EQ(given.stuck, on.stuck);
  const HangLimits alone = parse_hang_limits("step=auto,step_factor=3,step_floor=2");
  EXPECT_TRUE(alone.learn_step);
  EXPECT_FALSE(alone.silence || alone.heartbeat || alone.stuck);
  EXPECT_EQ(alone.step_floor, 2s);
  EXPECT_EQ(alone.step_factor, 3);
}

TEST(HangLimits, AreShownAsTheyAreRead) {
  for (const char* text : {"silence=0.5,startup=9,section.save all=600", "stuck=3,heartbeat=4,step=1.5",
                           "silence=600,step=auto,step_factor=2.5,step_floor=30"})
    EXPECT_EQ(to_text(parse_hang_limits(text)), text);
}

TEST(HangLimits, RefuseWhatIsNone) {
  for (const char* text : {"",
                           "yes",
                           "silence",
                           "silence=",
                           "silence=0",
                           "silence=-1",
                           "silence=nan",
                           "silence=1x",
                           "silence=1e30",
                           "step=later",
                           "step_factor=0.5",
                           "step_factor=off",
                           "section.=3",
                           "step_factor=3",
                           "step_floor=2",
                           "step=9,step_factor=3",
                           "silence=0.001",
                           "off,silence=3",
                           "on,on",
                           "section.a=x",
                           "colour=3",
                           "silence=1,on",
                           "silence=1,,step=2"}) {
    EXPECT_THROW(parse_hang_limits(text), HangLimitsError) << text;
  }
  EXPECT_NO_THROW(parse_hang_limits("section." + std::string(63, 'x') + "=3"));
  EXPECT_THROW(parse_hang_limits("section." + std::string(64, 'x') + "=3"), HangLimitsError);
}

TEST(HangLimits, OfSleepInTheKernelMayBeTorchruns) {
  EXPECT_EQ(stuck_limit("5"), 5s);
  EXPECT_EQ(stuck_limit("0.25"), 250ms);
  for (const char* text : {static_cast<const char*>(nullptr), "", "0", "-1", "x", "5s", "nan", "inf", "1e99"})
    EXPECT_FALSE(stuck_limit(text)) << (text ? text : "unset");
}

// Workers under a clock of the test's own; each tick they do what the test says.
class Workers {
 public:
  explicit Workers(const std::string& limits, int count = 2) : policy(parse_hang_limits(limits)) {
    for (int rank = 0; rank < count; ++rank) {
      WorkerLook look;
      look.local_rank = rank;
      look.pid = 100 + rank;
      looks.push_back(look);
    }
  }

  using Act = std::function<void(WorkerLook&)>;

  // Until a hang is told or the time is over.
  std::optional<Hang> run(std::chrono::milliseconds time, const Act& act) {
    for (const std::chrono::milliseconds end = passed + time; passed < end;) {
      passed += tick;
      for (WorkerLook& look : looks) {
        look.stack_pointer = std::nullopt;
        act(look);
        if (!policy.wants_closer_look()) {
          look.children_busy = false;
          look.stack_pointer = std::nullopt;
        }
      }
      if (std::optional<Hang> hang = policy.observe(looks, HangPolicy::TimePoint(passed))) return hang;
    }
    return std::nullopt;
  }

  HangPolicy policy;
  std::vector<WorkerLook> looks;
  std::chrono::milliseconds tick{200};
  std::chrono::milliseconds passed{0};
};

void compute(WorkerLook& look) {
  look.cpu_time += 180ms;
  look.page_faults += 100;
}

void step(WorkerLook& look) {
  WorkerLook::Progress progress = look.progress.value_or(WorkerLook::Progress());
  progress.begun = true;
  ++progress.step;
  ++progress.moved;
  look.progress = progress;
}

void nothing(WorkerLook&) {}

TEST(HangBySilence, IsToldSoonAfterTheLimit) {
  Workers workers("silence=10");
  EXPECT_FALSE(workers.run(30s, compute));
  const std::chrono::milliseconds from = workers.passed;
  const std::optional<Hang> hang = workers.run(60s, nothing);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->kind, HangKind::Silence);
  EXPECT_GE(workers.passed - from, 10s);
  EXPECT_LE(workers.passed - from, 13s);
  EXPECT_FALSE(workers.run(60s, nothing)) << "told once";
}

TEST(HangBySilence, IsNoneWhileAnyWorkerDoesAnything) {
  const std::map<std::string, Workers::Act> kSigns{
      {"writes", [](WorkerLook& look) { look.written += 1; }},
      {"reads", [](WorkerLook& look) { look.read += 4096; }},
      {"sends", [](WorkerLook& look) { look.socket_bytes += 1; }},
      {"computes with memory", compute},
      {"computes in changing frames",
       [](WorkerLook& look) {
         look.cpu_time += 180ms;
         look.stack_pointer = static_cast<std::uint64_t>(look.cpu_time.count());
       }},
      {"waits for a child that computes", [](WorkerLook& look) { look.children_busy = true; }},
      {"makes progress by its page, in one place",
       [](WorkerLook& look) {
         look.cpu_time += 200ms;
         look.stack_pointer = 0x7ffc0000;
         step(look);
       }},
      {"enters sections",
       [](WorkerLook& look) {
         step(look);
         look.progress->step = 0;
       }},
      {"is traced", [](WorkerLook& look) { look.traced = true; }}};
  for (const auto& [sign, act] : kSigns) {
    Workers workers("silence=10");
    EXPECT_FALSE(workers.run(5s, compute));
    EXPECT_FALSE(workers.run(120s, [&act = act](WorkerLook& look) {
      if (look.local_rank == 1) act(look);
    })) << sign;
  }
}

TEST(HangBySilence, SmallReadsAndALittleComputingAreNoActivity) {
  Workers workers("silence=10");
  EXPECT_FALSE(workers.run(5s, compute));
  EXPECT_TRUE(workers.run(60s, [](WorkerLook& look) {
    look.read += 8;
    look.cpu_time += 1ms;
  }));
}

TEST(HangBySilence, ALoopThatGetsNowhereIsFoundAndBlamed) {
  Workers workers("silence=10");
  EXPECT_FALSE(workers.run(5s, compute));
  const std::optional<Hang> hang = workers.run(60s, [](WorkerLook& look) {
    if (look.local_rank != 1) return;
    look.cpu_time += 200ms;
    look.stack_pointer = 0x7ffc0000;
  });
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->local_rank, 1);
}

TEST(HangBySilence, HeartbeatsAreNoActivity) {
  Workers workers("silence=10");
  EXPECT_FALSE(workers.run(5s, compute));
  EXPECT_TRUE(workers.run(60s, [](WorkerLook& look) {
    WorkerLook::Progress progress = look.progress.value_or(WorkerLook::Progress());
    ++progress.heartbeats;
    look.progress = progress;
  })) << "a thread of its own may give them";
}

TEST(HangBySilence, OneThatIsStoppedIsBlamedAndAllStoppedIsNone) {
  Workers workers("silence=10");
  EXPECT_FALSE(workers.run(5s, compute));
  EXPECT_FALSE(workers.run(300s, [](WorkerLook& look) { look.state = 'T'; }));
  const std::optional<Hang> hang =
      workers.run(60s, [](WorkerLook& look) { look.state = look.local_rank == 1 ? 'T' : 'S'; });
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->local_rank, 1);
}

TEST(HangBySilence, WhatTheAgentDidNotSeeDoesNotCount) {
  Workers workers("silence=10");
  EXPECT_FALSE(workers.run(5s, compute));
  EXPECT_FALSE(workers.run(4s, nothing));
  workers.passed += 1h;  // the agent was stopped too
  EXPECT_FALSE(workers.run(200ms, nothing));
  EXPECT_FALSE(workers.run(20s, compute));
}

TEST(HangBySilence, ANewWorkerStartsAnew) {
  Workers workers("silence=10");
  EXPECT_FALSE(workers.run(5s, compute));
  ASSERT_TRUE(workers.run(60s, nothing));
  for (WorkerLook& look : workers.looks) look.pid += 10;
  EXPECT_FALSE(workers.run(9s, nothing));
  EXPECT_TRUE(workers.run(10s, nothing));
}

TEST(HangBySleepInTheKernel, IsThatOfOneWorker) {
  Workers workers("stuck=10");
  const std::optional<Hang> hang = workers.run(60s, [](WorkerLook& look) {
    if (look.local_rank == 0) return compute(look);
    look.state = 'D';
  });
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->kind, HangKind::Stuck);
  EXPECT_EQ(hang->local_rank, 1);
  Workers writers("stuck=10");
  EXPECT_FALSE(writers.run(60s, [](WorkerLook& look) {
    look.state = 'D';
    look.written += 4096;
  }));
}

TEST(HangBySteps, IsToldAtTheLimit) {
  Workers workers("step=10");
  EXPECT_FALSE(workers.run(60s, step));
  const std::chrono::milliseconds from = workers.passed;
  const std::optional<Hang> hang = workers.run(60s, compute);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->kind, HangKind::Step);
  EXPECT_LE(workers.passed - from, 11s);
}

TEST(HangBySteps, BlamesTheOneThatIsBehind) {
  Workers workers("step=10");
  EXPECT_FALSE(workers.run(10s, step));
  EXPECT_FALSE(workers.run(200ms, [](WorkerLook& look) {
    if (look.local_rank == 0) step(look);
  }));
  const std::optional<Hang> hang = workers.run(60s, nothing);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->local_rank, 1);
}

TEST(HangBySteps, LearnsTheLimitFromTheStepsSeen) {
  Workers workers("step=auto,step_factor=5,step_floor=3");
  EXPECT_FALSE(workers.run(120s, nothing)) << "nothing is known yet";
  int tick = 0;
  const Workers::Act slow_steps = [&tick](WorkerLook& look) {
    if (look.local_rank == 0) ++tick;
    if (tick % 10 == 0) step(look);  // every 2 s
  };
  EXPECT_FALSE(workers.run(60s, slow_steps));
  const std::chrono::milliseconds from = workers.passed;
  ASSERT_TRUE(workers.run(60s, compute));
  EXPECT_GE(workers.passed - from, 9s);
  EXPECT_LE(workers.passed - from, 12s);
}

TEST(HangBySteps, LearnsFromAFewStepsThatOneLookSees) {
  Workers workers("step=auto,step_factor=5,step_floor=3");
  EXPECT_FALSE(workers.run(400ms, step));
  EXPECT_FALSE(workers.run(200ms, [](WorkerLook& look) {
    step(look);
    look.progress->step += 4;
  }));
  EXPECT_TRUE(workers.run(60s, nothing));
}

TEST(HangBySteps, DoesNotCountPauses) {
  Workers workers("step=10");
  EXPECT_FALSE(workers.run(10s, step));
  EXPECT_FALSE(workers.run(200s, [](WorkerLook& look) { look.progress->pausing = true; }));
  EXPECT_FALSE(workers.run(9s, [](WorkerLook& look) { look.progress->pausing = false; }));
  EXPECT_TRUE(workers.run(9s, nothing));
}

TEST(HangBySteps, APauseIsNoStepToLearnFrom) {
  Workers workers("step=auto,step_factor=2,step_floor=2");
  EXPECT_FALSE(workers.run(10s, step));
  EXPECT_FALSE(workers.run(100s, [](WorkerLook& look) { look.progress->pausing = true; }));
  EXPECT_FALSE(workers.run(10s, [](WorkerLook& look) {
    step(look);
    look.progress->pausing = false;
  }));
  EXPECT_TRUE(workers.run(5s, nothing));
}

TEST(HangByStart, IsWithoutAnyProgress) {
  Workers workers("startup=10");
  EXPECT_FALSE(workers.run(8s, compute));
  EXPECT_FALSE(workers.run(200ms, [](WorkerLook& look) {
    if (look.local_rank == 0) step(look);
  }));
  const std::optional<Hang> hang = workers.run(60s, compute);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->kind, HangKind::Startup);
  EXPECT_EQ(hang->local_rank, 1);
}

TEST(HangInASection, CountsFromEachEntry) {
  Workers workers("section.forward=10");
  const auto in = [](const char* name, std::uint64_t entered) {
    return [=](WorkerLook& look) {
      WorkerLook::Progress progress;
      progress.begun = true;
      progress.section = name;
      progress.section_entered = entered;
      look.progress = progress;
    };
  };
  EXPECT_FALSE(workers.run(9s, in("forward", 1)));
  EXPECT_FALSE(workers.run(9s, in("forward", 2)));
  EXPECT_FALSE(workers.run(90s, in("backward", 3)));
  EXPECT_FALSE(workers.run(9s, in("forward", 4)));
  const std::optional<Hang> hang = workers.run(9s, in("forward", 4));
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->kind, HangKind::Section);
  EXPECT_NE(hang->what.find("'forward'"), std::string::npos) << hang->what;
}

TEST(HangByHeartbeat, IsOfOneThatHadSome) {
  Workers workers("heartbeat=10");
  const auto beat = [](WorkerLook& look) {
    WorkerLook::Progress progress = look.progress.value_or(WorkerLook::Progress());
    progress.begun = true;
    if (look.local_rank == 1) ++progress.heartbeats;
    look.progress = progress;
  };
  EXPECT_FALSE(workers.run(60s, beat));
  const std::optional<Hang> hang = workers.run(60s, compute);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->kind, HangKind::Heartbeat);
  EXPECT_EQ(hang->local_rank, 1);
}

TEST(HangByHeartbeat, NeedsNoOtherProgress) {
  Workers workers("heartbeat=10");
  EXPECT_FALSE(workers.run(60s, [](WorkerLook& look) {
    WorkerLook::Progress progress = look.progress.value_or(WorkerLook::Progress());
    ++progress.heartbeats;
    look.progress = progress;
  }));
  const std::optional<Hang> hang = workers.run(60s, compute);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->kind, HangKind::Heartbeat);
}

TEST(EvidenceRequest, RoundTrip) {
  for (const EvidenceRequest::Kind kind :
       {EvidenceRequest::Kind::Stacks, EvidenceRequest::Kind::Quiet, EvidenceRequest::Kind::GiveUp}) {
    const EvidenceRequest request{kind, kind == EvidenceRequest::Kind::GiveUp ? 17 : -1, "why: \n because"};
    const EvidenceRequest read = evidence_request(to_text(request));
    EXPECT_EQ(read.kind, request.kind);
    EXPECT_EQ(read.rank, request.rank);
    EXPECT_EQ(read.why, request.why);
    EXPECT_EQ(content_for(request, answer_to(request, "x")), "x");
  }
  const EvidenceRequest stacks;
  const EvidenceRequest give_up{EvidenceRequest::Kind::GiveUp, 1, ""};
  const EvidenceRequest other{EvidenceRequest::Kind::GiveUp, 11, ""};
  EXPECT_FALSE(content_for(give_up, answer_to(stacks, "ok")));
  EXPECT_FALSE(content_for(give_up, answer_to(other, "ok")));
  for (const char* text : {"", "hello", "give up x:why", "give up 99999999999:why", "stack:s"}) {
    EXPECT_EQ(evidence_request(text).kind, EvidenceRequest::Kind::Stacks) << text;
  }
}

}  // namespace
}  // namespace cpprun::launcher
