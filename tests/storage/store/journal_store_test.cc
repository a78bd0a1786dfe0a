// A store on a journal: saves, kills, deletions, and what others do beside it.

#include "storage/store/journal_store.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/manifest/attempt_reader.h"
#include "storage/manifest/lease.h"
#include "storage/store/garbage.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/store/journal_store_testing.h"

namespace tidemark::storage {
namespace {

namespace fs = std::filesystem;
using absl::StatusCode;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class JournalStoreTest : public testing::Test {
 protected:
  std::unique_ptr<JournalStore> Open() {
    auto store = OpenJournalStore(directory_.path(), &warnings_);
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

  static StepNote Deletion(const ShardIdentity& identity) {
    return {.step = identity.step, .attempt = ToHex(identity.attempt.bytes), .deleted = true, .reason = "test"};
  }

  TestDirectory directory_;
  const StoreLayout layout_{directory_.path()};
  std::vector<std::string> warnings_;
};

TEST_F(JournalStoreTest, KeepsCommittedSteps) {
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

TEST_F(JournalStoreTest, GivesEachAttemptAnIdOfItsEpoch) {
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

TEST_F(JournalStoreTest, IsHeldByOneProcessAtATime) {
  const auto store = Open();
  EXPECT_THAT(OpenJournalStore(directory_.path(), &warnings_),
              StatusIs(StatusCode::kUnavailable, HasSubstr("is open for writing elsewhere")));
}

TEST_F(JournalStoreTest, IsNotMadeWhereItIsOnlyToBeOpened) {
  EXPECT_THAT(JournalStore::Open(PosixFileSystem(),
                                 {.directory = directory_.path(), .warn = [](std::string_view) {}, .create = false}),
              StatusIs(StatusCode::kNotFound, HasSubstr("there is no store")));
  EXPECT_TRUE(fs::is_empty(directory_.path()));
}

TEST_F(JournalStoreTest, SweepsWhatAKilledProcessHasNotCommitted) {
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

TEST_F(JournalStoreTest, RemovesWhatWasReplaced) {
  const auto store = Open();
  SaveStep(*store, 1, 100);
  const ShardIdentity again = SaveStep(*store, 1, 101);
  EXPECT_THAT(Folders(), SizeIs(2));
  EXPECT_THAT(store->RemoveDeleted({}), IsOkAndHolds(false));
  EXPECT_THAT(Folders(), ElementsAre(NameOf(again)));
  EXPECT_THAT(ReadValue(*store, 1), IsOkAndHolds(101));
}

TEST_F(JournalStoreTest, RemovesDeletedStepsAFewAtATime) {
  const auto store = Open();
  std::vector<StepNote> notes;
  for (const int64_t step : {1, 2, 3}) notes.push_back(Deletion(SaveStep(*store, step, step)));
  const ShardIdentity last = SaveStep(*store, 4, 4);
  const auto noted = store->NoteSteps(notes);
  ASSERT_THAT(noted, IsOk());
  EXPECT_THAT(noted->deleted, ElementsAre(1, 2, 3));
  EXPECT_THAT(store->RemoveDeleted({}, 2), IsOkAndHolds(true));
  EXPECT_THAT(Folders(), SizeIs(2));
  EXPECT_THAT(store->RemoveDeleted({}, 2), IsOkAndHolds(false));
  EXPECT_THAT(Folders(), ElementsAre(NameOf(last)));
  EXPECT_EQ(store->catalog().Find(1)->value().info.state, StepState::kDeleted);
}

TEST_F(JournalStoreTest, FinishesADeletionThatAKillCutShort) {
  {
    const auto store = Open();
    const ShardIdentity first = SaveStep(*store, 1, 1);
    SaveStep(*store, 2, 2);
    ASSERT_THAT(store->NoteSteps({Deletion(first)}), IsOk());
  }
  const auto store = Open();
  EXPECT_THAT(Folders(), SizeIs(2));
  ASSERT_THAT(store->SweepUncommitted(), IsOk());
  EXPECT_THAT(Folders(), SizeIs(2));  // a reader may still have it: that is RemoveDeleted's to find out
  ASSERT_THAT(store->RemoveDeleted({}), IsOk());
  EXPECT_THAT(Folders(), SizeIs(1));
}

TEST_F(JournalStoreTest, KeepsTheFilesOfDeletedStepsThatAreRead) {
  const auto store = Open();
  const ShardIdentity first = SaveStep(*store, 1, 1);
  const ShardIdentity second = SaveStep(*store, 2, 2);
  SaveStep(*store, 3, 3);
  ASSERT_THAT(store->NoteSteps({Deletion(first), Deletion(second)}), IsOk());
  LeaseObserver leases(PosixFileSystem(), layout_, ThisMachine(), MonotonicNow);
  auto lease = leases.Acquire(
      {.step = 1, .attempt = first.attempt, .evaluator = "e", .holder = "h", .expiry = absl::Minutes(1)});
  ASSERT_THAT(lease, IsOk());
  ASSERT_THAT(store->RemoveDeleted({second.attempt}), IsOk());
  EXPECT_THAT(Folders(), SizeIs(3));
  lease->reset();
  ASSERT_THAT(store->RemoveDeleted({}), IsOk());
  EXPECT_THAT(Folders(), SizeIs(1));
}

TEST_F(JournalStoreTest, SweepsNoAttemptThatIsRead) {
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

TEST_F(JournalStoreTest, SweepsNoBaseOfAStep) {
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

// A disk that has no room but for what the journal has set aside.
absl::Status RefuseNewFiles(const FailingFileSystem::Call& call) {
  const bool makes = (call.operation == "Create" || call.operation == "CreateDirectory") && !fs::exists(call.path);
  for (const std::string_view folder : {"/steps/", "/journal/", "/index"}) {
    if (makes && call.path.find(folder) != std::string::npos) return absl::ResourceExhaustedError("no room");
  }
  return absl::OkStatus();
}

TEST_F(JournalStoreTest, DeletesStepsOnAFullDisk) {
  FailingFileSystem files(PosixFileSystem());
  auto store = OpenJournalStore(directory_.path(), &warnings_, files);
  ASSERT_THAT(store, IsOk());
  std::vector<ShardIdentity> saved;
  for (const int64_t step : {1, 2, 3, 4, 5, 6}) {
    saved.push_back(SaveStep(**store, step, step, files));
    ASSERT_THAT((*store)->Maintain(), IsOk());
  }
  files.SetRule(RefuseNewFiles);
  EXPECT_THAT(TrySave(**store, 7, 7, files), StatusIs(StatusCode::kResourceExhausted, HasSubstr("no room")));
  // What frees no room may not take the last of what is set aside.
  absl::Status pinned;
  for (int i = 0; i < 40 && pinned.ok(); ++i) pinned = (*store)->Pin(1, fmt::format("pin {}", i));
  EXPECT_THAT(pinned, StatusIs(StatusCode::kResourceExhausted, testing::_));
  EXPECT_THAT((*store)->NoteSteps({Deletion(saved[1]), Deletion(saved[2])}), IsOk());
  EXPECT_THAT((*store)->RemoveDeleted({}), IsOkAndHolds(false));
  EXPECT_FALSE(fs::exists(layout_.attempt(2, saved[1].attempt)));
  // The next process can open it, too, and delete more.
  store->reset();
  store = OpenJournalStore(directory_.path(), &warnings_, files);
  ASSERT_THAT(store, IsOk());
  EXPECT_THAT((*store)->NoteSteps({Deletion(saved[3])}), IsOk());
  files.Reset();
  EXPECT_THAT(TrySave(**store, 7, 7, files), IsOk());
}

TEST_F(JournalStoreTest, RemovesTheFilesOfACommitThatFailedWithTheNextOne) {
  FailingFileSystem files(PosixFileSystem());
  auto store = OpenJournalStore(directory_.path(), &warnings_, files);
  ASSERT_THAT(store, IsOk());
  const ShardIdentity failed = *TryAttempt(**store, 1, 1, files);
  auto attempt = ReadAttempt(files, layout_, (*store)->id(), {1, failed.attempt});
  ASSERT_THAT(attempt, IsOk());
  files.FailOperation("SyncDirectory", absl::InternalError("EIO"));
  EXPECT_THAT((*store)->CommitAttempt(attempt->record), StatusIs(StatusCode::kInternal, HasSubstr("EIO")));
  files.Reset();
  EXPECT_TRUE(fs::exists(layout_.attempt(1, failed.attempt)));
  const ShardIdentity next = SaveStep(**store, 2, 2, files);
  EXPECT_THAT(Folders(), ElementsAre(NameOf(next)));
}

TEST_F(JournalStoreTest, AbandonsAnAttemptAndSaysWhy) {
  const auto store = Open();
  const ShardIdentity identity = *TryAttempt(*store, 5, 5);
  store->AbandonAttempt(identity, absl::FromUnixSeconds(1000), absl::ResourceExhaustedError("no room"));
  EXPECT_THAT(Folders(), IsEmpty());
  const StepInfo info = store->catalog().Find(5)->value().info;
  EXPECT_EQ(info.state, StepState::kFailed);
  EXPECT_THAT(info.reason, HasSubstr("no room"));
  SaveStep(*store, 5, 55);
  EXPECT_THAT(ReadValue(*store, 5), IsOkAndHolds(55));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(JournalStoreTest, HearsOfReportsAndPinsOfOthers) {
  const auto store = Open();
  const ShardIdentity saved = SaveStep(*store, 1, 1);
  auto worker = StoreJournal::Open(PosixFileSystem(), layout_, store->id(), {.warn = [](std::string_view) {}});
  ASSERT_THAT(worker, IsOk());
  MetricReport report{.store = store->id(), .step = 1, .attempt = saved.attempt};
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

TEST_F(JournalStoreTest, RecordsReportsOfSeveralEvaluatorsInOneEntry) {
  const auto store = Open();
  const ShardIdentity saved = SaveStep(*store, 1, 1);
  std::vector<MetricReport> reports(2, {.store = store->id(), .step = 1, .attempt = saved.attempt});
  reports[0].evaluation.evaluator = "a";
  reports[1].evaluation.evaluator = "b";
  const auto outcomes = store->RecordReports(reports);
  ASSERT_THAT(outcomes, IsOk());
  EXPECT_TRUE((*outcomes)[0].is_news && (*outcomes)[1].is_news);
  EXPECT_THAT(store->catalog().Find(1)->value().info.evaluations, SizeIs(2));
}

TEST_F(JournalStoreTest, AnswersARequest) {
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
  ASSERT_THAT(store->Answer(request.id, "it is the latest step"), IsOk());
  EXPECT_THAT(*store->catalog().Requests(), IsEmpty());
  ASSERT_THAT((*tool)->Look(), IsOk());
  EXPECT_THAT(*(*tool)->catalog().Requests(), IsEmpty());
}

TEST_F(JournalStoreTest, AppendsNotedPhasesWithTheNextChange) {
  const auto store = Open();
  const ShardIdentity saved = SaveStep(*store, 1, 1);
  const std::string attempt = ToHex(saved.attempt.bytes);
  store->NotePhases({.step = 1, .attempt = attempt, .phases = {{.name = "commit", .lane = "persister"}}});
  EXPECT_THAT(*store->catalog().Phases(1, attempt), IsEmpty());
  ASSERT_THAT(store->Pin(1, "next"), IsOk());
  EXPECT_THAT(*store->catalog().Phases(1, attempt), SizeIs(1));
}

TEST_F(JournalStoreTest, RefusesChangesWhereItWasMoved) {
  const auto store = Open();
  const ShardIdentity identity = *TryAttempt(*store, 1, 1);
  const std::string moved = directory_.path() + "-moved";
  fs::rename(directory_.path(), moved);
  EXPECT_THAT(store->BeginAttempt(2), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("was moved or replaced")));
  EXPECT_THAT(store->Pin(1, ""), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("was moved or replaced")));
  EXPECT_THAT(store->Look(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("was moved or replaced")));
  EXPECT_THAT(store->RemoveDeleted({}), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("was moved or replaced")));
  fs::rename(moved, directory_.path());
  EXPECT_THAT(TryCommit(*store, identity), IsOk());
}

TEST_F(JournalStoreTest, SaysWhoHasTheStoreWhenItIsFenced) {
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
