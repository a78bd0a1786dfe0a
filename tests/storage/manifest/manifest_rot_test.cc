// Every byte of the manifest's files changed, and of every other small file of a store; each of them cut, emptied and
// gone. Where only the manifest's are hit, the store opens with all that was acknowledged, and a step that is saved
// then is restored. Where others are, it does, or, with a manifest that is gone as well, it says what is lost, which is
// never a step.
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
#include "storage/manifest/deletion_mark.h"
#include "storage/manifest/inbox.h"
#include "storage/manifest/lease.h"
#include "storage/manifest/manifest.h"
#include "storage/records/metric_report.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/file_tree.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/manifest/test_store.h"

namespace tidemark::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr ShardReadOptions kRead{.codec_threads = 1, .io = IoQueueKind::kThreads, .io_depth = 2};

// Step 0 was deleted, and its files stay for 6; 1 was deleted, 2 is pinned and has tags, 3 has a report, 4 refers to 3,
// a save of 5 failed, 6 was saved twice and is the latest.
class ManifestRotTest : public testing::Test {
 protected:
  static constexpr int64_t kCommitted[] = {2, 3, 4, 6};

  static void SetUpTestSuite() {
    home_ = new TestDirectory();
    made_ = new DraftFileSystem(PosixFileSystem(), home_->path());
    std::string warnings;
    // Two sessions, so that there is a table beside the log; not more, or RocksDB compacts tables while they are looked
    // at, and sleeps for a second where one is damaged.
    for (const int session : {0, 1}) {
      auto store = OpenSoundStore(Path(), &warnings, *made_);
      if (session == 0) {
        const std::string one = ToHex(CommitStep(*store, 1, 100, *made_).attempt.bytes);
        CommitStep(*store, 2, 200, *made_);
        const ShardIdentity three = CommitStep(*store, 3, 300, *made_);
        ASSERT_THAT(store->Pin(2, "the paper's"), IsOk());
        ASSERT_THAT(store->Tag(2, "v1"), IsOk());
        ASSERT_THAT(store->Tag(2, "paper"), IsOk());
        MetricReport report{.store = store->id(), .step = 3, .attempt = three.attempt};
        report.evaluation.evaluator = "validation";
        report.evaluation.metrics = {{"loss", 1.25}};
        ASSERT_THAT(RecordOwn(*made_, *store, report), IsOk());
        ASSERT_THAT(store->NoteSteps({{.step = 1, .attempt = one, .deleted = true, .reason = "old"}}), IsOk());
        ASSERT_THAT(store->RemoveDeleted({}), IsOk());
        CommitReferringStep(*store, 4, three, *made_);
        CommitStep(*store, 6, 599, *made_);
      } else {
        const auto failed = store->BeginAttempt(5);
        ASSERT_THAT(failed, IsOk());
        store->AbandonAttempt(*failed, absl::Now(), absl::InternalError("no disk"));
        const ShardIdentity zero = CommitStep(*store, 0, 600, *made_);
        CommitReferringStep(*store, 6, zero, *made_);
        const std::string attempt = ToHex(zero.attempt.bytes);
        ASSERT_THAT(store->NoteSteps({{.step = 0, .attempt = attempt, .deleted = true, .reason = "old"}}), IsOk());
        ASSERT_THAT(store->RemoveDeleted({}), IsOk());
        const auto marked = HasDeletionMark(*made_, store->layout(), {0, zero.attempt});
        ASSERT_TRUE(marked.ok() && *marked);
      }
    }
    tree_ = new FileTree(ReadTree(*made_, Path()));
    known_ = new std::map<int64_t, StepInfo>();
    DraftFileSystem files(*made_, Path());
    const auto store = OpenSoundStore(Path(), &warnings, files);
    for (const int64_t step : kCommitted) {
      const auto record = store->manifest().Find(step);
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

  static absl::StatusOr<int64_t> Value(FileSystem& files, const Store& store, int64_t step) {
    auto record = store.manifest().Find(step);
    if (!record.ok()) return record.status();
    if (!record->has_value() || (*record)->info.state != StepState::kCommitted) {
      return absl::NotFoundError("not committed");
    }
    auto attempt = ReadAttempt(files, store.layout(), store.id(), {step, AttemptId{*FromHex((*record)->info.attempt)}});
    if (!attempt.ok()) return attempt.status();
    int64_t value = -1;
    const EntryRead read{.entry = 0, .destination = std::as_writable_bytes(std::span(&value, 1))};
    if (absl::Status status = attempt->shards[0]->Read({&read, 1}, kRead); !status.ok()) return status;
    return value;
  }

  // What of the pin, the tags and the metrics is not as it was. Empty: nothing.
  static std::string ChangesOf(const StepInfo& info) {
    const StepInfo& known = known_->at(info.step);
    std::string changes;
    if (info.pinned != known.pinned) changes += " pin";
    if (info.pin_note != known.pin_note) changes += " note";
    if (info.tags != known.tags) changes += " tags";
    if (info.metrics != known.metrics) changes += " metrics";
    return changes;
  }

  static absl::Status LookAtDeleted(const Store& store) {
    for (const int64_t step : {0, 1}) {
      const auto gone = store.manifest().Find(step);
      if (!gone.ok()) return gone.status();
      EXPECT_TRUE(!gone->has_value() || (*gone)->info.state != StepState::kCommitted) << step << " was deleted";
    }
    return absl::OkStatus();
  }

  // Opens the store, looks at everything and closes it. "right", or what is not as it was, or what went wrong.
  std::string Outcome(FileSystem& files) {
    warnings_.clear();
    auto opened = OpenStore(Path(), &warnings_, files);
    if (!opened.ok()) return "not opened: " + opened.status().ToString();
    const Store& store = **opened;
    std::string changes;
    for (const int64_t step : kCommitted) {
      const absl::StatusOr<int64_t> value = Value(files, store, step);
      if (!value.ok()) return "step not read: " + value.status().ToString();
      EXPECT_EQ(*value, step == 4 ? 300 : 100 * step) << "WRONG VALUE of step " << step;
      const auto record = store.manifest().Find(step);
      if (!record.ok()) return "record not read: " + record.status().ToString();
      changes += ChangesOf((*record)->info);
    }
    if (absl::Status status = LookAtDeleted(store); !status.ok()) return "record not read: " + status.ToString();
    return changes.empty() ? "right" : "changed:" + changes;
  }

  // What may come of a store without a manifest where that file is damaged: of all that there is, only these are what a
  // rebuild has to believe and can do without.
  static std::string LossWith(std::string_view path) {
    if (path.ends_with("/pin.json")) return "changed: note tags";
    return path.find("/metrics-") != std::string_view::npos ? "changed: metrics" : "right";
  }

  // What is wrong with what the store knows and has; ok: nothing is.
  static absl::Status LookAt(FileSystem& files, const Store& store) {
    for (const int64_t step : kCommitted) {
      const absl::StatusOr<int64_t> value = Value(files, store, step);
      if (!value.ok()) return value.status();
      EXPECT_EQ(*value, step == 4 ? 300 : 100 * step) << "WRONG VALUE of step " << step;
      const auto record = store.manifest().Find(step);
      if (!record.ok()) return record.status();
      EXPECT_EQ(ChangesOf((*record)->info), "") << "of step " << step;
    }
    return LookAtDeleted(store);
  }

  // Where only the manifest rotted: every shard, pin and report is there, so the store opens, all steps are right, and
  // one that is saved then is restored. Returns what it took.
  //
  // There is one exception: opening a store that was closed in good order reads the newest record alone. Damage in a
  // table may be found by who reads another one; then the next opening puts it right.
  std::string Mended(FileSystem& files, bool settled) {
    std::string took = "right";
    for (const bool second : {false, true}) {
      warnings_.clear();
      auto opened = OpenStore(Path(), &warnings_, files);
      EXPECT_THAT(opened, IsOk());
      if (!opened.ok()) return "not opened";
      if (!warnings_.empty()) took += ", with a warning";
      const absl::Status status = LookAt(files, **opened);
      if (status.ok()) {
        CommitStep(**opened, 7, 700, files);
        EXPECT_EQ(ValueAt(**opened, 7, files), 700);
        return took;
      }
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, HasSubstr(Path() + "/manifest")));
      EXPECT_TRUE(settled && !second) << status;
      took = kSecondOpening;
    }
    return "never right";
  }

  // The same of a store of which `rot` has changed the file at `path`. Where more than "right" comes of it, who only
  // reads the store must have found the damage before, in a table, in CURRENT or where there is no manifest. Of the log
  // and the list of files a part can look like what a crash has cut off.
  std::string MendedAfterRot(std::string_view path, const std::function<void(FileSystem&)>& rot, bool settled) {
    DraftFileSystem files(*made_, Path());
    rot(files);
    if (!settled) Unsettle(files);
    const std::string took = Mended(files, settled);
    EXPECT_TRUE(took != kSecondOpening || path.ends_with(".sst"));
    const bool must_be_found = path.ends_with(".sst") || path.ends_with("/CURRENT") || path == "/manifest";
    if (took == "right" || (!must_be_found && !AllCasesAsked())) return took;
    DraftFileSystem unopened(*made_, Path());
    rot(unopened);
    if (IsFoundByAReader(unopened)) return took;
    EXPECT_FALSE(must_be_found) << "a verification finds nothing";
    return took + ", and nothing found before";
  }

  // As StoreReader does, on Open and VerifyManifest.
  static bool IsFoundByAReader(FileSystem& files) {
    const auto manifest = Manifest::OpenFollowing(files, StoreLayout(Path()).manifest());
    if (!manifest.ok()) return true;
    return !(*manifest)->ForEach([](const StepRecord&) { return true; }).ok() || !(*manifest)->VerifyTables().ok();
  }

  static constexpr const char* kSecondOpening = "right at the second opening";

  // Of how many bytes of the file one is changed.
  static size_t StrideOf(std::string_view path) {
    if (path == "/disk-reserve") return 1 << 17;  // a megabyte of which nobody reads any
    if (path.ends_with(".sst") || path.ends_with(".log")) return OneOf(13, 149);
    if (path.find("MANIFEST") != std::string_view::npos) return OneOf(5, 53);
    return OneOf(2, 31);
  }

  // One in each `stride` of the file's bytes, beginning anywhere.
  std::vector<size_t> DrawOffsets(size_t bytes, size_t stride) {
    std::vector<size_t> offsets;
    for (size_t at = random_() % stride; at < bytes; at += stride) offsets.push_back(at);
    return offsets;
  }

  static std::function<void(FileSystem&)> PutAt(const std::string& path, const std::string& bytes) {
    return [path, bytes](FileSystem& files) { PutFile(files, Path() + path, bytes); };
  }

  // A name came and went in steps/.
  static void Unsettle(FileSystem& files) {
    ASSERT_THAT(files.CreateDirectory(Path() + "/steps/x"), IsOk());
    ASSERT_THAT(files.RemoveDirectory(Path() + "/steps/x"), IsOk());
  }

  static void Print(const char* what, const std::map<std::string, int64_t>& outcomes) {
    std::printf("%s:", what);
    for (const auto& [outcome, count] : outcomes)
      std::printf(" %lld %s;", static_cast<long long>(count), outcome.c_str());
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

TestDirectory* ManifestRotTest::home_ = nullptr;
DraftFileSystem* ManifestRotTest::made_ = nullptr;
FileTree* ManifestRotTest::tree_ = nullptr;
std::map<int64_t, StepInfo>* ManifestRotTest::known_ = nullptr;

TEST_F(ManifestRotTest, LosesNothingWhicheverByteOfTheDatabaseChanges) {
  SCOPED_TRACE(testing::Message() << "seed " << seed_);
  std::map<std::string, int64_t> outcomes;
  for (const auto& [path, bytes] : tree_->files) {
    if (!path.starts_with("/manifest/")) continue;
    std::map<std::string, int64_t> of_file;
    for (const size_t at : DrawOffsets(bytes.size(), StrideOf(path))) {
      // As it was closed in good order, and as a crash leaves it, where everything is looked at.
      const bool settled = random_() % 2 == 0;
      SCOPED_TRACE(testing::Message() << path << " byte " << at << " of " << bytes.size() << ", settled " << settled);
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ (1 << random_() % 8));
      const std::string outcome = MendedAfterRot(path, PutAt(path, changed), settled);
      ++outcomes[outcome];
      ++of_file[outcome];
      if (HasFailure()) return;
    }
    Print(path.c_str(), of_file);
  }
  Print("bytes of RocksDB's files changed", outcomes);
  EXPECT_LE(outcomes[kSecondOpening], 10) << "of thousands";
  EXPECT_GT(outcomes["right"], 0);
  EXPECT_GT(outcomes["right, with a warning"], 0);
}

// The highest bit there is what RocksDB believes before it has looked at a checksum.
TEST_F(ManifestRotTest, LosesNothingWhicheverByteAtTheEndOfATableHasAHighBit) {
  std::map<std::string, int64_t> outcomes;
  for (const auto& [path, bytes] : tree_->files) {
    if (!path.ends_with(".sst")) continue;
    for (const size_t offset : DrawOffsets(110, OneOf(2, 31))) {
      const size_t at = bytes.size() - 110 + offset;
      SCOPED_TRACE(testing::Message() << path << " byte " << at << " of " << bytes.size());
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ 0x80);
      ++outcomes[MendedAfterRot(path, PutAt(path, changed), /*settled=*/true)];
      if (HasFailure()) return;
    }
  }
  Print("high bits at the ends of tables", outcomes);
  EXPECT_GT(outcomes["right, with a warning"], 0);
}

TEST_F(ManifestRotTest, LosesNothingWhicheverFileOfTheDatabaseIsCutEmptiedOrGone) {
  SCOPED_TRACE(testing::Message() << "seed " << seed_);
  std::map<std::string, int64_t> outcomes;
  for (const auto& [path, bytes] : tree_->files) {
    if (!path.starts_with("/manifest/")) continue;
    std::map<std::string, int64_t> of_file;
    std::vector<size_t> lengths = DrawOffsets(bytes.size(), bytes.size() > 1000 ? 11 * StrideOf(path) : StrideOf(path));
    lengths.push_back(0);
    lengths.push_back(bytes.size());
    for (const size_t length : lengths) {
      const bool gone = length == bytes.size();
      for (const bool settled : {true, false}) {
        SCOPED_TRACE(testing::Message() << path << (gone ? " is gone" : " is cut to ") << length << " of "
                                        << bytes.size() << ", settled " << settled);
        const auto remove = [file = Path() + path](FileSystem& files) { ASSERT_THAT(files.RemoveFile(file), IsOk()); };
        const std::string outcome = gone ? MendedAfterRot(path, remove, settled)
                                         : MendedAfterRot(path, PutAt(path, bytes.substr(0, length)), settled);
        ++outcomes[outcome];
        ++of_file[outcome];
        if (HasFailure()) return;
      }
    }
    Print(path.c_str(), of_file);
  }
  // The whole of it.
  const auto remove = [](FileSystem& files) { ASSERT_THAT(RemoveTree(files, Path() + "/manifest"), IsOk()); };
  ++outcomes["without any of them: " + MendedAfterRot("/manifest", remove, /*settled=*/false)];
  Print("RocksDB's files cut, emptied or gone", outcomes);
}

TEST_F(ManifestRotTest, LosesNothingWhicheverByteOfTheOtherSmallFilesChanges) {
  SCOPED_TRACE(testing::Message() << "seed " << seed_);
  std::map<std::string, int64_t> outcomes;
  for (const auto& [path, bytes] : tree_->files) {
    if (path.starts_with("/manifest/") || path.ends_with(".tmk")) continue;
    std::map<std::string, int64_t> of_file;
    std::vector<size_t> offsets = DrawOffsets(bytes.size(), StrideOf(path));
    offsets.push_back(bytes.size());
    for (const size_t at : offsets) {
      // As it is, and where the manifest has to be rebuilt from the folders.
      for (const bool with_manifest : {true, false}) {
        SCOPED_TRACE(testing::Message() << path << " byte " << at << ", manifest " << with_manifest);
        DraftFileSystem files(*made_, Path());
        std::string changed = bytes;
        if (at < bytes.size()) {
          changed[at] = static_cast<char>(changed[at] ^ (1 << at % 8));
        } else {
          changed.clear();
        }
        PutFile(files, Path() + path, changed);
        Unsettle(files);
        if (!with_manifest) {
          ASSERT_THAT(RemoveTree(files, Path() + "/manifest"), IsOk());
        }
        std::string outcome = Outcome(files);
        if (outcome != "right") {
          EXPECT_EQ(outcome, with_manifest ? "right" : LossWith(path));
          // An empty pin.json is one that somebody has made by hand: it pins, and nobody knows of more.
          const bool made_by_hand = at == bytes.size() && path.ends_with("/pin.json");
          EXPECT_TRUE(made_by_hand || warnings_.find(Path() + path) != std::string::npos) << "LOST WITHOUT A WORD";
        }
        if (!with_manifest) outcome = "rebuilt: " + outcome;
        ++outcomes[outcome];
        ++of_file[outcome];
        if (HasFailure()) return;
      }
    }
    Print(path.c_str(), of_file);
  }
  Print("bytes of the other small files changed, and each emptied", outcomes);
}

TEST_F(ManifestRotTest, OpensWhateverLiesInLockLeasesAndInbox) {
  SCOPED_TRACE(testing::Message() << "seed " << seed_);
  const StoreLayout layout(Path());
  for (int i = 0; i < 40; ++i) {
    DraftFileSystem files(*made_, Path());
    std::string garbage(random_() % 300, '\0');
    for (char& c : garbage) c = static_cast<char>(random_());
    PutFile(files, layout.lock(), garbage);
    for (const std::string& folder : {layout.leases(), layout.inbox()}) {
      files.CreateDirectory(folder).IgnoreError();
      PutFile(files, folder + "/" + LeaseFileName(AttemptId{{1}}, "x"), garbage);
      PutFile(files, folder + "/" + InboxFileName(3, AttemptId{{1}}, "x"), garbage);
    }
    if (i % 2 == 0) Unsettle(files);
    EXPECT_EQ(Outcome(files), "right");
    EXPECT_EQ(warnings_, "");
  }
}

}  // namespace
}  // namespace tidemark::storage
