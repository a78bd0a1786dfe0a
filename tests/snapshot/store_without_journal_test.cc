// A store whose index, whose journal, or both, are lost or damaged: what a trainer finds when it opens the store, what
// it warns of, and what a reader shows before that.

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/store/store_identity.h"
#include "tests/snapshot/journal_calls.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/other_process.h"
#include "tests/snapshot/step_deletion.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/few_descriptors.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/store/test_store.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using storage::TestDirectory;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;

// Step 1 is pinned and has a tag, step 2 was deleted, step 3 has what a worker found, step 4 is damaged.
class StoreWithoutJournalTest : public testing::Test {
 protected:
  void SetUp() override {
    Reopen();
    for (const int64_t step : {1, 2, 3, 4}) Save(step);
    ASSERT_THAT(checkpointer_->Pin(1, "a good one"), IsOk());
    ASSERT_THAT(checkpointer_->Tag(1, "v1"), IsOk());
    ASSERT_THAT(checkpointer_->Delete(2, "too old"), IsOk());
    ASSERT_THAT(OtherProcess(store_).Report(3, {.evaluator = "validation", .metrics = {{"loss", 0.5}}}), IsOk());
    FlipBit(ShardPath(store_, 4), 100'000);
    ASSERT_THAT(checkpointer_->RestoreLatest(trainer_.state), IsOk());
    ASSERT_THAT(checkpointer_->Close(), IsOk());
    checkpointer_.reset();
    reader_ = *StoreReader::Open(store_);
    known_ = reader_->Steps();
    ASSERT_EQ(known_.size(), 4u);
    ASSERT_EQ(known_[3].state, StepState::kDamaged);
  }

  void Reopen() {
    warnings_.clear();
    auto opened = AsyncCheckpointer::Open(
        {.directory = store_, .reuse = false, .observer = ObserverOf({.warning = [this](std::string_view line) {
                                                absl::MutexLock lock(&mutex_);
                                                warnings_.emplace_back(line);
                                              }})});
    ASSERT_THAT(opened, IsOk());
    checkpointer_ = *std::move(opened);
  }

  void Save(int64_t step) {
    trainer_.SetTo(step);
    auto save = checkpointer_->Save(step, trainer_.state, {.metrics = {{"loss", 1.0 / static_cast<double>(step)}}});
    ASSERT_THAT(save, IsOk());
    ASSERT_THAT(save->committed().Wait(), IsOk());
  }

  // What is shown of two lists of steps, but for reasons why steps are kept.
  static void ExpectSame(const std::vector<StepInfo>& found, const std::vector<StepInfo>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      SCOPED_TRACE(expected[i].step);
      EXPECT_EQ(found[i].step, expected[i].step);
      EXPECT_EQ(found[i].attempt, expected[i].attempt);
      EXPECT_EQ(StepStateName(found[i].state), StepStateName(expected[i].state));
      EXPECT_EQ(found[i].reason, expected[i].reason);
      EXPECT_EQ(found[i].metrics, expected[i].metrics);
      EXPECT_EQ(found[i].evaluations.size(), expected[i].evaluations.size());
      EXPECT_EQ(found[i].pinned, expected[i].pinned);
      EXPECT_EQ(found[i].pin_note, expected[i].pin_note);
      EXPECT_EQ(found[i].tags, expected[i].tags);
    }
  }

  void ExpectReaderKnowsWhatTheTrainerKnows() {
    const auto steps = checkpointer_->Steps();
    ASSERT_THAT(steps, IsOk());
    ASSERT_THAT(reader_->Refresh(), IsOk());
    EXPECT_THAT(reader_->journal_problem(), IsOk());
    ExpectSame(reader_->Steps(), *steps);
  }

  // The store is opened by a trainer, which knows all; it goes on, and so do readers.
  void ExpectNothingIsLost() {
    Reopen();
    const auto steps = checkpointer_->Steps();
    ASSERT_THAT(steps, IsOk());
    ExpectSame(*steps, known_);
    ExpectReaderKnowsWhatTheTrainerKnows();
    trainer_.SetTo(0);
    ASSERT_THAT(checkpointer_->RestoreLatest(trainer_.state), IsOk());
    EXPECT_TRUE(trainer_.IsAt(3));
    Save(5);
    ExpectReaderKnowsWhatTheTrainerKnows();
  }

  std::vector<std::string> warnings() {
    absl::MutexLock lock(&mutex_);
    return warnings_;
  }

  TestDirectory directory_;
  const std::string store_ = directory_ / "store";
  TestTrainer trainer_;
  absl::Mutex mutex_;
  std::vector<std::string> warnings_;
  std::unique_ptr<AsyncCheckpointer> checkpointer_;
  std::unique_ptr<StoreReader> reader_;  // that has read the store while it was sound
  std::vector<StepInfo> known_;
};

TEST_F(StoreWithoutJournalTest, LosesNothingWithTheIndex) {
  std::filesystem::remove_all(store_ + "/index");
  ExpectNothingIsLost();
  EXPECT_THAT(warnings(), IsEmpty());
}

TEST_F(StoreWithoutJournalTest, LosesNothingByADamagedIndex) {
  for (const auto& file : std::filesystem::directory_iterator(store_ + "/index")) {
    std::ofstream(file.path()) << "garbage";
  }
  ExpectNothingIsLost();
  EXPECT_THAT(warnings(), IsEmpty()) << "it is made anew, and there is nothing to do";
}

// RocksDB would show what lies in the other tables, as if there had never been more.
TEST_F(StoreWithoutJournalTest, LosesNothingByAnIndexWithoutATable) {
  for (int i = 0; i < 2; ++i) {  // what one opening writes to the log is in a table behind the next
    Reopen();
    ASSERT_THAT(checkpointer_->Pin(1, "a better one"), IsOk());
    ASSERT_THAT(checkpointer_->Pin(1, "a good one"), IsOk());
    ASSERT_THAT(checkpointer_->Close(), IsOk());
  }
  int tables = 0;
  for (const auto& file : std::filesystem::directory_iterator(store_ + "/index")) {
    if (file.path().extension() == ".sst") tables += std::filesystem::remove(file.path()) ? 1 : 0;
  }
  ASSERT_GT(tables, 0);
  ExpectNothingIsLost();
  EXPECT_THAT(warnings(), IsEmpty()) << "it is made anew, and there is nothing to do";
}

TEST_F(StoreWithoutJournalTest, LosesNothingWithTheJournalBecauseTheIndexKnowsIt) {
  std::filesystem::remove_all(store_ + "/journal");
  ASSERT_THAT(reader_->Refresh(), IsOk());
  EXPECT_THAT(reader_->journal_problem(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("journal")));
  EXPECT_EQ(reader_->LatestStep()->step, 4) << "by the shards, which say nothing of deletions, pins or damage";
  EXPECT_THAT(reader_->Steps(), SizeIs(3));
  ExpectNothingIsLost();
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("the journal cannot be read and is made anew: it is lost"),
                                      HasSubstr("the journal cannot be read any further"),
                                      AllOf(HasSubstr("was made anew from the index"), HasSubstr("from 0 attempts"))));
}

// The last entry is the one that says that step 4 is damaged.
TEST_F(StoreWithoutJournalTest, LosesNothingWithTheLastEntryBecauseTheIndexKnowsIt) {
  std::string last;
  for (const auto& file : std::filesystem::directory_iterator(store_ + "/journal/0000/00")) {
    const std::string name = file.path().filename();
    if (name.starts_with("00")) last = std::max(last, file.path().string());
  }
  ASSERT_TRUE(std::filesystem::remove(last));
  ExpectNothingIsLost();
  EXPECT_THAT(warnings(), ElementsAre(AllOf(HasSubstr("is made anew"), HasSubstr("the index has applied entry")),
                                      HasSubstr("the index")));
}

TEST_F(StoreWithoutJournalTest, GoesOnWithADamagedEntryThatTheIndexKnows) {
  DamageJournal(store_);
  Reopen();
  const auto steps = checkpointer_->Steps();
  ASSERT_THAT(steps, IsOk());
  ExpectSame(*steps, known_);
  Save(5);
  EXPECT_THAT(warnings(), IsEmpty());
  ASSERT_THAT(reader_->Refresh(), IsOk());
  EXPECT_EQ(reader_->LatestStep()->step, 5) << "who has read the entry before needs it no more";
  auto other = StoreReader::Open(store_);
  ASSERT_THAT(other, IsOk());
  EXPECT_THAT((*other)->journal_problem(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("journal entry 1")));
  EXPECT_EQ((*other)->LatestStep()->step, 5) << "by the shards";
}

// What is in the entries before the damage is known, and of what comes behind it there are the attempts.
TEST_F(StoreWithoutJournalTest, LosesWhatIsRecordedBehindADamagedEntryAndNoStep) {
  std::filesystem::remove_all(store_ + "/index");
  std::string second;
  for (int number = 2; second.empty(); ++number) {  // the one that pins step 1
    const auto path = store_ + fmt::format("/journal/0000/00/{:010}", number);
    ASSERT_TRUE(std::filesystem::exists(path));
    std::ifstream in(path, std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(in), {});
    if (bytes.find("a good one") != std::string::npos) second = path;
  }
  std::ofstream(second) << "garbage";
  auto early = StoreReader::Open(store_);
  ASSERT_THAT(early, IsOk());
  EXPECT_THAT((*early)->journal_problem(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("journal entry")));
  Reopen();
  EXPECT_THAT(warnings(), testing::IsSupersetOf({HasSubstr("the journal cannot be read and is made anew"),
                                                 HasSubstr("was made anew from the journal's entries")}));
  ExpectReaderKnowsWhatTheTrainerKnows();
  const auto steps = checkpointer_->Steps();
  ASSERT_THAT(steps, IsOk());
  ASSERT_GE(steps->size(), 3u);
  EXPECT_FALSE((*steps)[0].pinned);
  trainer_.SetTo(0);
  ASSERT_THAT(checkpointer_->RestoreLatest(trainer_.state), IsOk());
  EXPECT_TRUE(trainer_.IsAt(3)) << "step 4 is found to be damaged again";
}

// The reader takes from the shards what the trainer will.
TEST_F(StoreWithoutJournalTest, IsWhatItsShardsSayWithoutJournalAndIndex) {
  LoseJournalAndIndex(store_);
  FlipBit(ShardPath(store_, 4), 100'000);  // sound again
  ASSERT_THAT(reader_->Refresh(), IsOk());
  EXPECT_THAT(reader_->journal_problem(), StatusIs(absl::StatusCode::kNotFound, testing::_));
  const std::vector<StepInfo> by_shards = reader_->Steps();
  ASSERT_THAT(by_shards, SizeIs(3));
  EXPECT_EQ(by_shards[0].metrics.at("loss"), 1.0);
  Reopen();
  const auto steps = checkpointer_->Steps();
  ASSERT_THAT(steps, IsOk());
  ExpectSame(by_shards, *steps);
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("it is lost"), HasSubstr("cannot be read any further"),
                                      AllOf(HasSubstr("from nothing"), HasSubstr("from 3 attempts"))));
  ExpectReaderKnowsWhatTheTrainerKnows();
  Save(5);
  ExpectReaderKnowsWhatTheTrainerKnows();
}

TEST_F(StoreWithoutJournalTest, NamesTheStepsThatAReaderCouldNotRead) {
  const std::string folder = std::filesystem::path(ShardPath(store_, 3)).parent_path().filename();
  std::filesystem::resize_file(ShardPath(store_, 3), 4096);
  auto reader = StoreReader::Open(store_);
  ASSERT_THAT(reader, IsOk());
  EXPECT_EQ((*reader)->Steps().size(), 4u);
  EXPECT_THAT((*reader)->unread(), IsEmpty()) << "the journal knows of it";
  DamageJournal(store_);
  reader = StoreReader::Open(store_);
  ASSERT_THAT(reader, IsOk());
  EXPECT_EQ((*reader)->Steps().size(), 2u);
  EXPECT_THAT((*reader)->unread(), ElementsAre(AllOf(StartsWith(folder + ": "), HasSubstr("shard-00000-of-00001"))));
}

TEST(StoreReaderWithoutJournal, ListsAStepOfMoreShardsThanMayBeOpenAtOnce) {
  constexpr uint32_t kWorldSize = 200;
  TestDirectory directory;
  storage::ShardIdentity identity{.store = storage::StoreId{{7}},
                                  .step = 5,
                                  .attempt = storage::AttemptId{{1}},
                                  .sequence = 1,
                                  .world_size = kWorldSize};
  const storage::StoreLayout layout(directory.path());
  std::filesystem::create_directories(layout.attempt(5, identity.attempt));
  std::ofstream(layout.identity()) << storage::EncodeStoreIdentity(identity.store);
  for (; identity.rank < kWorldSize; ++identity.rank) ASSERT_THAT(storage::WriteShard(layout, identity, 1), IsOk());
  auto reader = [&] {
    const storage::FewDescriptors few(kWorldSize / 2);
    return StoreReader::OpenUntrusted(directory.path());
  }();
  ASSERT_THAT(reader, IsOk());
  EXPECT_THAT((*reader)->unread(), IsEmpty());
  ASSERT_EQ((*reader)->Steps().size(), 1u);
  EXPECT_EQ((*reader)->Steps()[0].world_size, kWorldSize);
}

}  // namespace
}  // namespace tidemark
