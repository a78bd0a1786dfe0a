// Every byte of the small files of a store changed, one at a time, and each of the index's cut, emptied and gone: the
// store opens with all that was acknowledged, and a step that is saved then is restored. The index is made anew from
// the journal, the journal from the index, and store.json from the shards.
//
// Bytes and lengths are drawn, more of the files that are a few bytes and decide the most; make faults-long takes all,
// in some minutes.

#include <cstdio>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/draft_file_system.h"
#include "storage/store/lease.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/file_tree.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/store/test_store.h"

namespace tidemark::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Steps 0 and 1 were deleted, and the files of 0 stay for 6; 2 is pinned and has tags, 3 has a report, 4 refers to 3, a
// save of 5 failed, 6 was saved twice and is the latest.
class StoreRotTest : public testing::Test {
 protected:
  static constexpr int64_t kCommitted[] = {2, 3, 4, 6};

  static void SetUpTestSuite() {
    home_ = new TestDirectory();
    made_ = new DraftFileSystem(PosixFileSystem(), home_->path());
    std::string warnings;
    // Two sessions, so that there is a table beside the log; not more, or RocksDB compacts tables while they are looked
    // at, and sleeps for a second where one is damaged.
    {
      auto store = OpenSoundStore(Path(), &warnings, *made_);
      const ShardIdentity one = CommitStep(*store, 1, 100, *made_);
      CommitStep(*store, 2, 200, *made_);
      const ShardIdentity three = CommitStep(*store, 3, 300, *made_);
      ASSERT_THAT(store->Pin(2, "the paper's"), IsOk());
      for (const char* tag : {"v1", "paper"}) ASSERT_THAT(store->Tag(2, tag), IsOk());
      ASSERT_THAT(RecordOwn(*store, three, {.evaluator = "validation", .metrics = {{"loss", 1.25}}}), IsOk());
      ASSERT_NO_FATAL_FAILURE(Delete(*store, one));
      CommitReferringStep(*store, 4, three, *made_);
      CommitStep(*store, 6, 599, *made_);
    }
    {
      auto store = OpenSoundStore(Path(), &warnings, *made_);
      const auto failed = store->BeginAttempt(5);
      ASSERT_THAT(failed, IsOk());
      store->AbandonAttempt(*failed, absl::Now(), absl::InternalError("no disk")).IgnoreError();
      const ShardIdentity zero = CommitStep(*store, 0, 600, *made_);
      CommitReferringStep(*store, 6, zero, *made_);
      ASSERT_NO_FATAL_FAILURE(Delete(*store, zero));
    }
    tree_ = new FileTree(ReadTree(*made_, Path()));
    known_ = new std::map<int64_t, StepInfo>();
    DraftFileSystem files(*made_, Path());
    const auto store = OpenSoundStore(Path(), &warnings, files);
    for (const int64_t step : kCommitted) {
      const auto record = store->catalog().Find(step);
      ASSERT_THAT(record, IsOk());
      ASSERT_TRUE(record->has_value());
      known_->emplace(step, (*record)->info);
    }
    ASSERT_EQ(known_->at(2).pin_note, "the paper's");
    ASSERT_THAT(known_->at(2).tags, ElementsAre("paper", "v1"));
    ASSERT_EQ(known_->at(3).metrics.count("validation/loss"), 1u);
  }
  static void TearDownTestSuite() {
    delete known_;
    delete tree_;
    delete made_;
    delete home_;
  }

  static std::string Path() { return *home_ / "store"; }

  static void Delete(Store& store, const ShardIdentity& identity) {
    const std::string attempt = ToHex(identity.attempt.bytes);
    ASSERT_THAT(store.NoteSteps({{.step = identity.step, .attempt = attempt, .deleted = true, .reason = "old"}}),
                IsOk());
    ASSERT_THAT(store.RemoveDeleted({}), IsOk());
  }

  static void LookAt(FileSystem& files, const Store& store) {
    for (const int64_t step : kCommitted) {
      EXPECT_EQ(ValueAt(store, step, files), step == 4 ? 300 : 100 * step) << "step " << step;
      const auto record = store.catalog().Find(step);
      ASSERT_THAT(record, IsOk());
      ASSERT_TRUE(record->has_value()) << "step " << step << " is lost";
      const StepInfo& info = (*record)->info;
      const StepInfo& known = known_->at(step);
      EXPECT_EQ(info.pinned, known.pinned);
      EXPECT_EQ(info.pin_note, known.pin_note);
      EXPECT_EQ(info.tags, known.tags);
      EXPECT_EQ(info.metrics, known.metrics);
    }
    for (const int64_t step : {0, 1}) {
      const auto gone = store.catalog().Find(step);
      ASSERT_THAT(gone, IsOk());
      EXPECT_TRUE(gone->has_value() && (*gone)->info.state == StepState::kDeleted) << step << " was deleted";
    }
    EXPECT_EQ(store.catalog().Committed()->size(), 4u);
    EXPECT_EQ(*store.catalog().LatestCommitted(), 6);
    EXPECT_EQ((*store.catalog().FindBest("validation/loss", BestMode::kLowest))->info.step, 3);
  }

  // Opens the store that `rot` has changed a file of, twice, and saves a step. "right", and whether it took a warning.
  std::string OutcomeOf(const std::function<void(FileSystem&)>& rot) {
    DraftFileSystem files(*made_, Path());
    rot(files);
    std::string outcome = "right";
    for (const bool second : {false, true}) {
      warnings_.clear();
      auto opened = OpenStore(Path(), &warnings_, files);
      // Of a bit of the format's number: a store of a newer library is not touched.
      if (absl::IsUnimplemented(opened.status())) {
        EXPECT_THAT(std::string(opened.status().message()), HasSubstr("/store.json: the store has format"));
        return "refused as newer";
      }
      EXPECT_THAT(opened, IsOk());
      if (!opened.ok()) return "not opened";
      LookAt(files, **opened);
      EXPECT_THAT((*opened)->SweepUncommitted(), IsOk());
      if (second) {
        EXPECT_EQ(warnings_, "") << "the first opening has mended it";
        CommitStep(**opened, 7, 700, files);
        EXPECT_EQ(ValueAt(**opened, 7, files), 700);
      }
      if (!warnings_.empty()) outcome = "right, with a warning";
    }
    return outcome;
  }

  static std::function<void(FileSystem&)> PutAt(const std::string& path, const std::string& bytes) {
    return [path, bytes](FileSystem& files) { PutFile(files, Path() + path, bytes); };
  }

  // Of how many bytes of the file one is changed.
  static size_t StrideOf(std::string_view path) {
    if (path.ends_with(".sst") || path.ends_with(".log")) return OneOf(13, 149);
    if (path.find("MANIFEST") != std::string_view::npos) return OneOf(5, 53);
    if (path.starts_with("/journal/")) return OneOf(13, 307);
    return OneOf(2, 31);
  }

  // One in each `stride` of the file's bytes, beginning anywhere.
  std::vector<size_t> DrawOffsets(size_t bytes, size_t stride) {
    std::vector<size_t> offsets;
    for (size_t at = random_() % stride; at < bytes; at += stride) offsets.push_back(at);
    return offsets;
  }

  static void Print(const char* what, const std::map<std::string, int64_t>& outcomes) {
    std::printf("%s:", what);
    for (const auto& [outcome, count] : outcomes) {
      std::printf(" %lld %s;", static_cast<long long>(count), outcome.c_str());
    }
    std::printf("\n");
    std::fflush(stdout);
  }

  static TestDirectory* home_;
  static DraftFileSystem* made_;  // the store, in memory
  static FileTree* tree_;         // the same
  static std::map<int64_t, StepInfo>* known_;
  const uint32_t seed_ = SeedOfCases();
  std::mt19937_64 random_{seed_};
  std::string warnings_;
};

TestDirectory* StoreRotTest::home_ = nullptr;
DraftFileSystem* StoreRotTest::made_ = nullptr;
FileTree* StoreRotTest::tree_ = nullptr;
std::map<int64_t, StepInfo>* StoreRotTest::known_ = nullptr;

TEST_F(StoreRotTest, LosesNothingWhicheverByteOfASmallFileChanges) {
  SCOPED_TRACE(testing::Message() << "seed " << seed_);
  std::map<std::string, int64_t> outcomes;
  for (const auto& [path, bytes] : tree_->files) {
    if (path.ends_with(".tmk")) continue;
    std::map<std::string, int64_t> of_file;
    for (const size_t at : DrawOffsets(bytes.size(), StrideOf(path))) {
      SCOPED_TRACE(testing::Message() << path << " byte " << at << " of " << bytes.size());
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ (1 << random_() % 8));
      const std::string outcome = OutcomeOf(PutAt(path, changed));
      ++outcomes[outcome];
      ++of_file[outcome];
      if (HasFailure()) return;
    }
    Print(path.c_str(), of_file);
  }
  Print("bytes changed", outcomes);
  EXPECT_GT(outcomes["right"], 0);
  EXPECT_GT(outcomes["right, with a warning"], 0);
}

// The highest bit there is what RocksDB believes before it has looked at a checksum.
TEST_F(StoreRotTest, LosesNothingWhicheverByteAtTheEndOfATableHasAHighBit) {
  std::map<std::string, int64_t> outcomes;
  for (const auto& [path, bytes] : tree_->files) {
    if (!path.ends_with(".sst")) continue;
    for (const size_t offset : DrawOffsets(110, OneOf(2, 31))) {
      const size_t at = bytes.size() - 110 + offset;
      SCOPED_TRACE(testing::Message() << path << " byte " << at << " of " << bytes.size());
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ 0x80);
      ++outcomes[OutcomeOf(PutAt(path, changed))];
      if (HasFailure()) return;
    }
  }
  Print("high bits at the ends of tables", outcomes);
  EXPECT_GT(outcomes["right, with a warning"], 0);
}

TEST_F(StoreRotTest, LosesNothingWhicheverFileOfTheIndexIsCutEmptiedOrGone) {
  SCOPED_TRACE(testing::Message() << "seed " << seed_);
  std::map<std::string, int64_t> outcomes;
  for (const auto& [path, bytes] : tree_->files) {
    if (!path.starts_with("/index/")) continue;
    std::vector<size_t> lengths = DrawOffsets(bytes.size(), bytes.size() > 1000 ? 11 * StrideOf(path) : StrideOf(path));
    lengths.push_back(0);
    lengths.push_back(bytes.size());
    for (const size_t length : lengths) {
      const bool gone = length == bytes.size();
      SCOPED_TRACE(testing::Message() << path << (gone ? " is gone" : " is cut to ") << length << " of "
                                      << bytes.size());
      const auto remove = [file = Path() + path](FileSystem& files) { ASSERT_THAT(files.RemoveFile(file), IsOk()); };
      ++outcomes[gone ? OutcomeOf(remove) : OutcomeOf(PutAt(path, bytes.substr(0, length)))];
      if (HasFailure()) return;
    }
  }
  // The whole of it.
  ++outcomes[OutcomeOf([](FileSystem& files) { ASSERT_THAT(RemoveTree(files, Path() + "/index"), IsOk()); })];
  Print("RocksDB's files cut, emptied or gone", outcomes);
}

TEST_F(StoreRotTest, OpensWhateverLiesInLockAndLeases) {
  SCOPED_TRACE(testing::Message() << "seed " << seed_);
  const StoreLayout layout(Path());
  for (int i = 0; i < 20; ++i) {
    std::string garbage(random_() % 300, '\0');
    for (char& c : garbage) c = static_cast<char>(random_());
    EXPECT_EQ(OutcomeOf([&](FileSystem& files) {
                PutFile(files, layout.lock(), garbage);
                ASSERT_THAT(files.CreateDirectory(layout.leases()), IsOk());
                PutFile(files, layout.leases() + "/" + LeaseFileName(AttemptId{{1}}, "x"), garbage);
              }),
              "right");
  }
}

}  // namespace
}  // namespace tidemark::storage
