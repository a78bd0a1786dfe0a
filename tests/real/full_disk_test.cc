// A file system of 64 MiB that fills up: a save that finds no room says so, and nothing else is lost by it.
//
// TIDEMARK_FILLS: how many sizes of what is left are tried beside none; with 300 of them each is 4 KiB more than the
// last.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/real/loop_file_system.h"
#include "tests/real/run_length.h"
#include "tests/real/step_oracle.h"
#include "tests/real/versioned_state.h"
#include "tests/snapshot/observers.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::AnyOf;
using testing::IsEmpty;
using testing::MatchesRegex;

constexpr uint64_t kBlockBytes = 4096;
// A save takes some 400 KiB at most, and what RocksDB writes of the index now and then a table of 512 KiB.
constexpr int kBlocksMax = 300;
constexpr int kBlocksOfEverySave = 256;
constexpr int kRetentionBlocksMax = 32;
// The journal keeps what every save says, and each says 60 KB.
constexpr int kSizesOfOneStore = 100;
constexpr int kFills = 15;

// From so many blocks to the next number of them.
int Stride() { return std::max(1, kBlocksMax / std::max(1, RunLength("TIDEMARK_FILLS", kFills))); }

class FullDiskTest : public testing::Test {
 protected:
  void SetUp() override {
    auto disk = LoopFileSystem::Make({.type = "ext4", .bytes = 64 << 20, .directory = folder_.path()});
    if (absl::IsUnimplemented(disk.status())) {
      const std::string why(disk.status().message());
      Summarize("SKIPPED full disk: " + why);
      GTEST_SKIP() << why;
    }
    ASSERT_THAT(disk, IsOk());
    disk_ = *std::move(disk);
    ASSERT_THAT(disk_->Mount(), IsOk());
    BeginStore();
  }

  void BeginStore() {
    std::filesystem::remove_all(folder_ / "disk/run");
    store_ = folder_ / fmt::format("disk/run/store-{}", stores_++);
    oracle_ = std::make_unique<StepOracle>();
    failed_step_.reset();
  }

  CheckpointerOptions Options() {
    return {.directory = store_,
            .retention = StepOracle::Rules(),
            .tuning = {.chunk_bytes = VersionedState::kChunkBytes, .codec_threads = 1},
            .observer = NoWarnings()};
  }

  absl::Status Open(const CheckpointerOptions& options) {
    auto opened = AsyncCheckpointer::Open(options);
    if (opened.ok()) checkpointer_ = *std::move(opened);
    return opened.status();
  }
  void Close() {
    EXPECT_THAT(checkpointer_->Close(), IsOk());
    checkpointer_.reset();
  }

  // The next step, or after a failure the same or the next.
  absl::Status Save() {
    const int64_t version = oracle_->next_version();
    const int64_t step = version % 2 == 0 && failed_step_ ? *failed_step_ : oracle_->next_step();
    VersionedState state;
    state.SetTo(step, version);
    oracle_->Begun(step, version, 1);
    // Large, so that RocksDB writes a table now and then.
    SaveOptions options{.metrics = {{"loss", 1}}, .overwrite = true};
    options.user_metadata = fmt::format("{{\"note\": \"{}\"}}", std::string(60'000, 'm'));
    auto save = checkpointer_->Save(step, state.state(), std::move(options));
    const absl::Status status = save.ok() ? save->committed().Wait() : save.status();
    failed_step_ = status.ok() ? std::nullopt : std::optional(step);
    if (!status.ok()) return status;
    oracle_->Committed(version);
    committed_step_ = step;
    committed_version_ = version;
    return status;
  }

  // Of the latest step, or of one behind it whose save failed and is there all the same.
  void ExpectRestores() {
    VersionedState restored;
    auto report = checkpointer_->RestoreLatest(restored.state());
    ASSERT_THAT(report, IsOk());
    EXPECT_TRUE(restored.IsThatOf(report->step, restored.version()));
    EXPECT_THAT(oracle_->CheckRestored(report->step, restored.version()), IsEmpty());
  }

  // Operation and path, and that there is no room.
  auto NoRoom() const {
    return StatusIs(absl::StatusCode::kResourceExhausted,
                    MatchesRegex(fmt::format("(step [0-9]+ was not committed: )?[a-z][a-z0-9 ]* {}/disk.*No space left "
                                             "on device \\(ENOSPC\\).*",
                                             folder_.path())));
  }

  // Files that are ready for the journal's next entries.
  int Spares() const {
    int spares = 0;
    for (const auto& file : std::filesystem::recursive_directory_iterator(store_ + "/journal")) {
      if (file.path().filename().string().starts_with("spare-")) ++spares;
    }
    return spares;
  }

  storage::TestDirectory folder_;
  std::unique_ptr<LoopFileSystem> disk_;
  std::string store_;
  int stores_ = 0;
  std::unique_ptr<StepOracle> oracle_;
  std::unique_ptr<AsyncCheckpointer> checkpointer_;
  std::optional<int64_t> failed_step_;
  int64_t committed_step_ = 0;
  int64_t committed_version_ = 0;
};

TEST_F(FullDiskTest, ASaveSucceedsOrNamesWhatHasNoRoomWhateverIsLeft) {
  const int stride = Stride();
  RunProgress progress("full disk: blocks of 4 KiB that are left", kBlocksMax);
  int saved = 0, refused = 0, opened = 0, not_opened = 0, saved_anew = 0, sizes = 0;
  for (int blocks = 0; blocks <= kBlocksMax; blocks += stride) {
    SCOPED_TRACE(fmt::format("{} blocks of 4 KiB are left", blocks));
    const uint64_t left = static_cast<uint64_t>(blocks) * kBlockBytes;
    if (sizes > 0 && sizes % kSizesOfOneStore == 0) BeginStore();
    ++sizes;
    ASSERT_THAT(Open(Options()), IsOk());
    ASSERT_THAT(Save(), IsOk());
    ASSERT_THAT(disk_->FillUpTo(left), IsOk());
    absl::Status status = Save();
    EXPECT_THAT(status, AnyOf(IsOk(), NoRoom()));
    if (blocks >= kBlocksOfEverySave) {
      EXPECT_THAT(status, IsOk());
    }
    ++(status.ok() ? saved : refused);
    ExpectRestores();
    ASSERT_THAT(disk_->Empty(), IsOk());
    EXPECT_THAT(Save(), IsOk()) << "without opening the store anew";
    ExpectRestores();
    // A trainer that starts on the full disk.
    ASSERT_THAT(disk_->FillUpTo(left), IsOk());
    Close();
    status = Open(Options());
    EXPECT_THAT(status, AnyOf(IsOk(), NoRoom()));
    ++(status.ok() ? opened : not_opened);
    if (status.ok()) {
      ExpectRestores();
      status = Save();
      EXPECT_THAT(status, AnyOf(IsOk(), NoRoom()));
      if (status.ok()) ++saved_anew;
      Close();
    }
    ASSERT_THAT(disk_->Empty(), IsOk());
    ASSERT_THAT(Open(Options()), IsOk());
    EXPECT_THAT(oracle_->CheckOpened(*checkpointer_, store_), IsEmpty());
    EXPECT_THAT(Save(), IsOk());
    Close();
    ASSERT_FALSE(HasFailure());
    progress.Show(blocks, fmt::format("{} saves refused", refused));
  }
  progress.End();
  Summarize(fmt::format(
      "full disk: {} sizes of free space, from 0 to {} KiB; of the saves {} had room and {} were refused, of "
      "the starts {} had room and {} were refused, of the saves after those {} had room; every earlier step restored, "
      "and every next save worked once there was room",
      sizes, kBlocksMax * 4, saved, refused, opened, not_opened, saved_anew));
  EXPECT_GT(saved, 0);
}

// The journal's spare files are no room for a shard.
TEST_F(FullDiskTest, ASaveIsRefusedWhereNothingIsLeft) {
  CheckpointerOptions options = Options();
  options.reuse = false;
  options.retention = {};
  ASSERT_THAT(Open(options), IsOk());
  ASSERT_THAT(Save(), IsOk());
  ASSERT_THAT(disk_->FillUpTo(0), IsOk());
  EXPECT_THAT(Save(), NoRoom());
  ExpectRestores();
  ASSERT_THAT(disk_->Empty(), IsOk());
  EXPECT_THAT(Save(), IsOk());
  Close();
}

// A disk that somebody else has filled: what the rules let go makes room, be it in a trainer that goes on or in one
// that is started anew.
TEST_F(FullDiskTest, RetentionMakesRoomWhateverIsLeft) {
  const int stride = Stride();
  constexpr int kSteps = 5;
  RunProgress progress("retention on a full disk: blocks of 4 KiB that are left", kRetentionBlocksMax);
  int sizes = 0;
  for (int blocks = 0; blocks < kRetentionBlocksMax; blocks += stride) {
    for (const bool anew : {false, true}) {
      SCOPED_TRACE(fmt::format("{} blocks of 4 KiB are left, {}", blocks, anew ? "opened anew" : "still open"));
      ++sizes;
      CheckpointerOptions options = Options();
      options.reuse = false;
      options.retention = {.max_to_keep = kSteps};
      ASSERT_THAT(Open(options), IsOk());
      for (int i = 0; i < kSteps; ++i) ASSERT_THAT(Save(), IsOk());
      Close();
      options.retention = {.max_to_keep = 1};
      absl::Status opened = anew ? absl::OkStatus() : Open(options);
      ASSERT_THAT(disk_->FillUpTo(static_cast<uint64_t>(blocks) * kBlockBytes), IsOk());
      if (anew) opened = Open(options);
      ASSERT_THAT(opened, IsOk());
      EXPECT_THAT(checkpointer_->Tidy(), IsOk());
      auto latest = checkpointer_->LatestStep();
      ASSERT_THAT(latest, IsOk());
      EXPECT_EQ(latest->step, committed_step_);
      auto steps = checkpointer_->Steps();
      ASSERT_THAT(steps, IsOk());
      EXPECT_EQ(std::count_if(steps->begin(), steps->end(),
                              [](const StepInfo& info) { return info.state == StepState::kCommitted; }),
                1);
      EXPECT_THAT(Save(), IsOk());
      ASSERT_THAT(disk_->Empty(), IsOk());
      EXPECT_THAT(Save(), IsOk());
      // A spare that the deletion of the first call takes is made by the second one.
      for (int i = 0; i < 2; ++i) EXPECT_THAT(checkpointer_->Tidy(), IsOk());
      EXPECT_GE(Spares(), 4) << "there is room for them again";
      Close();
      ASSERT_FALSE(HasFailure());
    }
    progress.Show(blocks + 1, "all of them freed");
  }
  progress.End();
  Summarize(
      fmt::format("retention on a full disk: {} times, from 0 to {} KiB left; steps went and the next save worked",
                  sizes, (kRetentionBlocksMax - 1) * 4));
}

}  // namespace
}  // namespace tidemark
