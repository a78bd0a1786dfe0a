// A store: how it is made and opened, saves, kills, and what others do beside it. Deletions are in
// store_deletion_test.cc.

#include "storage/store/store.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/store/attempt_reader.h"
#include "storage/store/garbage.h"
#include "storage/store/lease.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/store/store_testing.h"

namespace tidemark::storage {
namespace {

namespace fs = std::filesystem;
using absl::StatusCode;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class StoreTest : public testing::Test {
 protected:
  std::unique_ptr<Store> Open() {
    auto store = OpenStore(directory_.path(), &warnings_);
    EXPECT_THAT(store, IsOk());
    return store.ok() ? *std::move(store) : nullptr;
  }

  std::vector<std::string> Folders() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(layout_.steps())) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  static std::string NameOf(const ShardIdentity& identity) { return StepFolderName(identity.step, identity.attempt); }

  TestDirectory directory_;
  const StoreLayout layout_{directory_.path()};
  std::vector<std::string> warnings_;
};

TEST_F(StoreTest, KeepsCommittedSteps) {
  {
    const auto store = Open();
    SaveStep(*store, 1, 100);
    SaveStep(*store, 2, 200);
    EXPECT_THAT(ReadValue(*store, 2), IsOkAndHolds(200));
  }
  const auto store = Open();
  EXPECT_THAT(ReadValue(*store, 1), IsOkAndHolds(100));
  EXPECT_THAT(ReadValue(*store, 2), IsOkAndHolds(200));
  EXPECT_EQ(*store->catalog().LatestCommitted(), 2);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(StoreTest, GivesEachAttemptAnIdOfItsEpoch) {
  {
    const auto store = Open();
    EXPECT_EQ(SaveStep(*store, 1, 1).attempt, MakeAttemptId(1, 1));
    EXPECT_EQ(SaveStep(*store, 1, 1).attempt, MakeAttemptId(1, 2));
  }
  const auto store = Open();
  const ShardIdentity identity = SaveStep(*store, 2, 2);
  EXPECT_EQ(identity.attempt, MakeAttemptId(2, 1));
  EXPECT_EQ(EpochOf(identity.attempt), 2u);
  EXPECT_EQ(identity.sequence, 3u);
}

TEST_F(StoreTest, IsHeldByOneProcessAtATime) {
  const auto store = Open();
  EXPECT_THAT(OpenStore(directory_.path(), &warnings_),
              StatusIs(StatusCode::kUnavailable, HasSubstr("is open for writing elsewhere")));
}

TEST_F(StoreTest, IsNotMadeWhereItIsOnlyToBeOpened) {
  EXPECT_THAT(Store::Open(PosixFileSystem(),
                          {.directory = directory_.path(), .warn = [](std::string_view) {}, .create = false}),
              StatusIs(StatusCode::kNotFound, HasSubstr("there is no store")));
  EXPECT_TRUE(fs::is_empty(directory_.path()));
}

TEST_F(StoreTest, IsMadeWithItsParentsForItsUserAlone) {
  const std::string path = directory_ / "a/b/store";
  StoreId id;
  {
    const auto store = OpenStore(path + "//", &warnings_);
    ASSERT_THAT(store, IsOk());
    id = (*store)->id();
    EXPECT_EQ((*store)->layout().directory(), path);
  }
  EXPECT_EQ((*OpenStore(path, &warnings_))->id(), id);
  EXPECT_EQ(fs::status(path).permissions() & fs::perms::others_all, fs::perms::none);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(StoreTest, IsRefusedWhereItMayNotBeWritten) {
  const std::string path = directory_ / "read-only";
  fs::create_directories(path);
  fs::permissions(directory_.path(), fs::perms::all);
  fs::permissions(path,
                  fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read | fs::perms::others_exec);
  EXPECT_THAT(InChild([&] {
                if (!GiveUpRights()) return std::string("may not give up its rights");
                return OpenStore(path, &warnings_).status().ToString();
              }),
              AllOf(HasSubstr("PERMISSION_DENIED"), HasSubstr(path)));
  EXPECT_TRUE(fs::is_empty(path));
}

// A trainer that starts while an operator pins a step.
class HeldStoreTest : public StoreTest {
 protected:
  HeldStoreTest() {
    Open();
    holder_ = *PosixFileSystem().TryLock(layout_.lock());
    files_.SetGate([this](const std::string& operation, const std::string& path) {
      if (operation == "TryLock" && path == layout_.lock()) on_try_(++tries_);
    });
  }
  absl::StatusOr<std::unique_ptr<Store>> OpenWaiting(bool awaits_inspect = true) {
    return Store::Open(
        files_, {.directory = directory_.path(), .warn = [](std::string_view) {}, .awaits_inspect = awaits_inspect});
  }
  static std::string NoteOf(const std::string& program) { return R"({"pid":1,"program":")" + program + "\"}\n"; }

  FailingFileSystem files_{PosixFileSystem()};
  std::unique_ptr<FileLock> holder_;
  std::function<void(int tries)> on_try_ = [](int) {};
  int tries_ = 0;
};

TEST_F(HeldStoreTest, AwaitsCheckpointInspectWhichReleasesItSoon) {
  ASSERT_THAT(holder_->WriteNote(NoteOf("checkpoint-inspect")), IsOk());
  on_try_ = [&](int tries) {
    if (tries == 4) holder_.reset();
  };
  EXPECT_THAT(OpenWaiting(), IsOk());
  EXPECT_EQ(tries_, 4);
}

TEST_F(HeldStoreTest, AwaitsNoOtherProgram) {
  ASSERT_THAT(holder_->WriteNote(NoteOf("train")), IsOk());
  EXPECT_THAT(OpenWaiting(),
              StatusIs(StatusCode::kUnavailable, AllOf(HasSubstr("open for writing elsewhere"), HasSubstr("train"))));
  EXPECT_EQ(tries_, 1);
}

TEST_F(HeldStoreTest, AwaitsTheNoteOfAHolderThatHasJustTakenIt) {
  on_try_ = [&](int tries) {
    if (tries == 3) holder_->WriteNote(NoteOf("train")).IgnoreError();
  };
  EXPECT_THAT(OpenWaiting(), StatusIs(StatusCode::kUnavailable, HasSubstr("train")));
  EXPECT_EQ(tries_, 3);
}

TEST_F(HeldStoreTest, AwaitsNoProcessUnlessItIsTold) {
  ASSERT_THAT(holder_->WriteNote(NoteOf("checkpoint-inspect")), IsOk());
  EXPECT_THAT(OpenWaiting(/*awaits_inspect=*/false),
              StatusIs(StatusCode::kUnavailable, HasSubstr("checkpoint-inspect")));
  EXPECT_EQ(tries_, 1);
}

TEST_F(StoreTest, SweepsWhatAKilledProcessHasNotCommitted) {
  ShardIdentity committed;
  {
    const auto store = Open();
    committed = SaveStep(*store, 1, 100);
    ASSERT_THAT(TryAttempt(*store, 2, 200), IsOk());  // whole, and not committed
    ASSERT_THAT(store->BeginAttempt(3), IsOk());      // empty
  }
  fs::create_directory(layout_.steps() + "/somebody-elses");
  const auto store = Open();
  const ShardIdentity own = *TryAttempt(*store, 4, 400);
  EXPECT_THAT(Folders(), SizeIs(5));
  EXPECT_THAT(warnings_, IsEmpty());
  ASSERT_THAT(store->SweepUncommitted(), IsOk());
  EXPECT_THAT(Folders(), ElementsAre(NameOf(committed), NameOf(own), "somebody-elses"));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("somebody-elses is not an attempt"),
                                     HasSubstr("unfinished save of step 2"), HasSubstr("unfinished save of step 3")));
  EXPECT_THAT(TryCommit(*store, own), IsOk());
  EXPECT_FALSE(store->catalog().Find(2)->has_value());
}

TEST_F(StoreTest, SweepsNoAttemptThatIsRead) {
  ShardIdentity leased, in_use;
  {
    const auto store = Open();
    leased = *TryAttempt(*store, 1, 1);
    in_use = *TryAttempt(*store, 2, 2);
    ASSERT_THAT(TryAttempt(*store, 3, 3), IsOk());
  }
  const auto store = Open();
  LeaseObserver leases(PosixFileSystem(), layout_, ThisMachine(), MonotonicNow);
  auto lease = leases.Acquire(
      {.step = 1, .attempt = leased.attempt, .evaluator = "e", .holder = "h", .expiry = absl::Minutes(1)});
  ASSERT_THAT(lease, IsOk());
  ASSERT_THAT(store->SweepUncommitted({in_use.attempt}), IsOk());
  EXPECT_THAT(Folders(), ElementsAre(NameOf(leased), NameOf(in_use)));
  lease->reset();
  ASSERT_THAT(store->SweepUncommitted(), IsOk());
  EXPECT_THAT(Folders(), IsEmpty());
}

TEST_F(StoreTest, SweepsNoAttemptOfAnotherStoreOrOfANewerVersion) {
  const TestDirectory elsewhere;
  ShardIdentity foreign, newer;
  {
    const auto other = OpenStore(elsewhere.path(), &warnings_);
    ASSERT_THAT(other, IsOk());
    foreign = SaveStep(**other, 8, 8);
    const auto store = Open();
    newer = *TryAttempt(*store, 9, 9);
    fs::copy((*other)->layout().attempt(8, foreign.attempt), layout_.attempt(8, foreign.attempt),
             fs::copy_options::recursive);
  }
  constexpr std::streamoff kVersionOffset = 8;  // of the header
  std::fstream shard(layout_.shard(9, newer.attempt, 0, 1), std::ios::in | std::ios::out | std::ios::binary);
  shard.seekp(kVersionOffset);
  shard.put('\x7f');
  shard.close();
  const auto store = Open();
  ASSERT_THAT(store->SweepUncommitted(), IsOk());
  EXPECT_THAT(Folders(), ElementsAre(NameOf(foreign), NameOf(newer)));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("belongs to store"), HasSubstr("written by a newer version")));
  EXPECT_FALSE(store->catalog().Find(8)->has_value());
}

TEST_F(StoreTest, SweepsNoBaseOfAStep) {
  ShardIdentity base, last;
  {
    const auto store = Open();
    base = *TryAttempt(*store, 1, 1);
    last = *TryAttempt(*store, 2, 2);
    auto attempt = ReadAttempt(PosixFileSystem(), layout_, store->id(), {2, last.attempt});
    ASSERT_THAT(attempt, IsOk());
    attempt->record.references.push_back({.step = 1, .attempt = base.attempt, .world_size = 1});
    ASSERT_THAT(store->CommitAttempt(attempt->record), IsOk());
  }
  const auto store = Open();
  ASSERT_THAT(store->SweepUncommitted(), IsOk());
  EXPECT_THAT(Folders(), ElementsAre(NameOf(base), NameOf(last)));
}

TEST_F(StoreTest, RemovesTheFilesOfACommitThatHasFailed) {
  FailingFileSystem files(PosixFileSystem());
  auto store = OpenStore(directory_.path(), &warnings_, files);
  ASSERT_THAT(store, IsOk());
  const ShardIdentity failed = *TryAttempt(**store, 1, 1, files);
  auto attempt = ReadAttempt(files, layout_, (*store)->id(), {1, failed.attempt});
  ASSERT_THAT(attempt, IsOk());
  files.FailOperation("SyncDirectory", absl::InternalError("EIO"));
  EXPECT_THAT((*store)->CommitAttempt(attempt->record), StatusIs(StatusCode::kInternal, HasSubstr("EIO")));
  files.Reset();
  EXPECT_FALSE(fs::exists(layout_.attempt(1, failed.attempt)));
  // Where they cannot be removed at once, they go with the next commit.
  const ShardIdentity stuck = *TryAttempt(**store, 1, 1, files);
  attempt = ReadAttempt(files, layout_, (*store)->id(), {1, stuck.attempt});
  ASSERT_THAT(attempt, IsOk());
  files.SetRule([](const FailingFileSystem::Call& call) {
    const bool fails = call.operation == "SyncDirectory" || call.operation == "RemoveFile";
    return fails ? absl::InternalError("EIO") : absl::OkStatus();
  });
  EXPECT_THAT((*store)->CommitAttempt(attempt->record), StatusIs(StatusCode::kInternal, HasSubstr("EIO")));
  files.Reset();
  EXPECT_TRUE(fs::exists(layout_.attempt(1, stuck.attempt)));
  const ShardIdentity next = SaveStep(**store, 2, 2, files);
  EXPECT_THAT(Folders(), ElementsAre(NameOf(next)));
}

// The commit ends in kUnknown.
TEST_F(StoreTest, KeepsTheFilesOfACommitThatMayHaveHappened) {
  FailingFileSystem files(PosixFileSystem());
  auto store = OpenStore(directory_.path(), &warnings_, files);
  ASSERT_THAT(store, IsOk());
  const ShardIdentity unknown = *TryAttempt(**store, 1, 100, files);
  files.SetRule([this](const FailingFileSystem::Call& call) {
    const bool names = call.operation == "SyncDirectory" && call.path.starts_with(layout_.journal());
    return names ? absl::InternalError("EIO") : absl::OkStatus();
  });
  EXPECT_THAT(TryCommit(**store, unknown, files), StatusIs(StatusCode::kUnknown, HasSubstr("EIO")));
  files.Reset();
  SaveStep(**store, 2, 200, files);
  const bool committed = (*store)->catalog().Find(1)->has_value();
  EXPECT_EQ(fs::exists(layout_.attempt(1, unknown.attempt)), committed);
  if (committed) {
    EXPECT_THAT(ReadValue(**store, 1, files), IsOkAndHolds(100));
  }
}

TEST_F(StoreTest, AbandonsAnAttemptAndSaysWhy) {
  const auto store = Open();
  const ShardIdentity identity = *TryAttempt(*store, 5, 5);
  store->AbandonAttempt(identity, absl::FromUnixSeconds(1000), absl::ResourceExhaustedError("no room")).IgnoreError();
  EXPECT_THAT(Folders(), IsEmpty());
  const StepInfo info = store->catalog().Find(5)->value().info;
  EXPECT_EQ(info.state, StepState::kFailed);
  EXPECT_THAT(info.reason, HasSubstr("no room"));
  SaveStep(*store, 5, 55);
  EXPECT_THAT(ReadValue(*store, 5), IsOkAndHolds(55));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(StoreTest, MarksNoAttemptThatWasReplacedMeanwhile) {
  const auto store = Open();
  std::vector<StepRecord> records;
  for (int i = 0; i < 40; ++i) {
    const ShardIdentity identity = *TryAttempt(*store, 5, i);
    auto attempt = ReadAttempt(PosixFileSystem(), layout_, store->id(), {5, identity.attempt});
    ASSERT_THAT(attempt, IsOk());
    records.push_back(attempt->record);
  }
  std::atomic<bool> done = false;
  std::thread marker([&] {
    while (!done) {
      const auto record = store->catalog().Find(5);
      if (!record.ok() || !record->has_value()) continue;
      store->MarkStep(5, (*record)->info.attempt, StepState::kDamaged, "x").IgnoreError();
    }
  });
  for (const StepRecord& record : records) {
    EXPECT_THAT(store->CommitAttempt(record), IsOk());
    EXPECT_EQ((*store->catalog().Find(5))->info.attempt, record.info.attempt);
  }
  done = true;
  marker.join();
}

TEST_F(StoreTest, HearsOfReportsAndPinsOfOthers) {
  const auto store = Open();
  const ShardIdentity saved = SaveStep(*store, 1, 1);
  auto worker = StoreJournal::Open(PosixFileSystem(), layout_, store->id(), {.warn = [](std::string_view) {}});
  ASSERT_THAT(worker, IsOk());
  EvaluationFact report{.step = 1, .attempt = ToHex(saved.attempt.bytes)};
  report.evaluation.evaluator = "validation";
  report.evaluation.metrics = {{"loss", 0.25}};
  std::vector<ReportOutcome> outcomes;
  ASSERT_THAT((*worker)->Change([&](const StepCatalog& catalog) {
    return ReportFacts(catalog, {&report, 1}, outcomes);
  }),
              IsOk());
  const auto news = store->Look();
  ASSERT_THAT(news, IsOk());
  ASSERT_THAT(*news, SizeIs(1));
  EXPECT_EQ(std::get<EvaluationFact>((*news)[0]).evaluation.evaluator, "validation");
  EXPECT_EQ(store->catalog().FindBest("validation/loss", BestMode::kLowest)->value().info.step, 1);
}

TEST_F(StoreTest, RecordsReportsOfSeveralEvaluatorsInOneEntry) {
  const auto store = Open();
  const ShardIdentity saved = SaveStep(*store, 1, 1);
  std::vector<EvaluationFact> reports(2, {.step = 1, .attempt = ToHex(saved.attempt.bytes)});
  reports[0].evaluation.evaluator = "a";
  reports[1].evaluation.evaluator = "b";
  const auto outcomes = store->RecordReports(reports);
  ASSERT_THAT(outcomes, IsOk());
  EXPECT_TRUE((*outcomes)[0].is_news && (*outcomes)[1].is_news);
  EXPECT_THAT(store->catalog().Find(1)->value().info.evaluations, SizeIs(2));
}

TEST_F(StoreTest, AnswersARequest) {
  const auto store = Open();
  const ShardIdentity saved = SaveStep(*store, 1, 1);
  auto tool = StoreJournal::Open(PosixFileSystem(), layout_, store->id(), {.warn = [](std::string_view) {}});
  ASSERT_THAT(tool, IsOk());
  const DeletionRequestFact request{
      .id = ToHex(RandomBytes16()), .step = 1, .attempt = ToHex(saved.attempt.bytes), .reason = "by hand"};
  ASSERT_THAT((*tool)->Change([&](const StepCatalog& catalog) { return DeletionRequestFacts(catalog, request); }),
              IsOk());
  ASSERT_THAT(store->Look(), IsOk());
  ASSERT_THAT(*store->catalog().Requests(), SizeIs(1));
  ASSERT_THAT(store->Answer(std::vector{AnswerFact{.id = request.id, .refused = "it is the latest step"}}), IsOk());
  EXPECT_THAT(*store->catalog().Requests(), IsEmpty());
  ASSERT_THAT((*tool)->Look(), IsOk());
  EXPECT_THAT(*(*tool)->catalog().Requests(), IsEmpty());
}

TEST_F(StoreTest, AnswersManyRequestsInFewEntries) {
  const auto store = Open();
  const std::string attempt = ToHex(SaveStep(*store, 1, 1).attempt.bytes);
  Facts requests;
  std::vector<AnswerFact> answers;
  for (int i = 0; i < 256; ++i) {
    answers.push_back({.id = ToHex(RandomBytes16())});
    requests.push_back(DeletionRequestFact{.id = answers.back().id, .step = 1, .attempt = attempt});
  }
  const auto open = [&] { return StoreJournal::Open(PosixFileSystem(), layout_, store->id(), {.warn = [](auto) {}}); };
  ASSERT_THAT((*open())->Change([&](const StepCatalog&) -> absl::StatusOr<Facts> { return requests; }), IsOk());
  ASSERT_THAT(store->Look(), IsOk());
  ASSERT_THAT(*store->catalog().Requests(), SizeIs(256));
  const auto last_entry = [&] {
    auto journal = Journal::Open(PosixFileSystem(), layout_.journal(), JournalPlace());
    EXPECT_THAT((*journal)->Look([](const KnownEntry&, bool) {}), IsOk());
    return (*journal)->last().number;
  };
  const EntryNumber before = last_entry();
  size_t answered = 0;
  ASSERT_THAT(store->Answer(answers, &answered), IsOk());
  EXPECT_EQ(answered, 256u);
  EXPECT_THAT(*store->catalog().Requests(), IsEmpty());
  EXPECT_EQ(last_entry(), before + 2) << "of 3 KiB at most each";
}

TEST_F(StoreTest, AppendsNotedPhasesWithTheNextChange) {
  const auto store = Open();
  const ShardIdentity saved = SaveStep(*store, 1, 1);
  const std::string attempt = ToHex(saved.attempt.bytes);
  store->NotePhases({.step = 1, .attempt = attempt, .phases = {{.name = "commit", .lane = "persister"}}});
  EXPECT_THAT(*store->catalog().Phases(1, attempt), IsEmpty());
  ASSERT_THAT(store->Pin(1, "next"), IsOk());
  EXPECT_THAT(*store->catalog().Phases(1, attempt), SizeIs(1));
}

TEST_F(StoreTest, RefusesChangesWhereItWasMoved) {
  const auto store = Open();
  const ShardIdentity identity = *TryAttempt(*store, 1, 1);
  const std::string moved = directory_.path() + "-moved";
  fs::rename(directory_.path(), moved);
  EXPECT_THAT(store->BeginAttempt(2), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("was moved or replaced")));
  EXPECT_THAT(store->Pin(1, ""), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("was moved or replaced")));
  EXPECT_THAT(store->AddBestModes({{"a", BestMode::kLowest}}),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("was moved or replaced")));
  EXPECT_THAT(store->Look(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("was moved or replaced")));
  EXPECT_THAT(store->RemoveDeleted({}), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("was moved or replaced")));
  fs::rename(moved, directory_.path());
  EXPECT_THAT(TryCommit(*store, identity), IsOk());
}

TEST_F(StoreTest, SaysWhoHasTheStoreWhenItIsFenced) {
  const auto store = Open();
  SaveStep(*store, 1, 1);
  // As where the lock does not reach: the other process has an index of its own.
  fs::rename(layout_.index(), layout_.directory() + "/index-of-the-older");
  auto newer =
      StoreJournal::Open(PosixFileSystem(), layout_, store->id(), {.holder = true, .warn = [](std::string_view) {}});
  ASSERT_THAT(newer, IsOk());
  EXPECT_THAT(TrySave(*store, 2, 2),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("another process has opened the store")));
  // Nor does it remove what the other process may need.
  for (const absl::Status& refused : {store->SweepUncommitted(), store->RemoveDeleted({}).status()}) {
    EXPECT_THAT(refused, StatusIs(StatusCode::kFailedPrecondition, HasSubstr("another process has opened the store")));
  }
}

}  // namespace
}  // namespace tidemark::storage
