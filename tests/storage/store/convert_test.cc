// Stores of the first format, made by its own code, are converted when they are opened.

#include "storage/store/convert.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/manifest/inbox_files.h"
#include "storage/manifest/store_identity.h"
#include "storage/manifest/store_request.h"
#include "storage/store/garbage.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/manifest/test_store.h"
#include "tests/storage/store/journal_store_testing.h"

namespace tidemark::storage {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// Steps 1 (tagged), 2 (evaluated, and there is a worker's report in the inbox), 3 (deleted, its files still there), 4
// (saved twice) and 5 (a save that failed), as the first format has them; and an attempt at step 6 that was not
// committed.
void MakeFirstFormat(FileSystem& files, const std::string& directory) {
  std::string warnings;
  auto store = OpenSoundStore(directory, &warnings, files);
  ASSERT_NE(store, nullptr);
  std::vector<ShardIdentity> steps;
  for (const int64_t step : {1, 2, 3, 4}) steps.push_back(CommitStep(*store, step, 100 * step, files));
  CommitStep(*store, 4, 401, files);
  ASSERT_THAT(store->Tag(1, "paper"), IsOk());
  MetricReport report{.store = store->id(), .step = 2, .attempt = steps[1].attempt};
  report.evaluation.evaluator = "own";
  ASSERT_THAT(RecordOwn(files, *store, report), IsOk());
  report.evaluation.evaluator = "worker";
  ASSERT_THAT(DeliverReport(files, store->layout(), report), IsOk());
  ASSERT_THAT(
      store->NoteSteps({{.step = 3, .attempt = ToHex(steps[2].attempt.bytes), .deleted = true, .reason = "a rule's"}}),
      IsOk());
  ASSERT_THAT(store->AddBestModes({{"loss", BestMode::kLowest}}), IsOk());
  const auto failed = store->BeginAttempt(5);
  ASSERT_THAT(failed, IsOk());
  store->AbandonAttempt(*failed, absl::UnixEpoch(), absl::InternalError("EIO"));
  WriteAttempt(*store, 6, 600, files);
}

// What the converted store says.
void ExpectConverted(JournalStore& store, FileSystem& files) {
  EXPECT_THAT(ReadValue(store, 1, files), IsOkAndHolds(100));
  EXPECT_THAT(store.catalog().Find(1)->value().info.tags, ElementsAre("paper"));
  EXPECT_THAT(ReadValue(store, 2, files), IsOkAndHolds(200));
  EXPECT_TRUE(store.catalog().Find(2)->value().info.evaluated_by("own"));
  EXPECT_TRUE(store.catalog().Find(2)->value().info.evaluated_by("worker"));
  EXPECT_EQ(store.catalog().Find(3)->value().info.state, StepState::kDeleted);
  EXPECT_THAT(ReadValue(store, 4, files), IsOkAndHolds(401));
  EXPECT_EQ(store.catalog().Find(5)->value().info.state, StepState::kFailed);
  EXPECT_FALSE(store.catalog().Find(6)->has_value());
  EXPECT_EQ(store.catalog().RecordedBestModes()->at("loss"), BestMode::kLowest);
  const auto folders = files.ListDirectory(store.layout().steps());
  ASSERT_THAT(folders, IsOk());
  EXPECT_THAT(*folders, SizeIs(3));
  for (const std::string& path : {store.layout().manifest(), store.layout().inbox(), store.layout().reserve()}) {
    EXPECT_THAT(files.TypeOf(path), StatusIs(absl::StatusCode::kNotFound, testing::_)) << path;
  }
  EXPECT_THAT(TrySave(store, 7, 700, files), IsOk());
  EXPECT_THAT(ReadValue(store, 7, files), IsOkAndHolds(700));
}

TEST(ConvertTest, KeepsWhatTheFirstFormatHas) {
  TestDirectory directory;
  MakeFirstFormat(PosixFileSystem(), directory.path());
  std::vector<std::string> warnings;
  {
    auto store = OpenJournalStore(directory.path(), &warnings);
    ASSERT_THAT(store, IsOk());
    ExpectConverted(**store, PosixFileSystem());
  }
  warnings.clear();
  auto store = OpenJournalStore(directory.path(), &warnings);
  ASSERT_THAT(store, IsOk());
  EXPECT_THAT(ReadValue(**store, 7), IsOkAndHolds(700));
  EXPECT_THAT(warnings, IsEmpty());
}

TEST(ConvertTest, TakesInRequestsThatWereNotCarriedOut) {
  TestDirectory directory;
  MakeFirstFormat(PosixFileSystem(), directory.path());
  const StoreLayout layout(directory.path());
  const auto id = ReadStoreIdentity(PosixFileSystem(), layout);
  ASSERT_THAT(id, IsOk());
  AttemptId second;
  for (const auto& entry : fs::directory_iterator(layout.steps())) {
    const auto folder = ParseStepFolderName(entry.path().filename().string());
    if (folder && folder->step == 2) second = folder->attempt;
  }
  const auto request = [&](StoreRequest::Kind kind, std::string text, int64_t second_of_day, AttemptId attempt) {
    const StoreRequest made{.kind = kind,
                            .store = *id,
                            .step = 2,
                            .attempt = attempt,
                            .text = std::move(text),
                            .asker = "somebody",
                            .asked = absl::FromUnixSeconds(second_of_day)};
    const auto bytes = EncodeStoreRequest(made);
    ASSERT_THAT(bytes, IsOk());
    ASSERT_THAT(DeliverToInbox(PosixFileSystem(), layout, RequestFileName({2, attempt}, *bytes), *bytes), IsOk());
  };
  request(StoreRequest::Kind::kTag, "first", 1, second);
  request(StoreRequest::Kind::kUntag, "first", 2, second);
  request(StoreRequest::Kind::kTag, "second", 3, second);
  request(StoreRequest::Kind::kDelete, "not needed", 4, second);
  request(StoreRequest::Kind::kPin, "gone", 5, AttemptId{{99}});
  std::vector<std::string> warnings;
  auto store = OpenJournalStore(directory.path(), &warnings);
  ASSERT_THAT(store, IsOk());
  EXPECT_THAT((*store)->catalog().Find(2)->value().info.tags, ElementsAre("second"));
  ASSERT_THAT(*(*store)->catalog().Requests(), SizeIs(1));
  EXPECT_EQ((*(*store)->catalog().Requests())[0].reason, "not needed");
  EXPECT_THAT(warnings, Contains(HasSubstr("request of somebody to pin step 2 is dropped")));
}

TEST(ConvertTest, TakesTheShardsWhereTheManifestIsLost) {
  TestDirectory directory;
  MakeFirstFormat(PosixFileSystem(), directory.path());
  const StoreLayout layout(directory.path());
  fs::remove_all(layout.manifest());
  fs::create_directory(layout.manifest());
  std::vector<std::string> warnings;
  auto store = OpenJournalStore(directory.path(), &warnings);
  ASSERT_THAT(store, IsOk());
  EXPECT_THAT(warnings, Contains(HasSubstr("steps are also taken from the shards")));
  EXPECT_THAT(ReadValue(**store, 1), IsOkAndHolds(100));
  EXPECT_THAT((*store)->catalog().Find(1)->value().info.tags, ElementsAre("paper"));
  EXPECT_THAT(ReadValue(**store, 4), IsOkAndHolds(401));
  // Only the manifest knew that the step was deleted.
  EXPECT_THAT(ReadValue(**store, 3), IsOkAndHolds(300));
}

TEST(ConvertTest, TakesTheShardsWhereTheEndOfTheManifestsLogIsDamaged) {
  TestDirectory directory;
  MakeFirstFormat(PosixFileSystem(), directory.path());
  const StoreLayout layout(directory.path());
  for (const auto& entry : fs::directory_iterator(layout.manifest())) {
    if (entry.path().extension() != ".log" || entry.file_size() < 200) continue;
    std::fstream log(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    log.seekp(static_cast<std::streamoff>(entry.file_size() / 3));
    log.put('\x55');
  }
  std::vector<std::string> warnings;
  auto store = OpenJournalStore(directory.path(), &warnings);
  ASSERT_THAT(store, IsOk());
  EXPECT_THAT(warnings, Contains(HasSubstr("or not all of it")));
  for (const auto& [step, value] : {std::pair(1, 100), std::pair(2, 200), std::pair(4, 401)}) {
    EXPECT_THAT(ReadValue(**store, step), IsOkAndHolds(value)) << step;
  }
}

TEST(ConvertTest, TakesTheShardsWhereTheManifestIsGone) {
  TestDirectory directory;
  MakeFirstFormat(PosixFileSystem(), directory.path());
  const StoreLayout layout(directory.path());
  fs::remove_all(layout.manifest());
  std::vector<std::string> warnings;
  auto store = OpenJournalStore(directory.path(), &warnings);
  ASSERT_THAT(store, IsOk());
  EXPECT_THAT(ReadValue(**store, 1), IsOkAndHolds(100));
  EXPECT_THAT((*store)->catalog().Find(1)->value().info.tags, ElementsAre("paper"));
  EXPECT_TRUE((*store)->catalog().Find(2)->value().info.evaluated_by("worker"));
}

TEST(ConvertTest, IsDoneOrNotAfterACrash) {
  SimulatedDisk first;
  MakeFirstFormat(first, "/store");
  SimulatedDisk disk(first.image());
  {
    std::vector<std::string> warnings;
    ASSERT_THAT(OpenJournalStore("/store", &warnings, disk), IsOk());
  }
  const size_t states = OpenAfterCrashes(disk, OneOf(5, 50), ExpectConverted);
  EXPECT_GT(states, 5u);
}

}  // namespace
}  // namespace tidemark::storage
