// Every single bit of a small store's shards changed, every length that a shard can be cut to, sectors that are in
// another's place or as an earlier save had them: what a restore gives then is an error or the right answer, never
// wrong bytes; a verification finds it; and restoring the latest step falls back past it and says so.
//
// Bits, lengths and bytes are drawn; make faults-long takes all.

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/rotting_store.h"
#include "tests/storage/io/drawn_cases.h"

namespace tidemark {
namespace {

using storage::DraftFileSystem;
using storage::IsOk;
using storage::OneOf;
using testing::HasSubstr;

constexpr size_t kSector = 512;

using BitRotTest = RottingStoreTest;

// Several threads, each with a store of its own: what takes the time is that each restore and each verification has
// threads to wait for.
TEST_F(BitRotTest, IsFoundAndNeverRestoredWhicheverBitOfAShardChanges) {
  constexpr size_t kThreads = 6;
  const size_t stride = OneOf(23, 1'997);
  const size_t first = random_() % stride;
  std::mutex mutex;
  Outcomes outcomes;
  const auto flip = [&](int64_t number, size_t thread) {
    DraftFileSystem files(storage::PosixFileSystem(), home_->path());
    storage::WriteTree(files, StorePath(), *tree_);
    const std::string& bytes = BytesOf(number);
    const auto file = OpenShardOn(files, number);
    const int64_t restored = number == 10 ? 30 : number;  // which refers to it
    std::map<std::string, int64_t> counts;
    for (size_t bit = first + thread * stride; bit < bytes.size() * 8 && !HasFailure(); bit += kThreads * stride) {
      SCOPED_TRACE(testing::Message() << "step " << number << ", byte " << bit / 8 << ", bit " << bit % 8);
      const char flipped = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
      Put(*file, bit / 8, {&flipped, 1});
      ++counts["restored " + RestoreOn(files, restored)];
      EXPECT_TRUE(VerifyFindsOn(files, number)) << "a verification finds nothing";
      Put(*file, bit / 8, {&bytes[bit / 8], 1});
    }
    std::lock_guard lock(mutex);
    for (const auto& [outcome, count] : counts) outcomes.counts[outcome] += count;
  };
  for (const int64_t number : {5, 10, 20, 30}) {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kThreads; ++i) threads.emplace_back(flip, number, i);
    for (std::thread& thread : threads) thread.join();
  }
  outcomes.Print("bits flipped");
}

// Of the one that is referred to see ReferredRotTest.
TEST_F(BitRotTest, IsFoundAndNeverRestoredWhateverLengthAShardIsCutTo) {
  Outcomes outcomes;
  for (const int64_t number : {5, 20, 30}) {
    const std::string& bytes = BytesOf(number);
    const auto file = OpenShard(number);
    const size_t stride = OneOf(21, 61);
    for (size_t length = random_() % stride; length < bytes.size(); length += stride) {
      SCOPED_TRACE(testing::Message() << "step " << number << ", cut to " << length);
      ASSERT_THAT(file->Truncate(length), IsOk());
      const std::string restored = RestoreOf(number);
      EXPECT_NE(restored, "right");
      EXPECT_TRUE(VerifyFinds(number));
      ++outcomes.counts["restored " + restored];
      Put(*file, length, std::string_view(bytes).substr(length));
      if (HasFailure()) return;
    }
    // Nor may anything stand behind the footer.
    for (const size_t more : {1, 511, 512, 4095, 4096, 8192}) {
      Put(*file, bytes.size(), std::string(more, '\0'));
      EXPECT_NE(RestoreOf(number), "right") << more;
      EXPECT_TRUE(VerifyFinds(number)) << more;
      ++outcomes.counts["made longer"];
      ASSERT_THAT(file->Truncate(bytes.size()), IsOk());
    }
    EXPECT_EQ(RestoreOf(number), "right");
  }
  outcomes.Print("truncations");
}

TEST_F(BitRotTest, IsFoundAndNeverRestoredWhicheverTwoSectorsAreSwapped) {
  Outcomes outcomes;
  const std::string& bytes = BytesOf(30);
  const std::string_view view = bytes;
  const auto file = OpenShard(30);
  for (size_t i = 0; i < bytes.size(); i += kSector) {
    for (size_t j = i + kSector; j < bytes.size(); j += kSector * OneOf(1, 5)) {
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
class FallbackTest : public RottingStoreTest {
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
      const auto info =
          std::find_if(steps->begin(), steps->end(), [step = number](const StepInfo& i) { return i.step == step; });
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
  const size_t stride = OneOf(5, 211);
  for (size_t at = random_() % stride; at < bytes.size(); at += stride) {
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

TEST_F(FallbackTest, PassesOverTheLatestStepWhereItIsCutSwappedOrStale) {
  SCOPED_TRACE(testing::Message() << "seed " << seed_);
  const std::string& bytes = BytesOf(30);
  const auto file = OpenShard(30);
  Outcomes outcomes;
  const auto try_it = [&](const std::string& rotten) {
    if (rotten == bytes) return;
    Put(*file, 0, rotten);
    ASSERT_THAT(file->Truncate(rotten.size()), IsOk());
    ExpectRightAnswer(20, &outcomes);
    Put(*file, 0, bytes);
    ASSERT_THAT(file->Truncate(bytes.size()), IsOk());
    ASSERT_THAT(checkpointer_->Restore(30, trainer_.state), IsOk());
    ASSERT_TRUE(trainer_.IsAt(30));
  };
  for (const std::string& other : {*stale_, BytesOf(20), BytesOf(10), BytesOf(5)}) try_it(other);
  const auto draw_sector = [&] { return random_() % (bytes.size() / kSector) * kSector; };
  for (int i = 0; i < static_cast<int>(200 / OneOf(5, 40)); ++i) {
    const size_t at = draw_sector();
    const size_t with = draw_sector();
    SCOPED_TRACE(testing::Message() << "cut within, swapped or stale: the sectors at " << at << " and " << with);
    try_it(bytes.substr(0, at + random_() % kSector));
    std::string swapped = bytes;
    swapped.replace(at, kSector, bytes, with, kSector).replace(with, kSector, bytes, at, kSector);
    try_it(swapped);
    if (at < stale_->size()) {
      try_it(bytes.substr(0, at) + stale_->substr(at));
      try_it(stale_->substr(0, at) + bytes.substr(at));
    }
    if (HasFailure()) return;
  }
  outcomes.Print("the latest step cut, with sectors swapped, and stale");
}

TEST_F(FallbackTest, PassesOverAllThatReferToWhatIsDamaged) {
  SCOPED_TRACE(testing::Message() << "seed " << seed_);
  const std::string& bytes = BytesOf(10);
  const auto file = OpenShard(10);
  Outcomes outcomes;
  for (int i = 0; i < static_cast<int>(400 / OneOf(1, 20)); ++i) {
    const size_t at = random_() % bytes.size();
    SCOPED_TRACE(testing::Message() << "byte " << at);
    const char changed = static_cast<char>(bytes[at] ^ (1 << random_() % 8));
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

}  // namespace
}  // namespace tidemark
