// A reader without a manifest knows what a manifest that is rebuilt from the folders would.

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/manifest/lease.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/step_deletion.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using storage::TestDirectory;
using testing::HasSubstr;
using testing::Not;

// Steps by their folders alone. Files of what was deleted stay here, for somebody has a lease on them.
class ManifestlessStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    Reopen();
    for (const int64_t step : {1, 2, 3}) Save(step);
    ASSERT_THAT(checkpointer_->Close(), IsOk());
    reader_ = *StoreReader::Open(store_);
  }

  std::string FolderOf(int64_t step) const { return std::filesystem::path(ShardPath(store_, step)).parent_path(); }

  void Lease(int64_t step) const {
    const auto attempt = storage::FromHex(reader_->FindStep(step)->attempt);
    std::filesystem::create_directories(store_ + "/leases");
    std::ofstream(store_ + "/leases/" + storage::LeaseFileName(storage::AttemptId{*attempt}, "validation")) << "{}";
  }

  void Reopen() {
    auto opened = AsyncCheckpointer::Open({.directory = store_, .observer = NoWarnings()});
    ASSERT_THAT(opened, IsOk());
    checkpointer_ = *std::move(opened);
  }

  void Save(int64_t step) {
    trainer_.SetTo(step);
    auto save = checkpointer_->Save(step, trainer_.state, {.metrics = {{"loss", 1.0 / static_cast<double>(step)}}});
    ASSERT_THAT(save, IsOk());
    ASSERT_THAT(save->committed().Wait(), IsOk());
  }

  void Delete(int64_t step) { DeleteStep(store_, *reader_->FindStep(step)); }

  void Replace(int64_t step) {
    auto save = checkpointer_->Save(step, trainer_.state, {.overwrite = true});
    ASSERT_THAT(save, IsOk());
    ASSERT_THAT(save->committed().Wait(), IsOk());
  }

  // Reads the steps without a manifest, and holds them against those of one that is rebuilt.
  void BreakManifest() {
    checkpointer_.reset();
    std::ofstream(store_ + "/manifest/CURRENT") << "garbage";
    ASSERT_THAT(reader_->Refresh(), IsOk());
    EXPECT_THAT(reader_->manifest_problem(), StatusIs(absl::StatusCode::kDataLoss, testing::_));
    Reopen();
    ExpectWhatTheTrainerKnows();
  }

  void ExpectWhatTheTrainerKnows() {
    auto rebuilt = checkpointer_->Steps();
    ASSERT_THAT(rebuilt, IsOk());
    ASSERT_EQ(rebuilt->size(), reader_->Steps().size());
    for (size_t i = 0; i < rebuilt->size(); ++i) {
      const StepInfo& expected = (*rebuilt)[i];
      const StepInfo& info = reader_->Steps()[i];
      SCOPED_TRACE(expected.step);
      EXPECT_EQ(info.step, expected.step);
      EXPECT_EQ(info.attempt, expected.attempt);
      EXPECT_EQ(StepStateName(info.state), StepStateName(expected.state));
      EXPECT_EQ(info.reason, expected.reason);
      EXPECT_EQ(info.metrics, expected.metrics);
      EXPECT_EQ(info.pinned, expected.pinned);
      EXPECT_EQ(info.pin_note, expected.pin_note);
      EXPECT_EQ(info.tags, expected.tags);
    }
  }

  TestDirectory directory_;
  const std::string store_ = directory_ / "store";
  TestTrainer trainer_;
  std::unique_ptr<AsyncCheckpointer> checkpointer_;
  std::unique_ptr<StoreReader> reader_;
};

TEST_F(ManifestlessStoreTest, ListsADeletedStepThoughItsFilesAreThere) {
  Lease(2);
  Delete(2);
  ASSERT_TRUE(std::filesystem::exists(ShardPath(store_, 2)));
  BreakManifest();
  EXPECT_EQ(reader_->FindStep(1)->state, StepState::kCommitted);
  EXPECT_EQ(reader_->FindStep(2)->state, StepState::kDeleted);
  EXPECT_EQ(reader_->FindStep(2)->metrics.at("loss"), 0.5);
  EXPECT_THAT(reader_->Verify(2), StatusIs(absl::StatusCode::kNotFound, "step 2 was deleted: too old"));
  EXPECT_EQ(reader_->BestStep("loss", BestMode::kHighest)->step, 1);
}

TEST_F(ManifestlessStoreTest, GoesBackToTheManifestOnceItIsRebuilt) {
  BreakManifest();
  ASSERT_THAT(reader_->Refresh(), IsOk());
  EXPECT_THAT(reader_->manifest_problem(), IsOk());
  ExpectWhatTheTrainerKnows();
  Save(4);
  ASSERT_THAT(reader_->Refresh(), IsOk());
  EXPECT_EQ(reader_->LatestStep()->step, 4);
}

TEST_F(ManifestlessStoreTest, TakesNoPinFromAnAttemptThatWasDeleted) {
  Reopen();
  ASSERT_THAT(checkpointer_->Pin(1, "a good one"), IsOk());
  Lease(1);
  const std::string replaced = FolderOf(1);
  Replace(1);
  ASSERT_TRUE(std::filesystem::exists(replaced + "/pin.json"));
  ASSERT_THAT(checkpointer_->Unpin(1), IsOk());
  BreakManifest();
  EXPECT_EQ(reader_->FindStep(1)->state, StepState::kCommitted);
  EXPECT_THAT(replaced, Not(HasSubstr(reader_->FindStep(1)->attempt)));
  EXPECT_FALSE(reader_->FindStep(1)->pinned);
}

// Step 2 has a pin of its own then, and gets the tags of both.
TEST_F(ManifestlessStoreTest, TakesThePinOfAnEarlierAttemptThatNobodyRemoved) {
  Reopen();
  const std::string replaced[] = {FolderOf(1), FolderOf(2)};
  for (const int64_t step : {1, 2}) {
    ASSERT_THAT(checkpointer_->Pin(step, "a good one"), IsOk());
    const std::string copy = directory_ / ("copy" + std::to_string(step));
    std::filesystem::copy(replaced[step - 1], copy);
    std::ofstream(copy + "/pin.json") << R"({"version": 1, "note": "a good one", "tags": ["v1"]})";
    Replace(step);
  }
  ASSERT_THAT(checkpointer_->Unpin(1), IsOk());
  std::ofstream(FolderOf(2) + "/pin.json") << R"({"version": 1, "note": "a better one", "tags": ["v2"]})";
  checkpointer_.reset();
  for (int i : {0, 1}) std::filesystem::rename(directory_ / ("copy" + std::to_string(i + 1)), replaced[i]);
  BreakManifest();
  EXPECT_EQ(reader_->FindStep(1)->pin_note, "a good one");
  EXPECT_THAT(reader_->FindStep(1)->tags, testing::ElementsAre("v1"));
  EXPECT_EQ(reader_->FindStep(2)->pin_note, "a better one");
  EXPECT_THAT(reader_->FindStep(2)->tags, testing::ElementsAre("v1", "v2"));
}

}  // namespace
}  // namespace tidemark
