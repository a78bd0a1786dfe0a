#include "storage/store/lease.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

LeaseNote Note(std::string holder = "worker 1", uint8_t attempt = 7, std::string evaluator = "validation") {
  LeaseNote note;
  note.step = 12;
  note.attempt.bytes[15] = attempt;
  note.evaluator = std::move(evaluator);
  note.holder = std::move(holder);
  note.expiry = absl::Seconds(60);
  return note;
}

std::string Contents(const std::string& path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

class LeaseTest : public testing::Test {
 protected:
  LeaseObserver Observer(std::string machine = "here", FileSystem* files = nullptr) {
    return LeaseObserver(files == nullptr ? files_ : *files, layout_, std::move(machine), [this] { return now_; });
  }
  std::string PathOf(const LeaseNote& note) const {
    return layout_.leases() + "/" + LeaseFileName(note.attempt, note.evaluator);
  }
  // A lease file whose holder's lock, if it has one, does not reach here.
  void Leave(const LeaseNote& note, const std::string& contents) {
    std::filesystem::create_directories(layout_.leases());
    std::ofstream(PathOf(note)) << contents;
  }
  void LeaveNote(LeaseNote note, std::string machine, uint64_t renewals = 0) {
    note.machine = std::move(machine);
    note.renewals = renewals;
    Leave(note, EncodeLeaseNote(note));
  }
  // "holder", or "?" where the note cannot be read.
  static std::vector<std::string> Holders(LeaseObserver& observer) {
    auto live = observer.Live();
    EXPECT_THAT(live, IsOk());
    std::vector<std::string> holders;
    for (const LeaseObserver::Held& held : *live) holders.push_back(held.readable ? held.note.holder : "?");
    return holders;
  }

  const TestDirectory directory_;
  const StoreLayout layout_{directory_.path()};
  FailingFileSystem files_{PosixFileSystem()};
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1000);
};

TEST_F(LeaseTest, NoteSurvivesEncoding) {
  LeaseNote note = Note("a \"quoted\" holder");
  note.machine = "boot 1";
  note.renewals = 3;
  note.lease[0] = 9;
  const std::string line = EncodeLeaseNote(note);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  auto decoded = DecodeLeaseNote(line);
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(decoded->step, 12);
  EXPECT_EQ(decoded->attempt, note.attempt);
  EXPECT_EQ(decoded->evaluator, "validation");
  EXPECT_EQ(decoded->holder, note.holder);
  EXPECT_EQ(decoded->machine, "boot 1");
  EXPECT_EQ(decoded->expiry, absl::Seconds(60));
  EXPECT_EQ(decoded->renewals, 3u);
  EXPECT_EQ(decoded->lease, note.lease);
}

TEST_F(LeaseTest, NoteIsRefusedForEveryFieldThatIsWrong) {
  const std::string good = EncodeLeaseNote(Note());
  const auto with = [&](std::string_view from, std::string_view to) {
    EXPECT_THAT(good, HasSubstr(std::string(from)));
    return DecodeLeaseNote(absl::StrReplaceAll(
        good, {{absl::string_view(from.data(), from.size()), absl::string_view(to.data(), to.size())}}));
  };
  EXPECT_THAT(DecodeLeaseNote(""), StatusIs(StatusCode::kDataLoss, HasSubstr("lease note of 0 bytes")));
  EXPECT_THAT(with("\"version\":1", "\"version\":0"), StatusIs(StatusCode::kDataLoss, HasSubstr("never existed")));
  EXPECT_THAT(with("\"version\":1", "\"version\":2"),
              StatusIs(StatusCode::kUnimplemented, "lease note has version 2; this library reads up to 1"));
  EXPECT_THAT(with("\"step\":12", "\"step\":-1"), StatusIs(StatusCode::kDataLoss, HasSubstr(">= 0")));
  EXPECT_THAT(with("\"attempt\":\"0", "\"attempt\":\"x"), StatusIs(StatusCode::kDataLoss, HasSubstr("32 hex")));
  EXPECT_THAT(with("\"lease\":\"0", "\"lease\":\"x"), StatusIs(StatusCode::kDataLoss, HasSubstr("32 hex")));
  EXPECT_THAT(with("60000000000", "0"), StatusIs(StatusCode::kDataLoss, HasSubstr("an expiry of 0")));
  EXPECT_THAT(with("60000000000", "99999999999999999"), StatusIs(StatusCode::kDataLoss, HasSubstr("an expiry of")));
  EXPECT_THAT(with("60000000000", "1e300"), StatusIs(StatusCode::kDataLoss, HasSubstr("is not whole")));
  EXPECT_THAT(with("60000000000", "18446744073709551615"), StatusIs(StatusCode::kDataLoss, HasSubstr("too large")));
  EXPECT_THAT(with("\"version\":1", "\"version\":1.9"), StatusIs(StatusCode::kDataLoss, HasSubstr("is not whole")));
  EXPECT_THAT(with("\"version\":1", "\"version\":18446744073709551615"),
              StatusIs(StatusCode::kDataLoss, HasSubstr("too large")));
  EXPECT_THAT(with("\"step\":12", "\"step\":1.9"), StatusIs(StatusCode::kDataLoss, HasSubstr(">= 0")));
  EXPECT_THAT(with("\"renewals\":0", "\"renewals\":-1"), StatusIs(StatusCode::kDataLoss, HasSubstr("unsigned")));
  for (const char* field : {"step", "attempt", "evaluator", "holder", "machine", "expiry_ns", "renewals", "lease"}) {
    EXPECT_THAT(with(absl::StrCat("\"", field, "\""), "\"other\""), StatusIs(StatusCode::kDataLoss, HasSubstr(field)));
  }
}

TEST_F(LeaseTest, FileNameTellsTheAttempt) {
  const LeaseNote note = Note();
  const std::string name = LeaseFileName(note.attempt, "validation");
  EXPECT_EQ(name.substr(0, 33), "00000000000000000000000000000007-");
  EXPECT_EQ(name.size(), 71u);
  EXPECT_NE(name, LeaseFileName(note.attempt, "validatio"));
  EXPECT_EQ(AttemptOfLeaseFile(name), note.attempt);
  EXPECT_EQ(AttemptOfLeaseFile(name + "x"), std::nullopt);
  EXPECT_EQ(AttemptOfLeaseFile("x" + name.substr(1)), std::nullopt);
  EXPECT_EQ(AttemptOfLeaseFile(name.substr(0, 34) + "x" + name.substr(35)), std::nullopt);
  EXPECT_EQ(AttemptOfLeaseFile(absl::StrReplaceAll(name, {{"-", "+"}})), std::nullopt);
}

TEST_F(LeaseTest, ThisMachineIsTheSameEveryTime) {
  EXPECT_NE(ThisMachine(), "");
  EXPECT_EQ(ThisMachine(), ThisMachine());
  EXPECT_EQ(ThisMachine().find('\n'), std::string::npos);
}

TEST_F(LeaseTest, ClockNeverGoesBack) {
  const absl::Time before = MonotonicNow();
  EXPECT_LE(before, MonotonicNow());
}

TEST_F(LeaseTest, IsHeldUntilItIsDestroyed) {
  LeaseObserver mine = Observer();
  LeaseObserver other = Observer();
  EXPECT_THAT(Holders(other), IsEmpty());  // there is no leases/ yet
  auto lease = mine.Acquire(Note());
  ASSERT_THAT(lease, IsOk());
  EXPECT_EQ((*lease)->note().machine, "here");
  EXPECT_THAT(Holders(other), ElementsAre("worker 1"));
  EXPECT_THAT(Holders(mine), ElementsAre("worker 1"));
  EXPECT_THAT(other.Acquire(Note("worker 2")),
              StatusIs(StatusCode::kUnavailable, "step 12 is leased by worker 1 (evaluator validation)"));
  now_ += absl::Hours(100);  // the lock says that it lives, and no clock
  EXPECT_THAT(Holders(other), ElementsAre("worker 1"));
  lease->reset();
  EXPECT_FALSE(std::filesystem::exists(PathOf(Note())));
  EXPECT_THAT(Holders(other), IsEmpty());
  EXPECT_THAT(other.Acquire(Note("worker 2")), IsOk());
}

TEST_F(LeaseTest, IsOneForEachAttemptAndEvaluator) {
  LeaseObserver observer = Observer();
  auto first = observer.Acquire(Note("a"));
  auto second = observer.Acquire(Note("b", 7, "other"));
  auto third = observer.Acquire(Note("c", 8));
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  ASSERT_THAT(third, IsOk());
  EXPECT_THAT(Holders(observer), testing::UnorderedElementsAre("a", "b", "c"));
}

TEST_F(LeaseTest, IsRefusedIfItsNoteCannotBeSound) {
  LeaseObserver observer = Observer();
  LeaseNote note = Note();
  note.expiry = absl::ZeroDuration();
  EXPECT_THAT(observer.Acquire(note), StatusIs(StatusCode::kInvalidArgument, HasSubstr("an expiry of 0; it must be")));
  note.expiry = kLeaseExpiryMax + absl::Seconds(1);
  EXPECT_THAT(observer.Acquire(note), StatusIs(StatusCode::kInvalidArgument, HasSubstr("an expiry of 24h1s")));
  EXPECT_THAT(observer.Acquire(Note(std::string(10'000, 'x'))),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("at most 8192 are allowed")));
  note = Note();
  note.step = -1;
  EXPECT_THAT(observer.Acquire(note),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("the note of a lease on step -1 was not written")));
  EXPECT_FALSE(std::filesystem::exists(PathOf(note)));
}

TEST_F(LeaseTest, RenewalsAreCountedInTheFile) {
  LeaseObserver observer = Observer();
  auto lease = observer.Acquire(Note());
  ASSERT_THAT(lease, IsOk());
  for (uint64_t renewals = 1; renewals < 12; ++renewals) {
    ASSERT_THAT((*lease)->Renew(), IsOk());
    auto note = DecodeLeaseNote(Contents(PathOf(Note())));
    ASSERT_THAT(note, IsOk());
    EXPECT_EQ(note->renewals, renewals);
  }
}

TEST_F(LeaseTest, IsFreeAtOnceWhenItsHolderIsKilled) {
  LeaseObserver observer = Observer();
  EXPECT_EQ(InChild([&]() -> std::string {
              auto lease = Observer().Acquire(Note());
              if (!lease.ok()) return lease.status().ToString();
              kill(getpid(), SIGKILL);
              return "alive";
            }),
            "killed by signal 9");
  EXPECT_TRUE(std::filesystem::exists(PathOf(Note())));
  {
    auto lease = observer.Acquire(Note("worker 2"));
    ASSERT_THAT(lease, IsOk());
    EXPECT_THAT(Holders(observer), ElementsAre("worker 2"));
  }
  LeaveNote(Note(), "here");  // as after another kill
  EXPECT_THAT(Holders(observer), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(PathOf(Note())));
}

TEST_F(LeaseTest, StaysWithTheParentWhenAForkedChildDestroysItsCopy) {
  LeaseObserver observer = Observer();
  auto lease = observer.Acquire(Note());
  ASSERT_THAT(lease, IsOk());
  EXPECT_EQ(InChild([&] {
              lease->reset();
              return "destroyed";
            }),
            "destroyed");
  EXPECT_THAT(Holders(observer), ElementsAre("worker 1"));
  EXPECT_THAT((*lease)->Renew(), IsOk());
}

TEST_F(LeaseTest, OfAnotherMachineLivesAsLongAsItsRenewalsMove) {
  LeaseObserver observer = Observer();
  for (uint64_t renewals = 0; renewals < 5; ++renewals) {
    LeaveNote(Note(), "elsewhere", renewals);
    EXPECT_THAT(Holders(observer), ElementsAre("worker 1"));
    now_ += absl::Seconds(59);
    EXPECT_THAT(Holders(observer), ElementsAre("worker 1"));
    EXPECT_THAT(observer.Acquire(Note("worker 2")), StatusIs(StatusCode::kUnavailable, HasSubstr("worker 1")));
  }
  now_ += absl::Seconds(1);
  EXPECT_THAT(Holders(observer), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(PathOf(Note())));
}

TEST_F(LeaseTest, OfAnotherMachineEndsByTheExpiryInItsNote) {
  LeaseNote brief = Note("brief", 1);
  brief.expiry = absl::Seconds(5);
  LeaseNote lasting = Note("lasting", 2);
  lasting.expiry = absl::Hours(1);
  LeaveNote(brief, "elsewhere");
  LeaveNote(lasting, "elsewhere");
  LeaseObserver observer = Observer();
  EXPECT_THAT(Holders(observer), testing::UnorderedElementsAre("brief", "lasting"));
  now_ += absl::Seconds(5);
  EXPECT_THAT(Holders(observer), ElementsAre("lasting"));
}

TEST_F(LeaseTest, OfAnotherMachineIsTakenOverOnceItStoodStill) {
  LeaveNote(Note(), "elsewhere");
  LeaseObserver observer = Observer();
  EXPECT_THAT(observer.Acquire(Note("worker 2")), StatusIs(StatusCode::kUnavailable, HasSubstr("worker 1")));
  now_ += absl::Seconds(60);
  auto lease = observer.Acquire(Note("worker 2"));
  ASSERT_THAT(lease, IsOk());
  EXPECT_THAT(Holders(observer), ElementsAre("worker 2"));
}

TEST_F(LeaseTest, OfAnotherMachineIsNotTakenForDeadBecauseAnEarlierOneWas) {
  LeaseObserver observer = Observer();
  LeaveNote(Note(), "elsewhere");
  EXPECT_THAT(Holders(observer), ElementsAre("worker 1"));
  now_ += absl::Seconds(59);
  LeaseNote next = Note();
  next.lease[0] = 1;  // released and taken again meanwhile, by the same holder
  LeaveNote(next, "elsewhere");
  now_ += absl::Seconds(2);
  EXPECT_THAT(Holders(observer), ElementsAre("worker 1"));
  std::filesystem::remove(PathOf(next));
  EXPECT_THAT(Holders(observer), IsEmpty());
  now_ += absl::Seconds(100);
  LeaveNote(next, "elsewhere");
  EXPECT_THAT(Holders(observer), ElementsAre("worker 1"));
}

TEST_F(LeaseTest, OfAnotherMachineLivesWhileItsLockIsSeenToBeHeld) {
  LeaseObserver there = Observer("elsewhere");
  auto lease = there.Acquire(Note());
  ASSERT_THAT(lease, IsOk());
  LeaseObserver here = Observer();
  EXPECT_THAT(Holders(here), ElementsAre("worker 1"));
  now_ += absl::Hours(1);
  EXPECT_THAT(Holders(here), ElementsAre("worker 1"));
  EXPECT_THAT(here.Acquire(Note("worker 2")), StatusIs(StatusCode::kUnavailable, HasSubstr("worker 1")));
  EXPECT_THAT((*lease)->Renew(), IsOk());
}

TEST_F(LeaseTest, IsKeptByAClockThatGoesBack) {
  LeaveNote(Note(), "elsewhere");
  LeaseObserver observer = Observer();
  EXPECT_THAT(Holders(observer), ElementsAre("worker 1"));
  now_ -= absl::Hours(1);
  EXPECT_THAT(Holders(observer), ElementsAre("worker 1"));
}

TEST_F(LeaseTest, WithoutANoteIsLeftAloneForSeconds) {
  Leave(Note(), "");
  LeaseObserver observer = Observer();
  EXPECT_THAT(Holders(observer), ElementsAre("?"));
  EXPECT_THAT(observer.Acquire(Note()), StatusIs(StatusCode::kUnavailable, HasSubstr("has not written its note yet")));
  now_ += absl::Seconds(10);
  EXPECT_THAT(Holders(observer), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(PathOf(Note())));
}

TEST_F(LeaseTest, WithoutANoteIsLeftAloneForSecondsThoughAnEarlierOneWasSeenWithoutOne) {
  LeaseObserver worker = Observer();
  Leave(Note(), "");
  EXPECT_THAT(worker.Acquire(Note()), StatusIs(StatusCode::kUnavailable, HasSubstr("has not written its note yet")));
  std::filesystem::remove(PathOf(Note()));
  EXPECT_THAT(worker.Acquire(Note()), IsOk());
  now_ += absl::Seconds(10);
  Leave(Note(), "");
  EXPECT_THAT(worker.Acquire(Note()), StatusIs(StatusCode::kUnavailable, HasSubstr("has not written its note yet")));
  LeaveNote(Note(), "here");
  EXPECT_THAT(worker.Acquire(Note()), IsOk());
  now_ += absl::Seconds(10);
  Leave(Note(), "");
  EXPECT_THAT(worker.Acquire(Note()), StatusIs(StatusCode::kUnavailable, HasSubstr("has not written its note yet")));

  LeaseObserver keeper = Observer();
  EXPECT_THAT(Holders(keeper), ElementsAre("?"));
  now_ += absl::Seconds(10);
  EXPECT_THAT(Holders(keeper), IsEmpty());
  Leave(Note(), "");
  EXPECT_THAT(Holders(keeper), ElementsAre("?"));
}

TEST_F(LeaseTest, IsForgottenByWhoHasNotLookedForDays) {
  LeaseObserver observer = Observer();
  LeaveNote(Note(), "elsewhere");
  LeaveNote(Note("worker 3", 8), "elsewhere");
  EXPECT_THAT(observer.Acquire(Note("x")), StatusIs(StatusCode::kUnavailable, HasSubstr("worker 1")));
  now_ += absl::Hours(49);
  EXPECT_THAT(observer.Acquire(Note("x", 8)), StatusIs(StatusCode::kUnavailable, HasSubstr("worker 3")));
  EXPECT_THAT(observer.Acquire(Note("x")), StatusIs(StatusCode::kUnavailable, HasSubstr("worker 1")));
  now_ += absl::Seconds(60);
  EXPECT_THAT(observer.Acquire(Note("x")), IsOk());
}

TEST_F(LeaseTest, WithAnUnreadableNoteIsLeftAloneForAnHour) {
  LeaseNote another = Note("x", 9);
  another.machine = "here";
  for (const std::string& contents : {std::string("{\"version\":1,"), EncodeLeaseNote(another)}) {
    Leave(Note(), contents);
    LeaseObserver observer = Observer();
    auto live = observer.Live();
    ASSERT_THAT(live, IsOk());
    ASSERT_EQ(live->size(), 1u);
    EXPECT_FALSE((*live)[0].readable);
    EXPECT_EQ((*live)[0].note.attempt, Note().attempt);
    EXPECT_THAT((*live)[0].problem, HasSubstr(PathOf(Note()) + ": "));
    EXPECT_THAT(observer.Acquire(Note()), StatusIs(StatusCode::kUnavailable, HasSubstr("it may be leased: ")));
    now_ += absl::Minutes(59);
    EXPECT_THAT(Holders(observer), ElementsAre("?"));
    now_ += absl::Minutes(1);
    EXPECT_THAT(Holders(observer), IsEmpty());
  }
}

TEST_F(LeaseTest, OfANewerVersionIsNeverTouched) {
  Leave(Note(), "{\"version\":2}");
  LeaseObserver observer = Observer();
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(Holders(observer), ElementsAre("?"));
    EXPECT_THAT(observer.Acquire(Note()), StatusIs(StatusCode::kUnavailable, HasSubstr("has version 2")));
    now_ += absl::Hours(1000);
  }
  EXPECT_EQ(Contents(PathOf(Note())), "{\"version\":2}");
}

TEST_F(LeaseTest, OnlyFilesThatAreNamedLikeLeasesCount) {
  std::filesystem::create_directories(PathOf(Note("", 1)));
  std::ofstream(layout_.leases() + "/README") << "?";
  LeaseObserver observer = Observer();
  EXPECT_THAT(Holders(observer), IsEmpty());
  EXPECT_TRUE(std::filesystem::exists(layout_.leases() + "/README"));
}

TEST_F(LeaseTest, RenewalFailsOnceItWasTakenForDead) {
  LeaseObserver observer = Observer();
  for (const bool taken : {false, true}) {
    auto lease = observer.Acquire(Note());
    ASSERT_THAT(lease, IsOk());
    // Another machine, which the lock does not reach.
    std::filesystem::remove(PathOf(Note()));
    if (taken) LeaveNote(Note("worker 9"), "elsewhere", 5);
    EXPECT_THAT((*lease)->Renew(), StatusIs(StatusCode::kAborted, HasSubstr("not renewed within its expiry of 1m")));
    lease->reset();
    EXPECT_EQ(std::filesystem::exists(PathOf(Note())), taken);  // never the other one's
  }
}

TEST_F(LeaseTest, RenewalThatFailsLeavesTheLeaseHeld) {
  LeaseObserver observer = Observer();
  auto lease = observer.Acquire(Note());
  ASSERT_THAT(lease, IsOk());
  for (const char* operation : {"ReadNote", "WriteNote"}) {
    files_.FailOperation(operation, absl::ResourceExhaustedError("no room"));
    EXPECT_THAT((*lease)->Renew(), StatusIs(StatusCode::kResourceExhausted, "no room"));
    files_.Reset();
    EXPECT_THAT((*lease)->Renew(), IsOk());
  }
  // A write that was cut short.
  files_.FailOperation("WriteNote", absl::ResourceExhaustedError("no room"));
  EXPECT_THAT((*lease)->Renew(), StatusIs(StatusCode::kResourceExhausted, "no room"));
  files_.Reset();
  Leave(Note(), "{\"version\":1,\"att");
  EXPECT_THAT((*lease)->Renew(), IsOk());
  EXPECT_THAT(Holders(observer), ElementsAre("worker 1"));
}

TEST_F(LeaseTest, IsNotThereAfterAnyFailureOfItsTaking) {
  LeaseObserver observer = Observer();
  for (size_t call = 0;; ++call) {
    files_.Reset();
    files_.FailCall(call, absl::InternalError("injected"));
    absl::Status status = observer.Acquire(Note()).status();
    const size_t calls = files_.calls().size();
    files_.Reset();
    if (call >= calls) {
      EXPECT_THAT(status, IsOk());
      break;
    }
    if (status.ok()) {  // it was released only half: a dead one, for the next look
      EXPECT_THAT(Holders(observer), IsEmpty()) << call;
      continue;
    }
    EXPECT_THAT(status, testing::AnyOf(StatusIs(StatusCode::kInternal, "injected"),
                                       StatusIs(StatusCode::kUnavailable, HasSubstr("injected"))));
    EXPECT_THAT(Holders(observer), IsEmpty()) << call;
    EXPECT_FALSE(std::filesystem::exists(PathOf(Note()))) << call;
  }
}

TEST_F(LeaseTest, CountsAsLiveWhereTheDiskDoesNotSay) {
  LeaveNote(Note(), "here");
  LeaseObserver observer = Observer();
  files_.FailOperation("ListDirectory", absl::InternalError("injected"));
  EXPECT_THAT(observer.Live(), StatusIs(StatusCode::kInternal, "injected"));
  files_.FailOperation("ReadNote", absl::InternalError("injected"));
  EXPECT_THAT(Holders(observer), ElementsAre("?"));
  files_.FailOperation("TryLock", absl::InternalError("injected"));
  EXPECT_THAT(Holders(observer), ElementsAre("worker 1"));
  files_.FailOperation("RemoveFile", absl::InternalError("injected"));
  EXPECT_THAT(Holders(observer), IsEmpty());
  files_.Reset();
  EXPECT_TRUE(std::filesystem::exists(PathOf(Note())));
  EXPECT_THAT(Holders(observer), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(PathOf(Note())));
}

// Who clears up after the dead takes the lock for a moment; who wants the lease meanwhile must get it all the same, and
// never find that it was removed.
TEST_F(LeaseTest, IsNeverLostToAnObserverOnTheSameMachine) {
  std::atomic<bool> stop = false;
  std::thread remover([&] {
    LeaseObserver observer(PosixFileSystem(), layout_, "here", [] { return absl::UnixEpoch(); });
    while (!stop) EXPECT_THAT(observer.Live(), IsOk());
  });
  LeaseObserver observer(PosixFileSystem(), layout_, "here", [] { return absl::UnixEpoch(); });
  int taken = 0;
  // The other thread may stand still with the lock in its hands.
  for (int i = 0; i < 100 || (taken == 0 && i < 1'000'000); ++i) {
    LeaveNote(Note("the dead"), "here");
    auto lease = observer.Acquire(Note());
    if (!lease.ok()) {
      ASSERT_EQ(lease.status().code(), StatusCode::kUnavailable) << lease.status();
      continue;
    }
    ++taken;
    ASSERT_THAT((*lease)->Renew(), IsOk()) << "round " << i;
  }
  stop = true;
  remover.join();
  EXPECT_GT(taken, 0);
}

}  // namespace
}  // namespace tidemark::storage
