#include "storage/index/manifest.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rocksdb/write_batch.h"
#include "storage/index/database.h"
#include "storage/io/errno_status.h"
#include "tests/storage/index/index_threads.h"
#include "tests/storage/index/made_records.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/records/step_record_json.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ManifestTest : public testing::Test {
 protected:
  std::unique_ptr<Manifest> Create() {
    auto manifest = Manifest::Create(PosixFileSystem(), path_, store_);
    EXPECT_THAT(manifest, IsOk());
    return manifest.ok() ? *std::move(manifest) : nullptr;
  }
  std::unique_ptr<Manifest> Open() {
    auto manifest = Manifest::Open(PosixFileSystem(), path_);
    EXPECT_THAT(manifest, IsOk());
    return manifest.ok() ? *std::move(manifest) : nullptr;
  }
  // Behind the back of a manifest.
  void Put(std::string_view key, const std::string& value) {
    auto database = Database::Open(PosixFileSystem(), path_);
    ASSERT_THAT(database, IsOk());
    rocksdb::WriteBatch batch;
    batch.Put(rocksdb::Slice(key.data(), key.size()), value);
    ASSERT_THAT((*database)->Write(batch), IsOk());
  }

  TestDirectory directory_;
  const std::string path_ = directory_ / "index";
  const StoreId store_{{7}};
};

TEST_F(ManifestTest, KeepsWhatWasApplied) {
  {
    const auto manifest = Create();
    EXPECT_EQ(manifest->last_sequence(), 0u);
    EXPECT_EQ(*manifest->Applied(), std::nullopt);
    ASSERT_THAT(ApplyRecord(*manifest, MakeRecord(10, 1, 7)), IsOk());
    ASSERT_THAT(manifest->Apply({.number = 9, .digest = Digest128{{3}}, .epoch = 4},
                                std::vector<Fact>{StepFact{MakeRecord(20, 2, 2)}}),
                IsOk());
  }
  const auto manifest = Open();
  EXPECT_EQ(manifest->store_id(), store_);
  EXPECT_EQ(manifest->last_sequence(), 7u) << "it never goes back";
  EXPECT_EQ((*manifest->Find(10))->info.sequence, 7u);
  EXPECT_EQ((*manifest->Find(20))->info.sequence, 2u);
  EXPECT_FALSE(manifest->Find(15)->has_value());
  EXPECT_EQ(**manifest->Applied(), (JournalPlace{.number = 9, .digest = Digest128{{3}}, .epoch = 4}));
}

TEST_F(ManifestTest, AppliesAllFactsOrNone) {
  const auto manifest = Create();
  StepRecord unreadable = MakeRecord(10, 1, 1);
  unreadable.info.attempt = "no id";
  EXPECT_THAT(ApplyFacts(*manifest, {StepFact{MakeRecord(9, 2, 2)}, StepFact{unreadable}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("the record of step 10: step fact was not written")));
  for (const int64_t step : {9, 10}) EXPECT_FALSE(manifest->Find(step)->has_value()) << step;
  EXPECT_EQ(manifest->last_sequence(), 0u);
  EXPECT_EQ(*manifest->Applied(), std::nullopt);
  EXPECT_THAT(manifest->failure(), IsOk());
}

TEST_F(ManifestTest, FindsTheHighestStepAtOrBelow) {
  const auto manifest = Create();
  EXPECT_FALSE(manifest->FindAtOrBelow(100)->has_value());
  for (const int64_t step : {300, 5, 70000}) ASSERT_THAT(ApplyRecord(*manifest, MakeRecord(step, 1)), IsOk());
  EXPECT_EQ((*manifest->FindAtOrBelow(INT64_MAX))->info.step, 70000);
  EXPECT_EQ((*manifest->FindAtOrBelow(69999))->info.step, 300);
  EXPECT_EQ((*manifest->FindAtOrBelow(5))->info.step, 5);
  EXPECT_FALSE(manifest->FindAtOrBelow(4)->has_value());
}

TEST_F(ManifestTest, FindsTheHighestCommittedStepBelowOthers) {
  const auto manifest = Create();
  EXPECT_FALSE(manifest->FindCommittedAtOrBelow(INT64_MAX)->has_value());
  for (const int64_t step : {2, 4}) ASSERT_THAT(ApplyRecord(*manifest, MakeRecord(step, 1)), IsOk());
  int64_t step = 5;
  for (const StepState state : {StepState::kDamaged, StepState::kLost, StepState::kDeleted}) {
    const StepRecord record = MakeRecord(step++, 1);
    ASSERT_THAT(ApplyRecord(*manifest, record), IsOk());
    ASSERT_THAT(ApplyState(*manifest, record, state), IsOk());
  }
  for (const StepState state : {StepState::kFailed, StepState::kUnsaved}) {
    ASSERT_THAT(ApplyRecord(*manifest, {.info = {.step = step++, .state = state}}), IsOk());
  }
  EXPECT_EQ((*manifest->FindCommittedAtOrBelow(INT64_MAX))->info.step, 4);
  EXPECT_EQ((*manifest->FindCommittedAtOrBelow(3))->info.step, 2);
  EXPECT_FALSE(manifest->FindCommittedAtOrBelow(1)->has_value());
}

TEST_F(ManifestTest, VisitsStepsInOrderUntilToldToStop) {
  const auto manifest = Create();
  for (const int64_t step : {300, 5, 70000}) ASSERT_THAT(ApplyRecord(*manifest, MakeRecord(step, 1)), IsOk());
  std::vector<int64_t> seen;
  ASSERT_THAT(manifest->ForEach([&](const StepRecord& record) {
    seen.push_back(record.info.step);
    return seen.size() < 2;
  }),
              IsOk());
  EXPECT_THAT(seen, ElementsAre(5, 300));
}

TEST_F(ManifestTest, KnowsReplacedAndDeletedAttemptsUntilTheirFilesAreGone) {
  const auto manifest = Create();
  ASSERT_THAT(ApplyRecord(*manifest, {.info = {.step = 10, .state = StepState::kFailed}}), IsOk());
  ASSERT_THAT(ApplyRecord(*manifest, MakeRecord(10, 1)), IsOk());
  EXPECT_THAT(*manifest->Deletions(), IsEmpty()) << "a failed save has none";
  ASSERT_THAT(ApplyRecord(*manifest, MakeRecord(10, 2)), IsOk());
  ASSERT_THAT(ApplyState(*manifest, MakeRecord(10, 2), StepState::kDeleted), IsOk());
  const auto deletions = manifest->Deletions();
  ASSERT_THAT(deletions, IsOk());
  ASSERT_EQ(deletions->size(), 2u);
  EXPECT_EQ((*deletions)[0].attempt, (AttemptId{{1}}));
  ASSERT_THAT(ApplyRecord(*manifest, MakeRecord(10, 3)), IsOk());
  EXPECT_EQ(manifest->Deletions()->size(), 2u) << "a deleted attempt is there once";
  ASSERT_THAT(manifest->ForgetDeletions(std::vector{AttemptId{{1}}, AttemptId{{2}}}), IsOk());
  EXPECT_THAT(*manifest->Deletions(), IsEmpty());
}

TEST_F(ManifestTest, HasThePhasesOfTheAttemptThatTheStepHas) {
  const auto names = [](const Manifest& manifest, uint8_t attempt) {
    const auto phases = manifest.Phases(10, ToHex(AttemptId{{attempt}}.bytes));
    EXPECT_THAT(phases, IsOk());
    std::vector<std::string> names;
    for (const SavePhase& phase : *phases) names.push_back(phase.name);
    return names;
  };
  const auto phases = [](uint8_t attempt, const std::string& name) {
    return PhasesFact{{.step = 10, .attempt = ToHex(AttemptId{{attempt}}.bytes), .phases = {{.name = name}}}};
  };
  const auto manifest = Create();
  ASSERT_THAT(ApplyFacts(*manifest, {StepFact{MakeRecord(10, 1)}, phases(1, "write")}), IsOk());
  EXPECT_THAT(names(*manifest, 1), ElementsAre("write"));
  ASSERT_THAT(ApplyFacts(*manifest, {phases(1, "commit")}), IsOk());
  EXPECT_THAT(names(*manifest, 1), ElementsAre("commit"));
  ASSERT_THAT(ApplyRecord(*manifest, MakeRecord(10, 2)), IsOk());
  EXPECT_THAT(names(*manifest, 1), IsEmpty());
  ASSERT_THAT(ApplyFacts(*manifest, {phases(1, "late"), phases(2, "second")}), IsOk());
  ASSERT_THAT(ApplyState(*manifest, MakeRecord(10, 2), StepState::kDeleted), IsOk());
  EXPECT_THAT(names(*manifest, 1), IsEmpty());
  EXPECT_THAT(names(*manifest, 2), ElementsAre("second"));
}

TEST_F(ManifestTest, IsReadBesideItsWriterWithoutATrace) {
  const auto writer = Create();
  ASSERT_THAT(ApplyRecord(*writer, MakeRecord(10, 1)), IsOk());
  const auto count = [&] {
    return std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator());
  };
  const auto before = count();
  auto reader = Manifest::OpenReadOnly(PosixFileSystem(), path_);
  ASSERT_THAT(reader, IsOk());
  EXPECT_TRUE((*reader)->Find(10)->has_value());
  EXPECT_EQ(count(), before);
  EXPECT_FALSE(ApplyRecord(**reader, MakeRecord(11, 1)).ok());
  EXPECT_FALSE((*reader)->Find(11)->has_value());
}

TEST_F(ManifestTest, SaysWhetherThereIsOne) {
  EXPECT_THAT(Manifest::Open(PosixFileSystem(), path_), StatusIs(StatusCode::kNotFound, HasSubstr(path_)));
  Create();
  EXPECT_THAT(Manifest::Create(PosixFileSystem(), path_, store_),
              StatusIs(StatusCode::kAlreadyExists, HasSubstr(path_)));
}

TEST_F(ManifestTest, RefusesOneThatIsBroken) {
  Create();
  std::ofstream(path_ + "/CURRENT") << "garbage";
  EXPECT_THAT(Manifest::Open(PosixFileSystem(), path_), StatusIs(StatusCode::kDataLoss, HasSubstr(path_)));
  EXPECT_THAT(Manifest::OpenReadOnly(PosixFileSystem(), path_), StatusIs(StatusCode::kDataLoss, HasSubstr(path_)));
}

TEST_F(ManifestTest, OfAnOlderVersionIsReadAndNotWritten) {
  ASSERT_THAT(ApplyRecord(*Create(), MakeRecord(10, 1)), IsOk());
  Put("store", EncodeStoreRecord({.store_id = store_, .sequence = 9, .version = 2}));
  EXPECT_THAT(Manifest::Open(PosixFileSystem(), path_), StatusIs(StatusCode::kDataLoss, HasSubstr("of version 2")));
  auto reader = Manifest::OpenReadOnly(PosixFileSystem(), path_);
  ASSERT_THAT(reader, IsOk());
  EXPECT_EQ((*reader)->last_sequence(), 9u);
  EXPECT_TRUE((*reader)->Find(10)->has_value());
  Put("store", R"({"version":99})");
  EXPECT_THAT(Manifest::Open(PosixFileSystem(), path_), StatusIs(StatusCode::kUnimplemented, HasSubstr(path_)));
}

TEST_F(ManifestTest, RemembersThatItHasFailed) {
  ASSERT_THAT(ApplyRecord(*Create(), MakeRecord(10, 1)), IsOk());
  Put(PhasesKey(10), "{}");
  const auto manifest = Open();
  EXPECT_THAT(manifest->Find(10), IsOk());
  EXPECT_THAT(manifest->failure(), IsOk());
  EXPECT_THAT(manifest->Phases(10, MakeRecord(10, 1).info.attempt),
              StatusIs(StatusCode::kDataLoss, HasSubstr("phases/10")));
  EXPECT_THAT(manifest->Find(10), IsOk());
  EXPECT_THAT(manifest->failure(), StatusIs(StatusCode::kDataLoss, HasSubstr("phases/10")));
}

TEST_F(ManifestTest, HasOneWriter) {
  const auto writer = Create();
  EXPECT_THAT(Manifest::Open(PosixFileSystem(), path_), StatusIs(StatusCode::kUnavailable, HasSubstr(path_ + "/LOCK")));
}

TEST_F(ManifestTest, SaysThatItMayNotBeWritten) {
  Create();
  std::filesystem::permissions(directory_.path(), std::filesystem::perms::all);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_.path())) {
    std::filesystem::permissions(entry.path(),
                                 entry.is_directory() ? std::filesystem::perms(0555) : std::filesystem::perms(0444));
  }
  EndIndexThreads();
  EXPECT_THAT(InChild([&] {
                if (!GiveUpRights()) return std::string("may not give up its rights");
                return Manifest::Open(PosixFileSystem(), path_).status().ToString();
              }),
              AllOf(HasSubstr("PERMISSION_DENIED"), HasSubstr(path_)));
}

// Every committed step, read anew from its record.
std::vector<std::string> CommittedRecords(const Manifest& manifest) {
  std::vector<std::string> records;
  EXPECT_THAT(manifest.ForEach([&](const StepRecord& record) {
    if (record.info.state == StepState::kCommitted) {
      records.push_back(EncodeStepRecord({.info = *KeptStep(record.info)}));
    }
    return true;
  }),
              IsOk());
  return records;
}

std::vector<std::string> KeptRecords(const Manifest& manifest) {
  std::vector<std::string> records;
  const auto committed = manifest.Committed();
  EXPECT_THAT(committed, IsOk());
  for (const auto& info : committed.value_or(CommittedSteps())) records.push_back(EncodeStepRecord({.info = *info}));
  return records;
}

TEST_F(ManifestTest, ReadsOnlyOnceWhatIsCommittedAndKnowsWhatChanged) {
  auto manifest = Create();
  for (uint8_t step = 1; step <= 4; ++step) ASSERT_THAT(ApplyRecord(*manifest, MakeRecord(step, step)), IsOk());
  const CommittedSteps first = manifest->Committed().value();
  ASSERT_EQ(first.size(), 4u);
  StepRecord late = MakeRecord(2, 2);
  late.info.metrics = {{"not UTF-8 \xff", 0.5}};  // kept as it will be read
  const StateFact deleted{.step = 3, .attempt = MakeRecord(3, 3).info.attempt, .state = StepState::kDeleted};
  ASSERT_THAT(ApplyFacts(*manifest, {StepFact{late}, deleted, StepFact{MakeRecord(1, 11)}}), IsOk());
  const CommittedSteps second = manifest->Committed().value();
  ASSERT_EQ(second.size(), 3u);
  EXPECT_EQ(second[0]->sequence, 11u);
  EXPECT_EQ(second[1]->metrics.size(), 1u);
  EXPECT_EQ(second[2], first[3]) << "it has been read again";
  EXPECT_EQ(KeptRecords(*manifest), CommittedRecords(*manifest));
  manifest.reset();
  manifest = Open();
  EXPECT_EQ(KeptRecords(*manifest), CommittedRecords(*manifest));
}

TEST_F(ManifestTest, MissesNoCommitThatComesWhileTheStepsAreRead) {
  for (int round = 0; round < 20; ++round) {
    auto manifest = Manifest::Create(PosixFileSystem(), path_ + std::to_string(round), store_);
    ASSERT_THAT(manifest, IsOk());
    std::thread writer([&] {
      for (uint8_t step = 1; step <= 20; ++step) EXPECT_THAT(ApplyRecord(**manifest, MakeRecord(step, step)), IsOk());
    });
    size_t seen = 0;
    for (int i = 0; i < 20; ++i) {
      const auto committed = (*manifest)->Committed();
      EXPECT_THAT(committed, IsOk());
      EXPECT_GE(committed->size(), seen);
      seen = committed->size();
    }
    writer.join();
    EXPECT_EQ((*manifest)->Committed()->size(), 20u);
  }
}

TEST_F(ManifestTest, LooksOnTheDiskForNoStepAboveAllThatHaveARecord) {
  ASSERT_THAT(ApplyRecord(*Create(), MakeRecord(10, 1)), IsOk());
  FailingFileSystem files(PosixFileSystem());
  auto manifest = Manifest::Open(files, path_);  // which puts the record into a table
  ASSERT_THAT(manifest, IsOk());
  files.SetRule([](const FailingFileSystem::Call& call) { return ErrnoStatus(EIO, call.operation, call.path); });
  EXPECT_FALSE((*manifest)->Find(11)->has_value());
  EXPECT_THAT((*manifest)->Apply({.number = 9}, std::vector<Fact>{StepFact{MakeRecord(12, 2)}}),
              StatusIs(StatusCode::kInternal, HasSubstr("EIO")));
  EXPECT_THAT((*manifest)->failure(), StatusIs(StatusCode::kInternal, HasSubstr("EIO")));
  EXPECT_FALSE((*manifest)->Find(13)->has_value());
}

}  // namespace
}  // namespace tidemark::storage
