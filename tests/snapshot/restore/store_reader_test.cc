#include "tidemark/store_reader.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "snapshot/stopwatch.h"
#include "storage/store/store.h"
#include "tests/snapshot/journal_calls.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/other_process.h"
#include "tests/snapshot/step_deletion.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/index/index_threads.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using storage::TestDirectory;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class StoreReaderTest : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = AsyncCheckpointer::Open({.directory = store_, .observer = NoWarnings()});
    ASSERT_THAT(opened, IsOk());
    checkpointer_ = *std::move(opened);
    Save(1);
    Save(2);
  }

  void Save(int64_t step) {
    trainer_.SetTo(step);
    auto save = checkpointer_->Save(step, trainer_.state, {.metrics = {{"loss", 1.0 / static_cast<double>(step)}}});
    ASSERT_THAT(save, IsOk());
    ASSERT_THAT(save->committed().Wait(), IsOk());
  }

  TestDirectory directory_;
  const std::string store_ = directory_ / "store";
  TestTrainer trainer_;
  std::unique_ptr<AsyncCheckpointer> checkpointer_;
};

TEST_F(StoreReaderTest, ListsStepsBesideALiveTrainer) {
  auto reader = StoreReader::Open(store_);
  ASSERT_THAT(reader, IsOk());
  EXPECT_THAT((*reader)->journal_problem(), IsOk());
  ASSERT_EQ((*reader)->Steps().size(), 2u);
  EXPECT_EQ((*reader)->LatestStep()->step, 2);
  EXPECT_EQ((*reader)->FindStep(1)->metrics.at("loss"), 1.0);
  Save(3);
  EXPECT_EQ((*reader)->LatestStep()->step, 2);
  ASSERT_THAT((*reader)->Refresh(), IsOk());
  EXPECT_EQ((*reader)->LatestStep()->step, 3);
}

TEST_F(StoreReaderTest, NamesTheAttemptsThatAStepRefersTo) {
  auto again = checkpointer_->Save(3, trainer_.state);  // as step 2: nothing but references
  ASSERT_THAT(again, IsOk());
  ASSERT_THAT(again->committed().Wait(), IsOk());
  auto reader = StoreReader::Open(store_);
  ASSERT_THAT(reader, IsOk());
  EXPECT_THAT(*(*reader)->References(3), Contains((*reader)->FindStep(2)->attempt));
  EXPECT_THAT(*(*reader)->References(3), Not(Contains((*reader)->FindStep(3)->attempt)));
  EXPECT_THAT(*(*reader)->References(1), IsEmpty());
  EXPECT_THAT(*(*reader)->References(99), IsEmpty()) << "no such step";
}

TEST_F(StoreReaderTest, ShowsWhatAStepHolds) {
  auto reader = StoreReader::Open(store_);
  ASSERT_THAT(reader, IsOk());
  auto contents = (*reader)->Contents(2);
  ASSERT_THAT(contents, IsOk());
  ASSERT_EQ(contents->shards.size(), 1u);
  EXPECT_EQ(contents->shards[0].file_bytes, std::filesystem::file_size(ShardPath(store_, 2)));
  ASSERT_EQ(contents->entries.size(), 4u);
  EXPECT_EQ(contents->entries[0].spec.name, "model.weight");
  EXPECT_EQ(contents->entries[0].bytes, 1'200'000u);
  EXPECT_GT(contents->entries[0].stored_bytes, 0u);
  EXPECT_THAT(contents->properties, Contains(testing::Key("compression")));
}

TEST_F(StoreReaderTest, ReadsOneEntry) {
  auto reader = StoreReader::Open(store_);
  ASSERT_THAT(reader, IsOk());
  auto bytes = (*reader)->ReadEntry(1, "epoch");
  ASSERT_THAT(bytes, IsOk());
  int64_t epoch = 0;
  ASSERT_EQ(bytes->size(), sizeof(epoch));
  std::memcpy(&epoch, bytes->data(), sizeof(epoch));
  EXPECT_EQ(epoch, 1);
  EXPECT_THAT((*reader)->ReadEntry(1, "epoc"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("no entry 'epoc'")));
  EXPECT_THAT((*reader)->ReadEntry(9, "epoch"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("step 9")));
}

TEST_F(StoreReaderTest, ReadsAWindowOfAnEntry) {
  auto reader = StoreReader::Open(store_);
  ASSERT_THAT(reader, IsOk());
  auto whole = (*reader)->ReadEntry(1, "model.weight");
  ASSERT_THAT(whole, IsOk());
  const uint64_t size = whole->size();
  for (const auto& [offset, bytes] : {std::pair<uint64_t, uint64_t>{0, size}, {3, 70'000}, {size - 1, 1}, {size, 0}}) {
    auto window = (*reader)->ReadEntry(1, "model.weight", offset, bytes);
    ASSERT_THAT(window, IsOk());
    ASSERT_EQ(window->size(), bytes);
    EXPECT_TRUE(std::equal(window->begin(), window->end(), whole->begin() + static_cast<ptrdiff_t>(offset)));
  }
  for (const auto& [offset, bytes] :
       {std::pair<uint64_t, uint64_t>{0, size + 1}, {size, 1}, {size + 1, 0}, {1, ~uint64_t{0}}}) {
    EXPECT_THAT((*reader)->ReadEntry(1, "model.weight", offset, bytes),
                StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("'model.weight' has " + std::to_string(size))));
  }
  EXPECT_THAT((*reader)->ReadEntry(1, "model.weigh", 0, 1),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no entry 'model.weigh'")));
}

TEST_F(StoreReaderTest, ReadsAWindowBesideADamagedChunk) {
  FlipBit(ShardPath(store_, 1), 100'000);  // in the first of two chunks of 1 MiB
  auto reader = StoreReader::Open(store_);
  ASSERT_THAT(reader, IsOk());
  EXPECT_THAT((*reader)->ReadEntry(1, "model.weight"), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("chunk 0")));
  EXPECT_THAT((*reader)->ReadEntry(1, "model.weight", 1 << 20, 4096), IsOk());
}

TEST_F(StoreReaderTest, FindsASoundStepSoundAndReportsProgressToTheCallersThread) {
  const std::thread::id caller = std::this_thread::get_id();
  auto reader = StoreReader::Open(store_);
  ASSERT_THAT(reader, IsOk());
  VerifyProgress last;
  int calls = 0;
  const Stopwatch stopwatch;
  auto report = (*reader)->Verify(1, [&](const VerifyProgress& progress) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    if (++calls == 1) {
      EXPECT_LT(progress.bytes_done, progress.bytes_total) << "of the first bytes, not of all";
    }
    EXPECT_GE(progress.bytes_done, last.bytes_done);
    last = progress;
  });
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(report->damage, IsEmpty());
  EXPECT_EQ(report->bytes_read, std::filesystem::file_size(ShardPath(store_, 1)));
  EXPECT_EQ(last.bytes_done, report->bytes_read);
  EXPECT_EQ(last.bytes_total, report->bytes_read);
  // Of the first bytes, of the end, and in between at most one in 100 ms.
  EXPECT_LE(calls, 2 + stopwatch.elapsed() / absl::Milliseconds(100));
}

TEST_F(StoreReaderTest, EndsAVerificationThatIsCancelled) {
  const auto report = (*StoreReader::Open(store_))->Verify(1, VerifyOptions{.cancelled = [] { return true; }});
  EXPECT_THAT(report, StatusIs(absl::StatusCode::kCancelled, HasSubstr(ShardPath(store_, 1))));
}

TEST_F(StoreReaderTest, EndsAVerificationWithWhatItsFunctionsThrow) {
  const auto reader = StoreReader::Open(store_);
  ASSERT_THAT(reader, IsOk());
  const size_t threads = storage::CountThreads();
  int calls = 0;
  const auto stop = [&](const VerifyProgress& progress) {
    // At the first call, and at the last one, which is about the whole step.
    if (++calls == 1 || progress.bytes_done == progress.bytes_total) throw std::runtime_error("stop pressed");
  };
  const auto threw_progress = StatusIs(absl::StatusCode::kInternal, "VerifyOptions::progress threw: stop pressed");
  EXPECT_THAT((*reader)->Verify(1, stop), threw_progress);
  EXPECT_EQ(calls, 1) << "not called again";
  EXPECT_THAT((*reader)->Verify(1, stop), threw_progress);
  EXPECT_THAT((*reader)->Verify(1, VerifyOptions{.cancelled = []() -> bool { throw std::runtime_error("gone"); }}),
              StatusIs(absl::StatusCode::kInternal, "VerifyOptions::cancelled threw: gone"));
  EXPECT_THAT((*reader)->Verify(1, VerifyOptions{.cancelled = []() -> bool { throw 7; }}),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("other than a std::exception")));
  EXPECT_LE(storage::CountThreads(threads), threads);
  EXPECT_THAT((*reader)->Verify(1)->damage, IsEmpty());
}

TEST_F(StoreReaderTest, VerifiesASampleOfTheChunks) {
  auto reader = StoreReader::Open(store_);
  ASSERT_THAT(reader, IsOk());
  const auto whole = (*reader)->Verify(1);
  ASSERT_THAT(whole, IsOk());
  EXPECT_EQ(whole->chunks, whole->chunks_total);
  const auto structure = (*reader)->Verify(1, VerifyOptions{.share = 0});
  ASSERT_THAT(structure, IsOk());
  EXPECT_EQ(structure->chunks, 0u);
  EXPECT_EQ(structure->chunks_total, whole->chunks_total);
  EXPECT_LT(structure->bytes_read, whole->bytes_read);
  EXPECT_THAT(structure->damage, IsEmpty());
  for (const double share : {-0.1, 1.1, std::nan("")}) {
    EXPECT_THAT((*reader)->Verify(1, VerifyOptions{.share = share}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("VerifyOptions::share")));
  }
}

TEST_F(StoreReaderTest, NamesTheEntryThatIsDamaged) {
  FlipBit(ShardPath(store_, 1), 100'000);
  auto reader = StoreReader::Open(store_);
  ASSERT_THAT(reader, IsOk());
  auto report = (*reader)->Verify(1);
  ASSERT_THAT(report, IsOk());
  ASSERT_EQ(report->damage.size(), 1u);
  EXPECT_EQ(report->damage[0].path, ShardPath(store_, 1));
  EXPECT_THAT(report->damage[0].entries, ElementsAre("model.weight"));
}

TEST_F(StoreReaderTest, FindsAShardOfAnotherAttemptInItsPlace) {
  std::filesystem::copy_file(ShardPath(store_, 2), ShardPath(store_, 1),
                             std::filesystem::copy_options::overwrite_existing);
  auto reader = StoreReader::Open(store_);
  ASSERT_THAT(reader, IsOk());
  EXPECT_EQ((*reader)->Verify(1)->damage.size(), 1u);
  EXPECT_THAT((*reader)->Contents(1), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("header is that of step 2")));
}

TEST_F(StoreReaderTest, FindsTheStepsByTheirShardsWhenTheJournalIsBroken) {
  checkpointer_.reset();
  DamageJournal(store_);
  auto reader = StoreReader::Open(store_);
  ASSERT_THAT(reader, IsOk());
  EXPECT_THAT((*reader)->journal_problem(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("journal entry 1")));
  ASSERT_EQ((*reader)->Steps().size(), 2u);
  EXPECT_EQ((*reader)->LatestStep()->metrics.at("loss"), 0.5);
  EXPECT_THAT((*reader)->Verify(2)->damage, IsEmpty());
}

TEST_F(StoreReaderTest, FindsNothingWrongWithAStoreThatIsJustBeingMade) {
  const std::string other = directory_ / "other";
  ASSERT_THAT(AsyncCheckpointer::Open({.directory = other}), IsOk());
  LoseJournalAndIndex(other);
  auto reader = StoreReader::Open(other);
  ASSERT_THAT(reader, IsOk());
  EXPECT_THAT((*reader)->journal_problem(), IsOk());
  EXPECT_THAT((*reader)->Steps(), IsEmpty());
}

// It never opens the index.
TEST_F(StoreReaderTest, KnowsEverythingWhateverHappensToTheIndex) {
  ASSERT_THAT(checkpointer_->Pin(1, "the paper's"), IsOk());
  ASSERT_THAT(checkpointer_->Close(), IsOk());
  const auto look = [&] {
    auto reader = StoreReader::Open(store_);
    ASSERT_THAT(reader, IsOk());
    EXPECT_THAT((*reader)->journal_problem(), IsOk());
    ASSERT_EQ((*reader)->Steps().size(), 2u);
    EXPECT_EQ((*reader)->FindStep(1)->pin_note, "the paper's");
    EXPECT_EQ((*reader)->LatestStep()->metrics.at("loss"), 0.5);
    EXPECT_FALSE((*reader)->Phases(1)->empty());
  };
  for (const auto& file : std::filesystem::directory_iterator(store_ + "/index")) {
    std::ofstream(file.path()) << "garbage";
  }
  look();
  std::filesystem::remove_all(store_ + "/index");
  look();
}

TEST_F(StoreReaderTest, ReadsAStoreWhoseIdentityIsDamaged) {
  std::ofstream(store_ + "/store.json") << "{";
  auto reader = StoreReader::Open(store_);
  ASSERT_THAT(reader, IsOk());
  EXPECT_EQ((*reader)->Steps().size(), 2u);
}

TEST_F(StoreReaderTest, RefusesWhatIsNoStoreOrTooNew) {
  EXPECT_THAT(StoreReader::Open(directory_ / "nothing"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("not a Tidemark store")));
  EXPECT_THAT(StoreReader::Open(directory_.path()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("not a Tidemark store")));
  std::ofstream(store_ + "/store.json") << R"({"format": 9, "store_id": "00000000000000000000000000000000"})";
  EXPECT_THAT(StoreReader::Open(store_), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("format 9")));
}

TEST_F(StoreReaderTest, SaysWhereToTurnWithoutAnIdentityWhereThereAreSteps) {
  checkpointer_.reset();
  ASSERT_TRUE(std::filesystem::remove(store_ + "/store.json"));
  const absl::Status status = StoreReader::Open(store_).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound, HasSubstr("store.json")));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound, HasSubstr("there are steps in it, though: a repair")));
  std::filesystem::remove_all(store_ + "/steps");
  std::filesystem::create_directory(store_ + "/steps");
  EXPECT_THAT(StoreReader::Open(store_).status(),
              StatusIs(absl::StatusCode::kNotFound, Not(HasSubstr("there are steps in it"))));
}

TEST_F(StoreReaderTest, ChangesNothing) {
  ASSERT_THAT(checkpointer_->Close(), IsOk());  // or else RocksDB's threads may
  const auto listing = [&] {
    std::vector<std::string> lines;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(store_)) {
      lines.push_back(entry.path().string() + " " + std::to_string(entry.is_regular_file() ? entry.file_size() : 0) +
                      " " + std::to_string(entry.last_write_time().time_since_epoch().count()));
    }
    std::sort(lines.begin(), lines.end());
    return lines;
  };
  const std::vector<std::string> before = listing();
  auto reader = StoreReader::Open(store_);
  ASSERT_THAT(reader, IsOk());
  ASSERT_THAT((*reader)->Verify(2), IsOk());
  reader->reset();
  EXPECT_EQ(listing(), before);
}

// Reports and deletions are made by what storage/ has for them.
class EvaluatedStoreTest : public StoreReaderTest {
 protected:
  void SetUp() override {
    StoreReaderTest::SetUp();
    Save(3);
    ASSERT_THAT(checkpointer_->Close(), IsOk());
    reader_ = *StoreReader::Open(store_);
  }

  // By a worker; no process holds the store.
  void Report(int64_t step, Evaluation evaluation) {
    ASSERT_THAT(OtherProcess(store_).Report(step, std::move(evaluation)), IsOk());
  }

  void Delete(int64_t step) { DeleteStep(store_, *reader_->FindStep(step)); }

  std::unique_ptr<StoreReader> reader_;
};

TEST_F(EvaluatedStoreTest, HasWhatWorkersReportAtOnceThoughNoTrainerIsThere) {
  Report(1, {.evaluator = "validation", .metrics = {{"loss", 0.5}}});
  EXPECT_THAT(reader_->FindStep(1)->evaluations, IsEmpty());
  ASSERT_THAT(reader_->Refresh(), IsOk());
  EXPECT_EQ(reader_->FindStep(1)->metrics, (Metrics{{"loss", 1}, {"validation/loss", 0.5}}));
  EXPECT_EQ(reader_->Steps()[0].evaluations.size(), 1u);
  ASSERT_THAT(reader_->Refresh(), IsOk());
  EXPECT_EQ(reader_->Steps()[0].evaluations.size(), 1u);
}

TEST_F(EvaluatedStoreTest, FindsTheBestOfTheCommittedHealthySteps) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(reader_->BestStep("loss", BestMode::kHighest)->step, 1);
  EXPECT_EQ(reader_->BestStep("loss", BestMode::kLowest)->step, 3);
  EXPECT_THAT(reader_->BestStep("v/loss", BestMode::kLowest),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("finite metric 'v/loss'")));
  Report(1, {.evaluator = "v", .metrics = {{"loss", 0.5}}});
  Report(2, {.evaluator = "v", .metrics = {{"loss", 0.5}}});
  Report(3, {.evaluator = "v", .metrics = {{"loss", nan}}});
  ASSERT_THAT(reader_->Refresh(), IsOk());
  EXPECT_EQ(reader_->BestStep("v/loss", BestMode::kLowest)->step, 2) << "of equal ones the later";
  EXPECT_EQ(reader_->BestStep("v/loss", BestMode::kHighest)->step, 2);
  Report(2, {.evaluator = "v", .metrics = {{"loss", 0.5}}, .unhealthy = "spike"});
  ASSERT_THAT(reader_->Refresh(), IsOk());
  EXPECT_EQ(reader_->BestStep("v/loss", BestMode::kLowest)->step, 1);
  Delete(1);
  ASSERT_THAT(reader_->Refresh(), IsOk());
  EXPECT_THAT(reader_->BestStep("v/loss", BestMode::kLowest),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("v/loss")));
}

TEST_F(EvaluatedStoreTest, TellsTheBestModeByRecordOrName) {
  EXPECT_EQ(reader_->BestStep("loss")->step, 3);
  EXPECT_EQ(reader_->BestModeOf("x"), std::nullopt);
  EXPECT_THAT(reader_->BestStep("x"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'x'")));
  {
    auto store =
        storage::Store::Open(storage::PosixFileSystem(), {.directory = store_, .warn = [](std::string_view) {}});
    ASSERT_THAT(store, IsOk());
    ASSERT_THAT((*store)->AddBestModes({{"loss", BestMode::kHighest}}), IsOk());
  }
  ASSERT_THAT(reader_->Refresh(), IsOk());
  EXPECT_EQ(reader_->BestStep("loss")->step, 1);
  EXPECT_EQ(reader_->recorded_best_modes().at("loss"), BestMode::kHighest);
}

TEST_F(EvaluatedStoreTest, FindsTheLatestStepThatNoEvaluatorDistrusts) {
  EXPECT_EQ(reader_->LatestHealthyStep()->step, 3);
  Report(3, {.evaluator = "v", .unhealthy = "spike"});
  ASSERT_THAT(reader_->Refresh(), IsOk());
  EXPECT_EQ(reader_->LatestHealthyStep()->step, 2);
  for (int64_t step : {1, 2}) Report(step, {.evaluator = "v", .unhealthy = "spike"});
  ASSERT_THAT(reader_->Refresh(), IsOk());
  EXPECT_THAT(reader_->LatestHealthyStep(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("is healthy")));
}

TEST_F(EvaluatedStoreTest, PassesOverStepsWithoutFilesAndSaysSo) {
  Delete(2);
  {
    auto store = storage::Store::Open(storage::PosixFileSystem(),
                                      {.directory = store_, .warn = [](std::string_view) {}, .read = {}});
    ASSERT_THAT(store, IsOk());
    ASSERT_THAT((*store)->RecordUnsaved({.step = 4, .state = StepState::kUnsaved}), IsOk());
  }
  ASSERT_THAT(reader_->Refresh(), IsOk());
  EXPECT_EQ(reader_->Steps().size(), 4u);
  EXPECT_EQ(reader_->FindStep(2)->state, StepState::kDeleted);
  EXPECT_EQ(reader_->LatestStep()->step, 3);
  const auto deleted = StatusIs(absl::StatusCode::kNotFound, "step 2 was deleted: too old");
  EXPECT_THAT(reader_->Contents(2), deleted);
  EXPECT_THAT(reader_->ReadEntry(2, "epoch"), deleted);
  EXPECT_THAT(reader_->Verify(2), deleted);
  EXPECT_THAT(reader_->Contents(4), StatusIs(absl::StatusCode::kNotFound, "step 4 was evaluated and never saved"));
}

TEST_F(EvaluatedStoreTest, IsReadByWhoMayNotWriteToIt) {
  if (storage::kThreadSanitizer) GTEST_SKIP() << storage::kNoThreadsInChild;
  const auto make_writable = [&](bool writable) {
    using std::filesystem::perms;
    const auto options = writable ? std::filesystem::perm_options::add : std::filesystem::perm_options::remove;
    std::filesystem::permissions(store_, perms::owner_write, options);
    for (const auto& entry : std::filesystem::recursive_directory_iterator(store_)) {
      std::filesystem::permissions(entry.path(), perms::owner_write, options);
    }
  };
  make_writable(false);
  reader_.reset();
  checkpointer_.reset();
  storage::EndIndexThreads();
  const std::string seen = storage::InChild([&]() -> std::string {
    if (!storage::GiveUpRights()) return "may not give up its rights";
    if (std::ofstream(store_ + "/journal/x").is_open()) return "it may write";
    auto reader = StoreReader::Open(store_);
    absl::Status status = reader.status();
    if (status.ok()) status = (*reader)->Refresh();
    if (status.ok()) status = (*reader)->journal_problem();
    return status.ok() ? std::to_string((*reader)->Steps().size()) + " steps" : status.ToString();
  });
  make_writable(true);
  EXPECT_EQ(seen, "3 steps");
}

TEST_F(EvaluatedStoreTest, ReadsNothingByTheJournalOfAnotherStore) {
  {
    auto other = AsyncCheckpointer::Open({.directory = directory_ / "other", .observer = NoWarnings()});
    ASSERT_THAT(other, IsOk());
    for (const int64_t step : {1, 2, 3, 4}) {
      trainer_.SetTo(step + 100);
      ASSERT_THAT((*other)->Save(step, trainer_.state)->committed().Wait(), IsOk());
    }
  }
  std::filesystem::remove_all(store_ + "/journal");
  std::filesystem::copy(directory_ / "other/journal", store_ + "/journal", std::filesystem::copy_options::recursive);
  for (const bool is_open : {true, false}) {
    if (!is_open) reader_ = *StoreReader::Open(store_);
    ASSERT_THAT(reader_->Refresh(), IsOk());
    EXPECT_THAT(reader_->journal_problem(),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("the journal belongs to store ")));
    EXPECT_EQ(reader_->Steps().size(), 3u) << "from the shards";
    const auto restored = reader_->RestoreLatest(trainer_.state);
    ASSERT_THAT(restored, IsOk());
    EXPECT_EQ(restored->step, 3);
    EXPECT_TRUE(trainer_.IsAt(3));
  }
}

}  // namespace
}  // namespace tidemark
