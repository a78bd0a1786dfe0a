#include "storage/store/attempt_reader.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/few_descriptors.h"
#include "tests/storage/records/step_record_json.h"
#include "tests/storage/store/one_attempt.h"

namespace tidemark::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class AttemptReaderTest : public OneAttemptTest {
 protected:
  absl::StatusOr<Attempt> Read(const StepFolder& folder) { return ReadAttempt(files_, layout_, store_id_, folder); }
};

TEST_F(AttemptReaderTest, MakesTheRecordThatWasCommitted) {
  auto attempt = Read(folder());
  ASSERT_THAT(attempt, IsOk());
  EXPECT_EQ(attempt->record.info.step, 10);
  EXPECT_EQ(attempt->record.info.sequence, identity_.sequence);
  EXPECT_EQ(attempt->record.info.metrics.at("loss"), 42);
  EXPECT_EQ(attempt->record.info.logical_bytes, 8u);
  ShardsDigest shards;
  shards.Add(0, std::filesystem::file_size(shard()), attempt->shards[0]->footer().index_digest);
  EXPECT_EQ(attempt->record.shards, shards);
}

// Save refuses such names. In a record they are one, and a record must be written that says so.
TEST_F(AttemptReaderTest, MakesARecordThatCanBeWrittenOfNamesThatAreNoUtf8) {
  for (const bool rebuilt : {false, true}) {
    SCOPED_TRACE(rebuilt);
    if (rebuilt) {
      for (const std::string& folder : {layout_.journal(), layout_.index()}) std::filesystem::remove_all(folder);
    }
    auto store = OpenStore(directory_.path(), &warnings_);
    ASSERT_THAT(store, IsOk());
    if (!rebuilt) {
      const auto identity = (*store)->BeginAttempt(11);
      ASSERT_THAT(identity, IsOk());
      auto writer = ShardWriter::Create(files_, {.io = IoQueueKind::kThreads});
      ASSERT_THAT(writer, IsOk());
      ShardContents contents;
      contents.metrics = {{"loss \xfe", 1}, {"loss \xff", 1}};
      ASSERT_THAT((*writer)->Write(layout_.shard(11, identity->attempt, 0, 1), *identity, contents), IsOk());
      ASSERT_THAT(Commit(**store, *identity), IsOk());
    }
    const auto record = (*store)->catalog().Find(11);
    ASSERT_THAT(record, IsOk());
    ASSERT_TRUE(record->has_value());
    EXPECT_THAT((*record)->info.metrics, ElementsAre(testing::Pair("loss \ufffd", 1)));
  }
}

TEST_F(AttemptReaderTest, MakesTheRecordOfMoreShardsThanMayBeOpenAtOnce) {
  constexpr uint32_t kWorldSize = 24;
  const StepFolder folder{11, AttemptId{{7}}};
  ASSERT_THAT(files_.CreateDirectory(layout_.attempt(folder.step, folder.attempt)), IsOk());
  for (uint32_t rank = 0; rank < kWorldSize; ++rank) {
    const ShardIdentity identity{.store = store_id_,
                                 .step = folder.step,
                                 .attempt = folder.attempt,
                                 .sequence = 2,
                                 .rank = rank,
                                 .world_size = kWorldSize};
    ASSERT_THAT(WriteShard(layout_, identity, rank), IsOk());
  }
  std::optional<FewDescriptors> few(kWorldSize / 2);
  const absl::StatusOr<StepRecord> record = ReadAttemptRecord(files_, layout_, store_id_, folder);
  const absl::Status at_once = Read(folder).status();
  few.reset();
  EXPECT_THAT(at_once, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("EMFILE")));
  ASSERT_THAT(record, IsOk());
  const absl::StatusOr<Attempt> attempt = Read(folder);
  ASSERT_THAT(attempt, IsOk());
  EXPECT_EQ(EncodeStepRecord(*record), EncodeStepRecord(attempt->record));
  EXPECT_EQ(attempt->shards.size(), kWorldSize);
}

TEST_F(AttemptReaderTest, MissesAShard) {
  std::filesystem::remove(shard());
  EXPECT_THAT(Read(folder()), StatusIs(absl::StatusCode::kNotFound, HasSubstr("holds no shard")));
  EXPECT_THAT(Read({11, identity_.attempt}), StatusIs(absl::StatusCode::kNotFound, HasSubstr("0000000011-")));
}

TEST_F(AttemptReaderTest, MissesTheShardOfASecondRank) {
  std::filesystem::copy_file(shard(), layout_.shard(10, identity_.attempt, 0, 2));
  std::filesystem::remove(shard());
  EXPECT_THAT(Read(folder()), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("rank 0 of 1")));
}

TEST_F(AttemptReaderTest, RefusesAShardInAnothersFolder) {
  std::filesystem::rename(layout_.attempt(10, identity_.attempt), layout_.attempt(11, identity_.attempt));
  EXPECT_THAT(Read({11, identity_.attempt}),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("its header is that of step 10")));
}

TEST_F(AttemptReaderTest, RefusesAShardOfAnotherStore) {
  store_id_.bytes[0] ^= 1;
  EXPECT_THAT(Read(folder()), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("belongs to store")));
}

TEST_F(AttemptReaderTest, ListsAttemptsAndSetsStrangersApart) {
  std::filesystem::create_directory(layout_.steps() + "/tmp");
  std::ofstream(layout_.steps() + "/0000000010-00000000000000000000000000000000") << "a file";
  std::vector<std::string> strangers;
  auto folders = ListAttempts(files_, layout_, &strangers);
  ASSERT_THAT(folders, IsOk());
  ASSERT_EQ(folders->size(), 1u);
  EXPECT_EQ(folders->front().attempt, identity_.attempt);
  EXPECT_THAT(strangers, ElementsAre("0000000010-00000000000000000000000000000000", "tmp"));
}

TEST_F(AttemptReaderTest, FindsTheStoreIdInAnyShard) {
  auto id = FindStoreId(files_, layout_);
  ASSERT_THAT(id, IsOk());
  EXPECT_EQ(*id, store_id_);
  std::filesystem::remove(shard());
  EXPECT_THAT(FindStoreId(files_, layout_), StatusIs(absl::StatusCode::kNotFound, HasSubstr("no shard can be read")));
}

TEST_F(AttemptReaderTest, FindsNoStoreIdWhereShardsDisagreeOrCannotBeLookedAt) {
  const std::string other_path = directory_ / ".other";
  auto other = OpenStore(other_path, &warnings_);
  ASSERT_THAT(other, IsOk());
  const ShardIdentity foreign = CommitStep(**other, 8, 8);
  std::filesystem::copy((*other)->layout().attempt(8, foreign.attempt), layout_.attempt(8, foreign.attempt),
                        std::filesystem::copy_options::recursive);
  EXPECT_THAT(FindStoreId(files_, layout_),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(ToHex(foreign.store.bytes))));
  FailingFileSystem failing(files_);
  failing.FailOperation("OpenForRead", absl::InternalError("EIO"));
  EXPECT_THAT(FindStoreId(failing, layout_), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
}

}  // namespace
}  // namespace tidemark::storage
