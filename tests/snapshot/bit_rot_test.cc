// Every single bit of a small store's shards changed, every length that a shard can be cut to, sectors that are in
// another's place or as an earlier save had them, files that are gone, doubled or somebody else's: what a restore gives
// then is an error or the right answer, never wrong bytes; a verification finds it; and restoring the latest step falls
// back past it and says so.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "snapshot/restore.h"
#include "storage/io/draft_file_system.h"
#include "storage/manifest/store.h"
#include "storage/shard/shard_verify.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/file_tree.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark {
namespace {

using storage::DraftFileSystem;
using storage::FileTree;
using storage::IsOk;
using storage::StatusIs;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr size_t kSector = 512;

constexpr storage::ShardReadOptions kRead{.codec_threads = 1, .io = storage::IoQueueKind::kThreads, .io_depth = 2};

// A tensor of it never changes, so that later steps refer to an earlier one's chunks.
struct RotTrainer : TestTrainer {
  RotTrainer() : TestTrainer(700), frozen(500) {
    for (size_t i = 0; i < frozen.size(); ++i) frozen[i] = static_cast<float>(i * i % 977) / 977;
    frozen_as_made = frozen;
    state.AddTensor("model.frozen", Dtype::kFloat32, {500}, frozen.data());
  }
  bool IsAt(int64_t step) const { return frozen == frozen_as_made && TestTrainer::IsAt(step); }

  std::vector<float> frozen, frozen_as_made;
};

// What became of so many changes.
struct Outcomes {
  std::map<std::string, int64_t> counts;
  void Print(const char* what) const {
    std::printf("%s:", what);
    for (const auto& [outcome, count] : counts) {
      std::printf(" %lld %s;", static_cast<long long>(count), outcome.c_str());
    }
    std::printf("\n");
  }
};

// Steps 5, 10, 20 and 30; 5 and 10 stand on their own, the others refer to 10. Step 30 was saved twice.
class BitRotTest : public testing::Test {
 protected:
  struct Step {
    storage::StepRecord record;
    storage::ShardIdentity identity;
    std::string shard;  // below the store's directory
  };

  static void SetUpTestSuite() {
    home_ = new storage::TestDirectory();
    DraftFileSystem files(storage::PosixFileSystem(), home_->path());
    const std::string store = StorePath();
    RotTrainer trainer;
    const auto save = [&](bool reuse, std::vector<int64_t> steps) {
      auto checkpointer = OpenOn(files, nullptr, reuse);
      ASSERT_THAT(checkpointer, IsOk());
      for (const int64_t step : steps) {
        trainer.SetTo(step);
        ASSERT_THAT((*checkpointer)->Save(step, trainer.state, {.overwrite = true})->committed().Wait(), IsOk());
      }
      ASSERT_THAT((*checkpointer)->Close(), IsOk());
    };
    save(false, {5, 10});
    save(true, {20});
    // The first attempt.
    trainer.SetTo(29);
    {
      auto checkpointer = OpenOn(files, nullptr, true);
      ASSERT_THAT(checkpointer, IsOk());
      ASSERT_THAT((*checkpointer)->Save(30, trainer.state)->committed().Wait(), IsOk());
    }
    const FileTree earlier = storage::ReadTree(files, store);
    save(true, {30});
    tree_ = new FileTree(storage::ReadTree(files, store));
    for (const auto& [path, bytes] : earlier.files) {
      if (path.starts_with("/steps/0000000030-")) stale_ = new std::string(bytes);
    }
    ASSERT_NE(stale_, nullptr);
    auto opened = storage::Store::Open(files, {.directory = store, .warn = [](std::string_view) {}, .read = kRead});
    ASSERT_THAT(opened, IsOk());
    id_ = (*opened)->id();
    steps_ = new std::map<int64_t, Step>();
    ASSERT_THAT((*opened)->manifest().ForEach([](storage::StepRecord record) {
      const storage::AttemptId attempt{*storage::FromHex(record.info.attempt)};
      Step& step = (*steps_)[record.info.step];
      step.identity = {.store = id_, .step = record.info.step, .attempt = attempt, .sequence = record.info.sequence};
      step.shard = storage::StoreLayout("").shard(record.info.step, attempt, 0, 1);
      step.record = std::move(record);
      return true;
    }),
                IsOk());
    ASSERT_EQ(steps_->size(), 4u);
    ASSERT_EQ(steps_->at(30).record.references.size(), 1u);
    ASSERT_EQ(steps_->at(30).record.references[0].step, 10);
  }

  static void TearDownTestSuite() {
    delete steps_;
    delete stale_;
    delete tree_;
    delete home_;
  }

  static std::string StorePath() { return *home_ / "store"; }

  static absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> OpenOn(storage::FileSystem& files, std::string* warnings,
                                                                   bool reuse = true) {
    static std::mutex mutex;
    return CheckpointerOnFileSystem::Open(files, {.directory = StorePath(),
                                                  .compression = Compression::kSpace,
                                                  .reuse = reuse,
                                                  .chunk_bytes = 4096,
                                                  .codec_threads = 1,
                                                  .io = IoBackend::kThreads,
                                                  .io_depth = 2,
                                                  .on_warning = [warnings](std::string_view line) {
                                                    std::lock_guard lock(mutex);
                                                    if (warnings != nullptr) *warnings += std::string(line) + "\n";
                                                  }});
  }

  BitRotTest() : files_(storage::PosixFileSystem(), home_->path()) { storage::WriteTree(files_, StorePath(), *tree_); }

  const Step& step(int64_t number) const { return steps_->at(number); }
  std::string PathOf(int64_t number) const { return StorePath() + step(number).shard; }
  const std::string& BytesOf(int64_t number) const { return tree_->files.at(step(number).shard); }

  // The step's file, to be changed in place.
  std::unique_ptr<storage::File> OpenShard(int64_t number) {
    auto file = files_.OpenForRewrite(PathOf(number), /*direct=*/false);
    EXPECT_THAT(file, IsOk());
    return *std::move(file);
  }

  static void Put(storage::File& file, uint64_t offset, std::string_view bytes) {
    ASSERT_THAT(file.WriteAt(offset, std::as_bytes(std::span(bytes))), IsOk());
  }

  // "right" or the code of the error; what is neither fails the test.
  std::string RestoreOf(int64_t number) {
    const storage::StoreLayout layout(StorePath());
    RotTrainer trainer;
    trainer.SetTo(1);
    const RestoreResult result =
        RestoreAttempt({files_, layout, id_, kRead, {}}, step(number).record, trainer.state, {});
    if (result.status.ok()) {
      EXPECT_TRUE(trainer.IsAt(number)) << "WRONG BYTES were restored";
      return "right";
    }
    EXPECT_EQ(result.cause, RestoreResult::Cause::kCheckpoint) << result.status;
    // Values are given out only when all of it is sound.
    EXPECT_EQ(trainer.epoch, 1);
    return absl::StatusCodeToString(result.status.code());
  }

  bool VerifyFinds(int64_t number) {
    const auto verified =
        storage::VerifyShard(files_, PathOf(number), StorePath() + "/steps", &step(number).identity, kRead);
    EXPECT_THAT(verified, IsOk());
    if (!verified.ok() || !verified->damage.empty()) return verified.ok();
    const storage::StoreLayout layout(StorePath());
    return !OpenRecorded({files_, layout, id_, kRead, {}}, step(number).record).ok();
  }

  // How many of the changes are tried where everything is slow.
  static size_t Stride(size_t under_sanitizers) {
    return storage::kThreadSanitizer || storage::kAddressSanitizer ? under_sanitizers : 1;
  }

  static storage::TestDirectory* home_;
  static FileTree* tree_;
  static std::string* stale_;  // the shard of the first attempt at step 30
  static storage::StoreId id_;
  static std::map<int64_t, Step>* steps_;

  DraftFileSystem files_;
};

storage::TestDirectory* BitRotTest::home_ = nullptr;
FileTree* BitRotTest::tree_ = nullptr;
std::string* BitRotTest::stale_ = nullptr;
storage::StoreId BitRotTest::id_;
std::map<int64_t, BitRotTest::Step>* BitRotTest::steps_ = nullptr;

TEST_F(BitRotTest, IsFoundAndNeverRestoredWhicheverBitOfAShardChanges) {
  Outcomes outcomes;
  const size_t stride = Stride(997);
  for (const int64_t number : {30, 10}) {
    const std::string& bytes = BytesOf(number);
    const auto file = OpenShard(number);
    for (size_t bit = 0; bit < bytes.size() * 8; bit += stride) {
      SCOPED_TRACE(testing::Message() << "step " << number << ", byte " << bit / 8 << ", bit " << bit % 8);
      const char flipped = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
      Put(*file, bit / 8, {&flipped, 1});
      const std::string restored = RestoreOf(30);
      EXPECT_TRUE(VerifyFinds(number)) << "a verification finds nothing";
      ++outcomes.counts["restored " + restored];
      Put(*file, bit / 8, {&bytes[bit / 8], 1});
      if (HasFailure()) return;
    }
  }
  outcomes.Print("bits flipped");
}

TEST_F(BitRotTest, IsFoundAndNeverRestoredWhateverLengthAShardIsCutTo) {
  Outcomes outcomes;
  const std::string& bytes = BytesOf(30);
  const auto file = OpenShard(30);
  for (size_t length = 0; length < bytes.size(); length += Stride(61)) {
    SCOPED_TRACE(testing::Message() << "cut to " << length);
    ASSERT_THAT(file->Truncate(length), IsOk());
    const std::string restored = RestoreOf(30);
    EXPECT_NE(restored, "right");
    EXPECT_TRUE(VerifyFinds(30));
    ++outcomes.counts["restored " + restored];
    Put(*file, length, std::string_view(bytes).substr(length));
    if (HasFailure()) return;
  }
  // Nor may anything stand behind the footer.
  for (const size_t more : {1, 511, 512, 4095, 4096, 8192}) {
    Put(*file, bytes.size(), std::string(more, '\0'));
    EXPECT_NE(RestoreOf(30), "right") << more;
    EXPECT_TRUE(VerifyFinds(30)) << more;
    ++outcomes.counts["made longer"];
    ASSERT_THAT(file->Truncate(bytes.size()), IsOk());
  }
  EXPECT_EQ(RestoreOf(30), "right");
  outcomes.Print("truncations");
}

TEST_F(BitRotTest, IsFoundAndNeverRestoredWhicheverTwoSectorsAreSwapped) {
  Outcomes outcomes;
  const std::string& bytes = BytesOf(30);
  const std::string_view view = bytes;
  const auto file = OpenShard(30);
  for (size_t i = 0; i < bytes.size(); i += kSector) {
    for (size_t j = i + kSector; j < bytes.size(); j += kSector * Stride(5)) {
      if (view.substr(i, kSector) == view.substr(j, kSector)) {
        ++outcomes.counts["alike"];
        continue;
      }
      SCOPED_TRACE(testing::Message() << "sectors at " << i << " and " << j);
      Put(*file, i, view.substr(j, kSector));
      Put(*file, j, view.substr(i, kSector));
      ++outcomes.counts["restored " + RestoreOf(30)];
      EXPECT_TRUE(VerifyFinds(30));
      Put(*file, i, view.substr(i, kSector));
      Put(*file, j, view.substr(j, kSector));
      if (HasFailure()) return;
    }
  }
  outcomes.Print("pairs of sectors swapped");
}

TEST_F(BitRotTest, IsFoundAndNeverRestoredWhicheverSectorIsAnEarlierSaves) {
  Outcomes outcomes;
  const std::string& bytes = BytesOf(30);
  const auto file = OpenShard(30);
  const auto try_it = [&](const std::string& mixed) {
    if (mixed == bytes) {
      ++outcomes.counts["alike"];
      return;
    }
    Put(*file, 0, mixed);
    ASSERT_THAT(file->Truncate(mixed.size()), IsOk());
    ++outcomes.counts["restored " + RestoreOf(30)];
    EXPECT_TRUE(VerifyFinds(30));
    Put(*file, 0, bytes);
    ASSERT_THAT(file->Truncate(bytes.size()), IsOk());
  };
  for (const std::string& other : {*stale_, BytesOf(20), BytesOf(10), BytesOf(5)}) {
    const size_t end = std::min(other.size(), bytes.size());
    for (size_t at = 0; at < end; at += kSector) {
      SCOPED_TRACE(testing::Message() << "sector at " << at);
      // One that was never written, and a write that never came beyond it.
      try_it(std::string(bytes).replace(at, kSector, other.substr(at, kSector)));
      try_it(bytes.substr(0, at) + other.substr(at));
      try_it(other.substr(0, at) + bytes.substr(at));
      if (HasFailure()) return;
    }
  }
  outcomes.Print("stale sectors, and prefixes and rests of them");
}

TEST_F(BitRotTest, IsFoundAndNeverRestoredWhateverShardLiesInAnothersPlace) {
  Outcomes outcomes;
  // Another store with a step 30 of the very same contents.
  DraftFileSystem elsewhere(storage::PosixFileSystem(), home_->path());
  {
    auto checkpointer = OpenOn(elsewhere, nullptr);
    ASSERT_THAT(checkpointer, IsOk());
    RotTrainer trainer;
    trainer.SetTo(30);
    ASSERT_THAT((*checkpointer)->Save(30, trainer.state)->committed().Wait(), IsOk());
  }
  std::vector<std::string> others = {
      *stale_, BytesOf(5), BytesOf(10), BytesOf(20), std::string(), "no shard", std::string(BytesOf(30).size(), '\0')};
  for (const auto& [path, bytes] : storage::ReadTree(elsewhere, StorePath()).files) {
    if (path.ends_with(".tmk")) others.push_back(bytes);
  }
  ASSERT_EQ(others.size(), 8u);
  for (const std::string& other : others) {
    storage::PutFile(files_, PathOf(30), other);
    const std::string restored = RestoreOf(30);
    EXPECT_NE(restored, "right");
    EXPECT_TRUE(VerifyFinds(30));
    ++outcomes.counts["restored " + restored];
  }
  outcomes.Print("shards of another step, attempt or store, and none");
}

// Restores the latest step through a checkpointer that stays open, and takes the marks back afterwards.
class FallbackTest : public BitRotTest {
 protected:
  FallbackTest() {
    auto opened = OpenOn(files_, &warnings_);
    EXPECT_THAT(opened, IsOk());
    checkpointer_ = *std::move(opened);
  }

  // Where the latest is not what was restored: it says so, in the report, in a warning and in the record.
  void ExpectRightAnswer(int64_t oldest, Outcomes* outcomes) {
    warnings_.clear();
    trainer_.SetTo(1);
    const auto report = checkpointer_->RestoreLatest(trainer_.state);
    ASSERT_THAT(report, IsOk());
    EXPECT_TRUE(trainer_.IsAt(report->step)) << "WRONG BYTES were restored";
    EXPECT_GE(report->step, oldest);
    ++outcomes->counts["restored step " + std::to_string(report->step)];
    size_t passed = 0;
    for (const auto& [number, step] : *steps_) {
      if (number <= report->step) continue;
      EXPECT_THAT(warnings_, HasSubstr("step " + std::to_string(number) + " is "));
      const auto steps = checkpointer_->Steps();
      ASSERT_THAT(steps, IsOk());
      const auto info = std::find_if(steps->begin(), steps->end(), [&](const StepInfo& i) { return i.step == number; });
      ASSERT_NE(info, steps->end());
      EXPECT_TRUE(info->state == StepState::kDamaged || info->state == StepState::kLost);
      ++passed;
    }
    ASSERT_EQ(report->passed_over.size(), passed);
    if (passed > 0) {
      EXPECT_EQ(report->passed_over[0].first, 30);
    } else {
      EXPECT_EQ(warnings_, "");
    }
  }

  // What was damaged is whole again.
  void TakeMarksBack() {
    for (const auto& [number, step] : *steps_) {
      ASSERT_THAT(checkpointer_->Restore(number, trainer_.state), IsOk());
      ASSERT_TRUE(trainer_.IsAt(number));
    }
  }

  std::string warnings_;
  std::unique_ptr<AsyncCheckpointer> checkpointer_;
  RotTrainer trainer_;
};

TEST_F(FallbackTest, PassesOverTheLatestStepWhicheverOfItsBytesChanges) {
  const std::string& bytes = BytesOf(30);
  const auto file = OpenShard(30);
  Outcomes outcomes;
  // Zeros are the same to everybody: of them a few.
  size_t zeros = 0;
  for (size_t at = 0; at < bytes.size(); at += Stride(211)) {
    if (bytes[at] == 0 && zeros++ % 64 != 0) continue;
    SCOPED_TRACE(testing::Message() << "byte " << at);
    const char changed = static_cast<char>(bytes[at] ^ (1 << at % 8));
    Put(*file, at, {&changed, 1});
    ExpectRightAnswer(20, &outcomes);
    Put(*file, at, {&bytes[at], 1});
    ASSERT_THAT(checkpointer_->Restore(30, trainer_.state), IsOk());
    ASSERT_TRUE(trainer_.IsAt(30));
    if (HasFailure()) return;
  }
  outcomes.Print("bytes of the latest step changed");
}

TEST_F(FallbackTest, PassesOverAllThatReferToWhatIsDamaged) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const std::string& bytes = BytesOf(10);
  const auto file = OpenShard(10);
  Outcomes outcomes;
  for (int i = 0; i < (Stride(2) > 1 ? 20 : 400); ++i) {
    const size_t at = random() % bytes.size();
    SCOPED_TRACE(testing::Message() << "byte " << at);
    const char changed = static_cast<char>(bytes[at] ^ (1 << random() % 8));
    Put(*file, at, {&changed, 1});
    ExpectRightAnswer(5, &outcomes);
    Put(*file, at, {&bytes[at], 1});
    TakeMarksBack();
    if (HasFailure()) return;
  }
  outcomes.Print("bytes of the step that others refer to changed");
}

TEST_F(FallbackTest, PassesOverWhateverFileIsGoneOrEmpty) {
  Outcomes outcomes;
  for (const auto& [path, bytes] : tree_->files) {
    if (!path.starts_with("/steps/")) continue;
    for (const bool gone : {true, false}) {
      SCOPED_TRACE(path + (gone ? " is gone" : " is empty"));
      if (gone) {
        ASSERT_THAT(files_.RemoveFile(StorePath() + path), IsOk());
      } else {
        storage::PutFile(files_, StorePath() + path, "");
      }
      ExpectRightAnswer(5, &outcomes);
      storage::PutFile(files_, StorePath() + path, bytes);
      TakeMarksBack();
    }
  }
  outcomes.Print("files removed or emptied");
}

// What opening makes of names that do not belong where they are.
class StrangeFilesTest : public BitRotTest {
 protected:
  void ExpectLatestAfterOpening(int64_t expected) {
    std::string warnings;
    RotTrainer trainer;
    auto opened = OpenOn(files_, &warnings);
    ASSERT_THAT(opened, IsOk());
    const auto report = (*opened)->RestoreLatest(trainer.state);
    ASSERT_THAT(report, IsOk());
    EXPECT_EQ(report->step, expected);
    EXPECT_TRUE(trainer.IsAt(report->step)) << "WRONG BYTES were restored";
    warnings_ = warnings;
    // The next save works.
    trainer.SetTo(100);
    ASSERT_THAT((*opened)->Save(100, trainer.state, {.overwrite = true})->committed().Wait(), IsOk());
  }
  std::string FolderOf(int64_t number) const {
    return StorePath() + "/steps/" + storage::StepFolderName(number, step(number).identity.attempt);
  }
  void CopyStep(int64_t from, const std::string& folder) {
    ASSERT_THAT(files_.CreateDirectory(folder), IsOk());
    storage::PutFile(files_, folder + "/shard-00000-of-00001.tmk", BytesOf(from));
  }
  std::string warnings_;
};

TEST_F(StrangeFilesTest, AFolderThatIsGoneIsALostStepAndSaid) {
  ASSERT_THAT(storage::RemoveTree(files_, FolderOf(30)), IsOk());
  ExpectLatestAfterOpening(20);
  EXPECT_THAT(warnings_, HasSubstr("step 30 is lost"));
}

TEST_F(StrangeFilesTest, ACopyOfAStepUnderAnotherNumberIsNoStep) {
  CopyStep(30, StorePath() + "/steps/" + storage::StepFolderName(40, step(30).identity.attempt));
  ExpectLatestAfterOpening(30);
}

TEST_F(StrangeFilesTest, ACopyOfAStepUnderAnotherAttemptIsNoStep) {
  CopyStep(30, StorePath() + "/steps/" + storage::StepFolderName(40, storage::AttemptId{{7}}));
  CopyStep(20, StorePath() + "/steps/" + storage::StepFolderName(20, storage::AttemptId{{8}}));
  ExpectLatestAfterOpening(30);
}

TEST_F(StrangeFilesTest, AnEarlierAttemptThatIsPutBackDoesNotReplaceTheLaterOne) {
  const auto header = storage::DecodeShardHeader(std::as_bytes(std::span(*stale_)).first(4096));
  ASSERT_THAT(header, IsOk());
  const std::string folder = StorePath() + "/steps/" + storage::StepFolderName(30, header->identity.attempt);
  ASSERT_THAT(files_.CreateDirectory(folder), IsOk());
  storage::PutFile(files_, folder + "/shard-00000-of-00001.tmk", *stale_);
  ExpectLatestAfterOpening(30);
}

TEST_F(StrangeFilesTest, FilesOfOthersAreLeftWhereTheyAre) {
  for (const std::string& path : {StorePath() + "/notes.txt", StorePath() + "/steps/notes.txt",
                                  FolderOf(30) + "/core.4711", FolderOf(30) + "/shard-00000-of-00002.tmk"}) {
    storage::PutFile(files_, path, "somebody's");
  }
  ASSERT_THAT(files_.CreateDirectory(StorePath() + "/steps/0000000030"), IsOk());
  ExpectLatestAfterOpening(30);
  EXPECT_THAT(warnings_, HasSubstr("notes.txt is not an attempt"));
  for (const std::string& path :
       {StorePath() + "/notes.txt", StorePath() + "/steps/notes.txt", FolderOf(30) + "/core.4711"}) {
    EXPECT_THAT(storage::ReadSmallFile(files_, path, 100), IsOk());
  }
}

}  // namespace
}  // namespace tidemark
