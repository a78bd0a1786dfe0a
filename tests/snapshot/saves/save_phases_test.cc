#include "snapshot/saves/save_phases.h"

#include <cstdint>
#include <string>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidemark {
namespace {

using std::chrono::microseconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

const SavePhases::Time kCalled = SavePhases::Time() + std::chrono::hours(1);

SavePhases::Time At(int64_t us) { return kCalled + microseconds(us); }

// "name lane begin+duration busy bytes", in microseconds.
std::vector<std::string> Texts(const SavePhases& phases) {
  std::vector<std::string> texts;
  for (const SavePhase& phase : phases.Get()) {
    texts.push_back(fmt::format("{} {} {}+{} {} {}", phase.name, phase.lane, absl::ToInt64Microseconds(phase.begin),
                                absl::ToInt64Microseconds(phase.duration), absl::ToInt64Microseconds(phase.busy),
                                phase.bytes));
  }
  return texts;
}

TEST(SavePhases, TellWhatWasAddedFromTheCallOn) {
  SavePhases phases(kCalled);
  EXPECT_THAT(phases.Get(), IsEmpty());
  phases.Add("refresh", "trainer", At(10), At(30));
  phases.Add("copy", "trainer", At(30), At(1000), 4096);
  EXPECT_THAT(Texts(phases), ElementsAre("refresh trainer 10+20 20 0", "copy trainer 30+970 970 4096"));
  EXPECT_EQ(phases.Took("copy"), absl::Microseconds(970));
  EXPECT_EQ(phases.Took("room"), absl::ZeroDuration());
}

TEST(SavePhases, LeaveOutWaitsThatWereNone) {
  SavePhases phases(kCalled);
  phases.AddWait("room", "trainer", At(0), At(49));
  EXPECT_THAT(Texts(phases), IsEmpty());
  phases.AddWait("room", "trainer", At(0), At(50));
  EXPECT_THAT(Texts(phases), ElementsAre("room trainer 0+50 50 0"));
}

TEST(SavePhases, HaveALaneForEachCodecThreadThatDidAnything) {
  storage::WriteTimes times;
  times.begin = At(100);
  times.opened = At(200);
  times.landed = At(900);
  times.end = At(1000);
  times.disk_waits.Add(At(300), At(400));
  times.encoding.resize(3);
  times.encoding[0].Add(At(200), At(250), 10);
  times.encoding[2].Add(At(210), At(260), 20);
  SavePhases phases(kCalled);
  phases.Add("queue", "persister", At(50), At(90));
  phases.AddWrite(times, 4096);
  SavePhases trainer(kCalled);
  trainer.Add("copy", "trainer", At(0), At(50));
  phases.Prepend(trainer);
  EXPECT_THAT(Texts(phases), ElementsAre("copy trainer 0+50 50 0", "queue persister 50+40 40 0",
                                         "open persister 100+100 100 0", "write persister 200+700 700 4096",
                                         "sync persister 900+100 100 0", "disk wait persister: disk 300+100 100 0",
                                         "encode codec 1 200+50 50 10", "encode codec 3 210+50 50 20"));
}

TEST(SavePhases, JoinAcrossWhatIsTooShortToBeSeen) {
  SavePhases phases(kCalled);
  phases.Add("write", "persister", At(0), At(10'000));  // a hundredth is 100
  phases.Add("encode", "codec 1", At(0), At(1000), 1);
  phases.Add("encode", "codec 1", At(1099), At(2000), 2);  // after 99
  phases.Add("encode", "codec 1", At(2100), At(3000), 4);  // after 100
  EXPECT_THAT(Texts(phases), ElementsAre("write persister 0+10000 10000 0", "encode codec 1 0+2000 1901 3",
                                         "encode codec 1 2100+900 900 4"));
  EXPECT_EQ(phases.Took("encode"), absl::Microseconds(1000 + 901 + 900)) << "what is kept is not changed by a look";
}

TEST(SavePhases, AreOneOfAKindAndNotManyMore) {
  const auto with_threads = [](int threads) {
    SavePhases phases(kCalled);
    for (int thread = 1; thread <= threads; ++thread) {
      for (int64_t i = 0; i < 40; ++i) {
        phases.Add("encode", fmt::format("codec {}", thread), At(100 * i), At(100 * i + 40), 1);
      }
    }
    return phases;
  };
  EXPECT_THAT(with_threads(1).Get(), SizeIs(40));
  EXPECT_THAT(with_threads(2).Get(), SizeIs(2)) << "all pauses are equally long";
  const std::vector<SavePhase> many = with_threads(300).Get();
  ASSERT_THAT(many, SizeIs(300));
  EXPECT_EQ(many[299].bytes, 40u);
  EXPECT_EQ(many[299].busy, absl::Microseconds(40 * 40));
  EXPECT_EQ(many[299].duration, absl::Microseconds(39 * 100 + 40));
}

}  // namespace
}  // namespace tidemark
