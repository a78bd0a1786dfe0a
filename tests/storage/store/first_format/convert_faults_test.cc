// Stores of the first format are converted without a loss where something is damaged, fails, or is cut short.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/index/manifest.h"
#include "storage/store/first_format/folder_note.h"
#include "storage/store/rebuild.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/store/first_format/convert_testing.h"
#include "tests/storage/store/first_format/written_files.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class ConvertFaultsTest : public ConvertTest {
 protected:
  // In the place of what is there.
  void PutStore(const FileTree& tree) {
    ASSERT_THAT(RemoveTree(disk_, "/store"), IsOk());
    WriteTree(disk_, "/store", tree);
  }
};

// Without the manifest, or with one that lacks an end: what only that knew is gone.
void ExpectFromShards(Store& store, FileSystem& files) {
  EXPECT_THAT(ReadValue(store, 6, files), IsOkAndHolds(50));
  EXPECT_THAT(ReadValue(store, 10, files), IsOkAndHolds(100));
  EXPECT_THAT(ReadValue(store, 20, files), IsOkAndHolds(100));
  EXPECT_THAT(ReadValue(store, 35, files), IsOkAndHolds(350));
  EXPECT_THAT(ReadValue(store, 50, files), IsOkAndHolds(501));
  EXPECT_THAT(InfoOf(store, 10).tags, ElementsAre("paper", "v1.0"));
  EXPECT_EQ(InfoOf(store, 10).metrics.at("validation/loss"), 0.5);
  EXPECT_EQ(InfoOf(store, 50).metrics.at("worker/bleu"), 31.5);
  EXPECT_EQ(InfoOf(store, 5).state, StepState::kDeleted) << "its folder says so";
  EXPECT_THAT(TrySave(store, 80, 800, files), IsOk());
}

TEST_F(ConvertFaultsTest, TakesTheShardsWhereTheManifestIsLost) {
  for (const bool is_empty : {false, true}) {
    ASSERT_THAT(RemoveTree(disk_, "/store"), IsOk());
    MakeGoldenStore(disk_, "/store");
    ASSERT_THAT(RemoveTree(disk_, kLayout.manifest()), IsOk());
    if (is_empty) {
      ASSERT_THAT(disk_.CreateDirectory(kLayout.manifest()), IsOk());
    }
    const auto store = Open();
    EXPECT_THAT(warnings_, Contains(HasSubstr("steps are also taken from the shards")));
    ExpectFromShards(*store, disk_);
    // Whole, so it may have been committed.
    EXPECT_THAT(ReadValue(*store, 70, disk_), IsOkAndHolds(700));
  }
}

TEST_F(ConvertFaultsTest, TakesTheShardsWhereTheEndOfTheManifestsLogIsDamaged) {
  const FileTree golden = GoldenStore();
  for (const size_t part : {3, 2}) {
    ASSERT_THAT(RemoveTree(disk_, "/store"), IsOk());
    FileTree damaged = golden;
    for (auto& [path, bytes] : damaged.files) {
      if (path.starts_with("/manifest/") && path.ends_with(".log")) bytes[bytes.size() / part] ^= 1;
    }
    WriteTree(disk_, "/store", damaged);
    const auto store = Open();
    EXPECT_THAT(warnings_, Contains(HasSubstr("or not all of it")));
    ExpectFromShards(*store, disk_);
  }
}

// Where the records of a log of RocksDB end that has one block.
std::vector<size_t> EndsOfRecords(std::string_view log) {
  constexpr size_t kHeaderBytes = 7;  // a checksum of 4 bytes, the size in 2, little-endian, and the kind
  std::vector<size_t> ends;
  for (size_t at = 0; at + kHeaderBytes <= log.size();) {
    at += kHeaderBytes + static_cast<uint8_t>(log[at + 4]) + 256 * static_cast<uint8_t>(log[at + 5]);
    ends.push_back(at);
  }
  return ends;
}

// RocksDB does not notice that.
TEST_F(ConvertFaultsTest, LosesNoStepWhereALogOfTheManifestIsMissing) {
  FileTree damaged = GoldenStore();
  ASSERT_EQ(std::erase_if(damaged.files,
                          [](const auto& file) {
                            return file.first.starts_with("/manifest/") && file.first.ends_with(".log");
                          }),
            1u);
  PutStore(damaged);
  const auto store = Open();
  EXPECT_THAT(warnings_, Not(Contains(HasSubstr("or not all of it"))));
  ExpectFromShards(*store, disk_);
}

// Nor that. The list ends with the table of what was recorded last.
TEST_F(ConvertFaultsTest, LosesNoStepWhereTheListOfTheManifestsFilesIsCut) {
  const StoreId id = *ReadStoreIdentity(disk_, kLayout);
  Facts facts;
  {
    const auto manifest = Manifest::OpenReadOnly(disk_, kLayout.manifest());
    ASSERT_THAT(manifest, IsOk());
    auto all = FactsOf(**manifest);
    ASSERT_THAT(all, IsOk());
    facts = *std::move(all);
  }
  ASSERT_THAT(RemoveTree(disk_, kLayout.manifest()), IsOk());
  ASSERT_THAT(Manifest::Create(disk_, kLayout.manifest(), id), IsOk());
  {
    const auto manifest = Manifest::Open(disk_, kLayout.manifest());
    ASSERT_THAT(manifest, IsOk());
    ASSERT_THAT((*manifest)->Apply({.number = 1, .epoch = 1}, facts), IsOk());
  }
  ASSERT_THAT(Manifest::Open(disk_, kLayout.manifest()), IsOk());
  const FileTree whole = ReadTree(disk_, "/store");
  const std::string current = whole.files.at("/manifest/CURRENT");
  const std::string list = "/manifest/" + current.substr(0, current.find('\n'));
  const std::vector<size_t> ends = EndsOfRecords(whole.files.at(list));
  ASSERT_GT(ends.size(), 2u);
  ASSERT_EQ(ends.back(), whole.files.at(list).size());
  size_t unnoticed = 0;
  for (const size_t end : ends) {
    SCOPED_TRACE(end);
    FileTree damaged = whole;
    damaged.files[list].resize(end);
    PutStore(damaged);
    const auto store = Open();
    ExpectFromShards(*store, disk_);
    const bool is_noticed = testing::Matches(Contains(HasSubstr("or not all of it")))(warnings_);
    const bool is_whole = InfoOf(*store, 40).state == StepState::kDamaged;  // which no shard says
    unnoticed += is_noticed || is_whole ? 0 : 1;
  }
  EXPECT_GT(unnoticed, 0u);
}

// Step 20's record is that of the golden store, and an attempt with a higher number is no newer save.
TEST_F(ConvertFaultsTest, TakesNoAttemptThatFailedOrWasDeletedForCommitted) {
  const StoreId id = *ReadStoreIdentity(disk_, kLayout);
  const auto record = ReadAttemptRecord(disk_, kLayout, id, GoldenFolder(20));
  ASSERT_THAT(record, IsOk());
  const ShardIdentity marked = WriteAttempt(20, 1, 1000);
  PutFile(disk_, kLayout.attempt(20, marked.attempt) + "/deleted.json", EncodeFolderNote("its save failed", {}));
  const ShardIdentity deleted = WriteAttempt(20, 2, 1001);
  const auto of_deleted = ReadAttemptRecord(disk_, kLayout, id, {20, deleted.attempt});
  ASSERT_THAT(of_deleted, IsOk());
  const ShardIdentity replaced = WriteAttempt(20, 3, 1);
  ASSERT_THAT(RemoveTree(disk_, kLayout.manifest()), IsOk());
  {
    const auto manifest = Manifest::Create(disk_, kLayout.manifest(), id);
    ASSERT_THAT(manifest, IsOk());
    const std::vector<Fact> facts = {StepFact{*of_deleted}, StepFact{*record}};
    ASSERT_THAT((*manifest)->Apply({.number = 1, .epoch = 1}, facts), IsOk());
    const auto deletions = (*manifest)->Deletions();
    ASSERT_THAT(deletions, IsOk());
    ASSERT_EQ(deletions->size(), 1u);
    EXPECT_EQ(deletions->front().attempt, deleted.attempt);
  }
  const auto store = Open();
  ExpectFromShards(*store, disk_);
  for (const ShardIdentity& attempt : {marked, deleted, replaced}) {
    EXPECT_THAT(disk_.TypeOf(kLayout.attempt(20, attempt.attempt)), StatusIs(StatusCode::kNotFound, testing::_));
  }
}

TEST_F(ConvertFaultsTest, AnAttemptWhoseBytesAreDamagedIsKeptInQuarantine) {
  const StepFolder seventy = GoldenFolder(70);
  const std::string shard = kLayout.shard(70, seventy.attempt, 0, 1);
  auto bytes = ReadSmallFile(disk_, shard, 1 << 20);
  ASSERT_THAT(bytes, IsOk());
  (*bytes)[4096] = static_cast<char>((*bytes)[4096] ^ 1);
  PutFile(disk_, shard, *bytes);
  const auto store = Open();
  EXPECT_THAT(warnings_, Contains(HasSubstr("step 70 is incomplete or damaged and was moved to quarantine")));
  EXPECT_FALSE(store->catalog().Find(70)->has_value());
  EXPECT_THAT(disk_.TypeOf(kLayout.quarantine() + "/" + StepFolderName(70, seventy.attempt)), IsOk());
}

// It is no reason to refuse the store.
TEST_F(ConvertFaultsTest, AnAttemptOfAnotherStoreIsLeftAlone) {
  ShardIdentity foreign{.store = StoreId{{9}}, .step = 80, .attempt = {RandomBytes16()}, .sequence = 1000};
  ASSERT_THAT(disk_.CreateDirectory(kLayout.attempt(80, foreign.attempt)), IsOk());
  ASSERT_THAT(WriteShard(kLayout, foreign, 800, disk_), IsOk());
  ASSERT_THAT(RemoveTree(disk_, kLayout.attempt(70, GoldenFolder(70).attempt)), IsOk());
  const auto store = Open();
  EXPECT_THAT(warnings_, Contains(HasSubstr("left alone")));
  ExpectGoldenSteps(*store, disk_);
  EXPECT_THAT(disk_.TypeOf(kLayout.attempt(80, foreign.attempt)), IsOk());
}

TEST_F(ConvertFaultsTest, GivesUpTheReserveWhereTheDiskIsFull) {
  PutFile(disk_, kLayout.reserve(), std::string(4096, '\0'));
  FailingFileSystem full(disk_);
  full.SetRule([&](const FailingFileSystem::Call& call) {
    const bool has_no_room = call.operation == "Create" && disk_.TypeOf(kLayout.reserve()).ok();
    return has_no_room ? absl::ResourceExhaustedError("ENOSPC") : absl::OkStatus();
  });
  const auto store = TryOpen(full);
  ASSERT_THAT(store, IsOk());
  ExpectConverted(**store, disk_);
}

// A library of before opens a store whose format it knows, and saves there.
TEST_F(ConvertFaultsTest, LosesNothingThatAnOlderLibraryWritesBetweenTwoOpenings) {
  const DiskImage image = disk_.image();
  size_t written = 0;
  size_t refused = 0;
  size_t opened = 0;
  const DrawnCalls drawn;
  for (size_t call = drawn.first; opened < 3; call += drawn.stride) {
    SCOPED_TRACE(call);
    ASSERT_LT(call, 5000u);
    SimulatedDisk disk(image);
    FailingFileSystem failing(disk);
    failing.FailFrom(call, absl::ResourceExhaustedError("ENOSPC"));
    const absl::Status status = TryOpen(failing).status();
    opened = status.ok() ? opened + 1 : 0;
    SCOPED_TRACE(status);
    int format = 0;
    const auto id = ReadStoreIdentity(disk, kLayout, &format);
    ASSERT_THAT(id, IsOk());
    ++(format < kStoreFormat ? written : refused);
    if (format < kStoreFormat) {
      const ShardIdentity saved{.store = *id, .step = 90, .attempt = {RandomBytes16()}, .sequence = 1000};
      ASSERT_THAT(disk.CreateDirectory(kLayout.attempt(90, saved.attempt)), IsOk());
      ASSERT_THAT(WriteShard(kLayout, saved, 900, disk), IsOk());
      PutFile(disk, kLayout.attempt(90, saved.attempt) + "/pin.json", EncodeFolderNote("pinned since", {}));
    }
    const auto store = TryOpen(disk);
    ASSERT_THAT(store, IsOk());
    ASSERT_THAT((*store)->SweepUncommitted(), IsOk());
    ExpectGoldenSteps(**store, disk);
    ExpectGoldenInbox(**store);
    EXPECT_THAT(ReadValue(**store, 70, disk), IsOkAndHolds(700));
    if (format < kStoreFormat) {
      EXPECT_THAT(ReadValue(**store, 90, disk), IsOkAndHolds(900));
      EXPECT_EQ(InfoOf(**store, 90).pin_note, "pinned since");
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(written, 0u);
  EXPECT_GT(refused, 10u);
}

// store.json says format 2 already, and nothing else tells it from a store whose journal is lost.
TEST_F(ConvertFaultsTest, IsDoneByTheNextOpeningWhereTheManifestIsLostToo) {
  ASSERT_THAT(RemoveTree(disk_, kLayout.manifest()), IsOk());
  PutFile(disk_, kLayout.identity(), EncodeStoreIdentity(*ReadStoreIdentity(disk_, kLayout)));
  const auto store = Open();
  ExpectFromShards(*store, disk_);
}

TEST_F(ConvertFaultsTest, IsDoneOrNotAfterACrash) {
  SimulatedDisk disk(disk_.image());
  ASSERT_THAT(TryOpen(disk), IsOk());
  const size_t states = OpenAfterCrashes(disk, OneOf(5, 50), ExpectConverted);
  EXPECT_GT(states, 5u);
}

TEST_F(ConvertFaultsTest, IsDoneOrNotWhicheverCallFails) {
  const DiskImage image = disk_.image();
  std::optional<SimulatedDisk> disk;
  std::optional<FailingFileSystem> failing;
  size_t refused = 0;
  size_t opened = 0;
  const DrawnCalls drawn;
  for (size_t call = drawn.first; opened < 3; call += drawn.stride) {
    SCOPED_TRACE(call);
    ASSERT_LT(call, 5000u);
    disk.emplace(image);
    failing.emplace(*disk);
    failing->FailCall(call, absl::InternalError("EIO"));
    const absl::Status status = TryOpen(*failing).status();
    refused += status.ok() ? 0 : 1;
    const std::vector<FailingFileSystem::Call> calls = failing->calls();
    SCOPED_TRACE(testing::Message() << (calls.size() > call ? calls[call].operation + " " + calls[call].path : "") << ": "
                                    << status << "; " << testing::PrintToString(warnings_));
    opened = calls.size() <= call ? opened + 1 : 0;
    const auto store = TryOpen(*disk);
    ASSERT_THAT(store, IsOk());
    ASSERT_THAT((*store)->SweepUncommitted(), IsOk());
    ExpectConverted(**store, *disk);
    if (HasFailure()) return;
  }
  EXPECT_GT(refused, 0u);
}

}  // namespace
}  // namespace tidemark::storage
