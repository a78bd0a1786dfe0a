#include "storage/manifest/manifest.h"

#include <sys/mount.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/errno_status.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/manifest/made_records.h"

namespace tidemark::storage {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class ManifestTest : public testing::Test {
 protected:
  TestDirectory directory_;
  const std::string path_ = directory_ / "manifest";
  const StoreId store_{{7}};
};

TEST_F(ManifestTest, KeepsWhatWasCommitted) {
  {
    auto manifest = Manifest::Create(PosixFileSystem(), path_, store_);
    ASSERT_THAT(manifest, IsOk());
    EXPECT_EQ((*manifest)->last_sequence(), 0u);
    ASSERT_THAT((*manifest)->Commit(MakeRecord(10, 1, 1)), IsOk());
    ASSERT_THAT((*manifest)->Commit(MakeRecord(20, 2, 2)), IsOk());
  }
  auto manifest = Manifest::Open(PosixFileSystem(), path_);
  ASSERT_THAT(manifest, IsOk());
  EXPECT_EQ((*manifest)->store_id(), store_);
  EXPECT_EQ((*manifest)->last_sequence(), 2u);
  EXPECT_EQ((*(*manifest)->Find(10))->info.sequence, 1u);
  EXPECT_FALSE((*manifest)->Find(15)->has_value());
}

TEST_F(ManifestTest, WritesNoRecordThatItCouldNotRead) {
  auto manifest = Manifest::Create(PosixFileSystem(), path_, store_);
  ASSERT_THAT(manifest, IsOk());
  StepRecord unreadable = MakeRecord(10, 1, 1);
  unreadable.info.attempt = "no id";
  const auto refused = StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the record of step 10 was not written"));
  EXPECT_THAT((*manifest)->Commit(unreadable), refused);
  const StepRecord records[] = {MakeRecord(9, 2, 2), unreadable};
  EXPECT_THAT((*manifest)->Update(records, {}), refused);
  const DeletionRecord deletion{.step = -1};
  EXPECT_THAT(
      (*manifest)->Update({records, 1}, {&deletion, 1}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the mark that step -1 is deleted was not written")));
  for (const int64_t step : {9, 10}) EXPECT_FALSE((*manifest)->Find(step)->has_value()) << step;
  EXPECT_EQ((*manifest)->last_sequence(), 0u);
  EXPECT_FALSE((*manifest)->damage_found());
}

TEST_F(ManifestTest, FindsTheHighestStepAtOrBelow) {
  auto manifest = Manifest::Create(PosixFileSystem(), path_, store_);
  ASSERT_THAT(manifest, IsOk());
  EXPECT_FALSE((*manifest)->FindAtOrBelow(100)->has_value());
  for (int64_t step : {300, 5, 70000}) ASSERT_THAT((*manifest)->Commit(MakeRecord(step, 1, 1)), IsOk());
  EXPECT_EQ((*(*manifest)->FindAtOrBelow(INT64_MAX))->info.step, 70000);
  EXPECT_EQ((*(*manifest)->FindAtOrBelow(69999))->info.step, 300);
  EXPECT_EQ((*(*manifest)->FindAtOrBelow(5))->info.step, 5);
  EXPECT_FALSE((*manifest)->FindAtOrBelow(4)->has_value());
}

TEST_F(ManifestTest, FindsTheHighestCommittedStepBelowOthers) {
  auto manifest = Manifest::Create(PosixFileSystem(), path_, store_);
  ASSERT_THAT(manifest, IsOk());
  EXPECT_FALSE((*manifest)->FindCommittedAtOrBelow(INT64_MAX)->has_value());
  for (int64_t step : {2, 4}) ASSERT_THAT((*manifest)->Commit(MakeRecord(step, 1, 1)), IsOk());
  int64_t step = 5;
  for (const StepState state : {StepState::kDamaged, StepState::kLost, StepState::kDeleted}) {
    StepRecord record = MakeRecord(step++, 1, 1);
    record.info.state = state;
    ASSERT_THAT((*manifest)->Update(record), IsOk());
  }
  for (const StepState state : {StepState::kFailed, StepState::kUnsaved}) {
    ASSERT_THAT((*manifest)->Update({.info = {.step = step++, .state = state}}), IsOk());
  }
  EXPECT_EQ((*(*manifest)->FindCommittedAtOrBelow(INT64_MAX))->info.step, 4);
  EXPECT_EQ((*(*manifest)->FindCommittedAtOrBelow(3))->info.step, 2);
  EXPECT_FALSE((*manifest)->FindCommittedAtOrBelow(1)->has_value());
}

TEST_F(ManifestTest, UpdatesSeveralRecordsAndMarksAttemptsInOneBatch) {
  auto manifest = Manifest::Create(PosixFileSystem(), path_, store_);
  ASSERT_THAT(manifest, IsOk());
  std::vector<StepRecord> records = {MakeRecord(1, 1, 1), MakeRecord(2, 2, 2)};
  for (const StepRecord& record : records) ASSERT_THAT((*manifest)->Commit(record), IsOk());
  std::vector<DeletionRecord> deletions;
  for (StepRecord& record : records) {
    deletions.push_back(*DeletionOf(record));
    record.info.state = StepState::kDeleted;
  }
  ASSERT_THAT((*manifest)->Update(records, deletions), IsOk());
  EXPECT_EQ((*(*manifest)->Find(1))->info.state, StepState::kDeleted);
  EXPECT_EQ((*(*manifest)->Find(2))->info.state, StepState::kDeleted);
  EXPECT_EQ((*manifest)->Deletions()->size(), 2u);
  ASSERT_THAT((*manifest)->FinishDeletions(std::vector{AttemptId{{1}}, AttemptId{{2}}}), IsOk());
  EXPECT_TRUE((*manifest)->Deletions()->empty());
}

TEST_F(ManifestTest, MarksADeletedAttemptNotOnceMoreWhenItIsReplaced) {
  auto manifest = Manifest::Create(PosixFileSystem(), path_, store_);
  ASSERT_THAT(manifest, IsOk());
  StepRecord deleted = MakeRecord(1, 1, 1);
  deleted.info.state = StepState::kDeleted;
  ASSERT_THAT((*manifest)->Update(deleted), IsOk());
  EXPECT_FALSE((*manifest)->Commit(MakeRecord(1, 2, 2))->has_value());
  EXPECT_TRUE((*manifest)->Deletions()->empty());
}

TEST_F(ManifestTest, VisitsStepsInOrderUntilToldToStop) {
  auto manifest = Manifest::Create(PosixFileSystem(), path_, store_);
  ASSERT_THAT(manifest, IsOk());
  for (int64_t step : {300, 5, 70000}) ASSERT_THAT((*manifest)->Commit(MakeRecord(step, 1, 1)), IsOk());
  std::vector<int64_t> seen;
  ASSERT_THAT((*manifest)->ForEach([&](const StepRecord& record) {
    seen.push_back(record.info.step);
    return seen.size() < 2;
  }),
              IsOk());
  EXPECT_THAT(seen, ElementsAre(5, 300));
}

TEST_F(ManifestTest, MarksAReplacedAttemptForDeletionInTheSameBatch) {
  auto manifest = Manifest::Create(PosixFileSystem(), path_, store_);
  ASSERT_THAT(manifest, IsOk());
  EXPECT_FALSE((*manifest)->Commit(MakeRecord(10, 1, 1))->has_value());
  auto replaced = (*manifest)->Commit(MakeRecord(10, 2, 2));
  ASSERT_THAT(replaced, IsOk());
  ASSERT_TRUE(replaced->has_value());
  EXPECT_EQ((*replaced)->attempt, (AttemptId{{1}}));
  EXPECT_EQ((*(*manifest)->Find(10))->info.sequence, 2u);
  EXPECT_EQ((*manifest)->Deletions()->size(), 1u);
  ASSERT_THAT((*manifest)->FinishDeletions(std::vector{AttemptId{{1}}}), IsOk());
  EXPECT_TRUE((*manifest)->Deletions()->empty());
}

TEST_F(ManifestTest, HasNothingToDeleteForAFailedAttemptOrTheSameOne) {
  auto manifest = Manifest::Create(PosixFileSystem(), path_, store_);
  ASSERT_THAT(manifest, IsOk());
  StepRecord failed = MakeRecord(10, 0, 1);
  failed.info.attempt.clear();
  failed.info.state = StepState::kFailed;
  ASSERT_THAT((*manifest)->Update(failed), IsOk());
  EXPECT_FALSE((*manifest)->Commit(MakeRecord(10, 1, 2))->has_value());
  EXPECT_FALSE((*manifest)->Commit(MakeRecord(10, 1, 2))->has_value());
}

TEST_F(ManifestTest, IsReadBesideItsWriterWithoutATrace) {
  auto writer = Manifest::Create(PosixFileSystem(), path_, store_);
  ASSERT_THAT(writer, IsOk());
  ASSERT_THAT((*writer)->Commit(MakeRecord(10, 1, 1)), IsOk());
  const auto count = [&] {
    return std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator());
  };
  const auto before = count();
  auto reader = Manifest::OpenReadOnly(PosixFileSystem(), path_);
  ASSERT_THAT(reader, IsOk());
  EXPECT_TRUE((*reader)->Find(10)->has_value());
  EXPECT_EQ(count(), before);
  EXPECT_FALSE((*reader)->Commit(MakeRecord(11, 1, 1)).ok());
}

TEST_F(ManifestTest, SaysWhetherThereIsOne) {
  EXPECT_THAT(Manifest::Open(PosixFileSystem(), path_), StatusIs(absl::StatusCode::kNotFound, HasSubstr(path_)));
  ASSERT_THAT(Manifest::Create(PosixFileSystem(), path_, store_), IsOk());
  EXPECT_THAT(Manifest::Create(PosixFileSystem(), path_, store_),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(path_)));
}

TEST_F(ManifestTest, RefusesOneThatIsBroken) {
  ASSERT_THAT(Manifest::Create(PosixFileSystem(), path_, store_), IsOk());
  std::ofstream(path_ + "/CURRENT") << "garbage";
  EXPECT_THAT(Manifest::Open(PosixFileSystem(), path_), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path_)));
  EXPECT_THAT(Manifest::OpenReadOnly(PosixFileSystem(), path_),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path_)));
}

TEST_F(ManifestTest, HasOneWriter) {
  auto writer = Manifest::Create(PosixFileSystem(), path_, store_);
  ASSERT_THAT(writer, IsOk());
  EXPECT_THAT(Manifest::Open(PosixFileSystem(), path_),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(path_ + "/LOCK")));
}

TEST_F(ManifestTest, NeverTakesItsSequenceBack) {
  {
    auto manifest = Manifest::Create(PosixFileSystem(), path_, store_);
    ASSERT_THAT(manifest, IsOk());
    ASSERT_THAT((*manifest)->Commit(MakeRecord(10, 1, 7)), IsOk());
    ASSERT_THAT((*manifest)->Commit(MakeRecord(11, 2, 3)), IsOk());
    EXPECT_EQ((*manifest)->last_sequence(), 7u);
  }
  auto manifest = Manifest::Open(PosixFileSystem(), path_);
  ASSERT_THAT(manifest, IsOk());
  EXPECT_EQ((*manifest)->last_sequence(), 7u);
  EXPECT_EQ((*(*manifest)->Find(11))->info.sequence, 3u);
}

TEST_F(ManifestTest, IsNotOpenedForWritingByAWriteThatItRefused) {
  ASSERT_THAT(Manifest::Create(PosixFileSystem(), path_, store_), IsOk());
  auto reader = Manifest::OpenReadOnly(PosixFileSystem(), path_);
  ASSERT_THAT(reader, IsOk());
  for (int i = 0; i < 3; ++i) EXPECT_FALSE((*reader)->Commit(MakeRecord(11, 1, 1)).ok());
  EXPECT_FALSE((*reader)->Find(11)->has_value());
}

TEST_F(ManifestTest, SaysThatItMayNotBeWritten) {
  ASSERT_THAT(Manifest::Create(PosixFileSystem(), path_, store_), IsOk());
  std::filesystem::permissions(directory_.path(), std::filesystem::perms::all);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_.path())) {
    std::filesystem::permissions(entry.path(),
                                 entry.is_directory() ? std::filesystem::perms(0555) : std::filesystem::perms(0444));
  }
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
  auto manifest = Manifest::Create(PosixFileSystem(), path_, store_);
  ASSERT_THAT(manifest, IsOk());
  for (uint8_t step = 1; step <= 4; ++step) ASSERT_THAT((*manifest)->Commit(MakeRecord(step, step, step)), IsOk());
  const CommittedSteps first = (*manifest)->Committed().value();
  ASSERT_EQ(first.size(), 4u);
  StepRecord late = MakeRecord(2, 2, 2);
  late.info.metrics = {{"not UTF-8 \xff", 0.5}};  // kept as it will be read
  StepRecord deleted = MakeRecord(3, 3, 3);
  MakeDeleted(deleted, "test");
  const std::vector<StepRecord> changed = {late, deleted};
  ASSERT_THAT((*manifest)->Update(changed, {}), IsOk());
  ASSERT_THAT((*manifest)->Commit(MakeRecord(1, 11, 11)), IsOk());
  const CommittedSteps second = (*manifest)->Committed().value();
  ASSERT_EQ(second.size(), 3u);
  EXPECT_EQ(second[0]->sequence, 11u);
  EXPECT_EQ(second[1]->metrics.size(), 1u);
  EXPECT_EQ(second[2], first[3]) << "it has been read again";
  EXPECT_EQ(KeptRecords(**manifest), CommittedRecords(**manifest));
  manifest->reset();
  auto opened = Manifest::Open(PosixFileSystem(), path_);
  ASSERT_THAT(opened, IsOk());
  EXPECT_EQ(KeptRecords(**opened), CommittedRecords(**opened));
}

TEST_F(ManifestTest, FollowersKeepNothingThatTheirWriterMayChange) {
  auto writer = Manifest::Create(PosixFileSystem(), path_, store_);
  ASSERT_THAT(writer, IsOk());
  auto follower = Manifest::OpenFollowing(PosixFileSystem(), path_);
  ASSERT_THAT(follower, IsOk());
  for (uint8_t step = 1; step <= 3; ++step) {
    ASSERT_THAT((*writer)->Commit(MakeRecord(step, step, step)), IsOk());
    ASSERT_THAT((*follower)->CatchUp(), IsOk());
    EXPECT_EQ((*follower)->Committed()->size(), step);
  }
}

TEST_F(ManifestTest, MissesNoCommitThatComesWhileTheStepsAreRead) {
  for (int round = 0; round < 20; ++round) {
    const std::string path = path_ + std::to_string(round);
    auto manifest = Manifest::Create(PosixFileSystem(), path, store_);
    ASSERT_THAT(manifest, IsOk());
    std::thread writer([&] {
      for (uint8_t step = 1; step <= 20; ++step) EXPECT_THAT((*manifest)->Commit(MakeRecord(step, step, step)), IsOk());
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

TEST_F(ManifestTest, KnowsWhatIsCommittedThroughAWriteThatFails) {
  const std::string outcome = InChild([&] {
    if (!EnterMountNamespace() || mount("none", directory_.path().c_str(), "tmpfs", 0, "size=2m") != 0)
      return std::string("SKIP");
    auto manifest = Manifest::Create(PosixFileSystem(), path_, store_);
    if (!manifest.ok()) return manifest.status().ToString();
    std::string said;
    const auto compare = [&] { said += KeptRecords(**manifest) == CommittedRecords(**manifest) ? " same" : " stale"; };
    for (uint8_t step = 1; step <= 3; ++step) said += (*manifest)->Commit(MakeRecord(step, step, step)).ok() ? "" : "?";
    compare();
    std::ofstream(directory_ / "filler") << std::string(4 << 20, 'x');
    uint64_t sequence = 10;
    absl::Status full;
    while (full.ok() && sequence < 10000) full = (*manifest)->Commit(MakeRecord(1, 1, ++sequence)).status();
    said += " " + std::string(absl::StatusCodeToString(full.code()));
    compare();
    std::filesystem::remove(directory_ / "filler");
    compare();
    // Not a write of steps; it is what opens the database anew.
    said += (*manifest)->RemoveSettledMark().ok() ? " reopened" : " refused";
    compare();
    said += (*manifest)->Commit(MakeRecord(2, 2, ++sequence)).ok() ? " committed" : " refused";
    compare();
    said += (*manifest)->Commit(MakeRecord(3, 3, ++sequence)).ok() ? " committed" : " refused";
    compare();
    return said;
  });
  if (outcome == "SKIP") GTEST_SKIP() << "mounting is not allowed here";
  EXPECT_EQ(outcome, " same RESOURCE_EXHAUSTED same same reopened same committed same committed same");
}

// A write fails for want of room, then the database cannot be opened anew, be it to read or to write, and then it can.
TEST_F(ManifestTest, CommitsAgainAfterItCouldNotBeReopened) {
  const std::string outcome = InChild([&] {
    if (!EnterMountNamespace() || mount("none", directory_.path().c_str(), "tmpfs", 0, "size=2m") != 0)
      return std::string("SKIP");
    auto manifest = Manifest::Create(PosixFileSystem(), path_, store_);
    if (!manifest.ok()) return manifest.status().ToString();
    std::string said = (*manifest)->Commit(MakeRecord(1, 1, 1)).status().ToString();
    std::ofstream(directory_ / "filler") << std::string(4 << 20, 'x');
    absl::Status full;
    for (int i = 0; full.ok() && i < 10000; ++i) full = (*manifest)->Commit(MakeRecord(1, 1, 1)).status();
    said += " full: " + std::string(absl::StatusCodeToString(full.code()));
    std::filesystem::remove(directory_ / "filler");
    std::filesystem::rename(path_, directory_ / "aside");
    std::ofstream(path_) << "in the way";
    for (int i = 0; i < 2; ++i) said += (*manifest)->Commit(MakeRecord(2, 2, 2)).ok() ? " committed" : " refused";
    said += (*manifest)->Update(MakeRecord(2, 2, 2)).ok() ? " updated" : " refused";
    said += (*manifest)->Find(1).ok() ? " found" : " not found";
    std::filesystem::remove(path_);
    std::filesystem::rename(directory_ / "aside", path_);
    const auto found = (*manifest)->Find(1);
    said += found.ok() && found->has_value() ? " found" : " not found";
    return said + " " + (*manifest)->Commit(MakeRecord(2, 2, 2)).status().ToString();
  });
  if (outcome == "SKIP") GTEST_SKIP() << "mounting is not allowed here";
  // Once closed it cannot be read either; before that, reads go on.
  EXPECT_THAT(outcome, HasSubstr("OK full: RESOURCE_EXHAUSTED"));
  EXPECT_THAT(outcome, testing::EndsWith(" refused refused refused not found found OK"));
}

TEST_F(ManifestTest, LooksOnTheDiskForNoStepAboveAllThatHaveARecord) {
  FailingFileSystem files(PosixFileSystem());
  ASSERT_THAT((*Manifest::Create(files, path_, store_))->Commit(MakeRecord(10, 1, 1)), IsOk());
  auto manifest = Manifest::Open(files, path_);  // which puts the record into a table
  ASSERT_THAT(manifest, IsOk());
  files.SetRule([](const FailingFileSystem::Call& call) { return ErrnoStatus(EIO, call.operation, call.path); });
  EXPECT_FALSE((*manifest)->Find(11)->has_value());
  EXPECT_THAT((*manifest)->Commit(MakeRecord(12, 2, 2)), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  EXPECT_FALSE((*manifest)->Find(13)->has_value());
  files.SetRule(nullptr);
  ASSERT_THAT((*manifest)->Commit(MakeRecord(14, 3, 3)), IsOk());
  EXPECT_TRUE((*manifest)->Find(14)->has_value());
  EXPECT_TRUE((*manifest)->Find(10)->has_value());
}

}  // namespace
}  // namespace tidemark::storage
