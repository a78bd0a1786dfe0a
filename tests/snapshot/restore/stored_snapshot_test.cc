#include "snapshot/restore/stored_snapshot.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/store/store_identity.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/other_process.h"
#include "tests/snapshot/step_companion.h"
#include "tests/snapshot/test_snapshot.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> Names(const Snapshot& snapshot) {
  std::vector<std::string> names;
  for (const EntrySpec& spec : snapshot.entries()) names.push_back(spec.name);
  return names;
}

constexpr int64_t kTiedWeights = 300'000;

// Two names for one tensor of five chunks, and smaller things.
class TiedState final : public State {
 public:
  TiedState() : weight(kTiedWeights), bias(17) {
    for (size_t i = 0; i < weight.size(); ++i) weight[i] = static_cast<float>(i) / 1000 - 7;
    for (size_t i = 0; i < bias.size(); ++i) bias[i] = 7 + static_cast<double>(i) / 100;
    AddTensor("model.bias", Dtype::kFloat64, {17}, bias.data());
    AddTensor("model.empty", Dtype::kFloat32, {0, 5}, nullptr);
    AddValue("epoch", &epoch);
    Entry entry{.spec = {.name = "model.weight", .dtype = Dtype::kFloat32, .shape = {kTiedWeights}},
                .bytes = kTiedWeights * sizeof(float),
                .host = reinterpret_cast<std::byte*>(weight.data())};
    Entry tied = entry;
    tied.spec.name = "model.tied";
    tied.alias_of = 0;
    SetDerivedEntries({entry, tied});
  }
  std::vector<float> weight;
  std::vector<double> bias;
  int64_t epoch = 7;
};

class StoredSnapshotTest : public testing::Test {
 protected:
  void SetUp() override { SaveWith({}); }

  // Saves step 7, anew if it is there, with these companions, and has the tests read that.
  void SaveWith(const std::vector<std::shared_ptr<Companion>>& companions) {
    auto checkpointer = AsyncCheckpointer::Open({.directory = layout_.directory(),
                                                 .compression = Compression::kNone,
                                                 .tuning = {.chunk_bytes = 1 << 18},
                                                 .observer = NoWarnings()});
    ASSERT_THAT(checkpointer, IsOk());
    for (const auto& companion : companions) ASSERT_THAT((*checkpointer)->AddCompanion(companion), IsOk());
    const bool overwrite = !companions.empty();
    ASSERT_THAT(
        (*checkpointer)
            ->Save(7, state_, {.metrics = {{"loss", 0.5}}, .user_metadata = R"({"a":1})", .overwrite = overwrite}),
        IsOk());
    ASSERT_THAT((*checkpointer)->Close(), IsOk());
    const auto id = storage::ReadStoreIdentity(storage::PosixFileSystem(), layout_);
    ASSERT_THAT(id, IsOk());
    id_ = *id;
    const auto journal = OtherProcess(layout_.directory()).Open();
    ASSERT_THAT(journal, IsOk());
    record_ = **(*journal)->catalog().Find(7);
  }

  absl::StatusOr<std::shared_ptr<const Snapshot>> Read(std::vector<std::string> patterns = {},
                                                       HalfPrecision half = HalfPrecision::kNone,
                                                       CompanionEntries companions = CompanionEntries::kByPatterns) {
    return OpenStoredSnapshot({files_, layout_, id_, read_}, record_, patterns, half, companions);
  }

  uint64_t BytesRead() const {
    uint64_t bytes = 0;
    for (const auto& call : files_.calls()) bytes += call.operation == "QueueRead" ? call.bytes : 0;
    return bytes;
  }

  std::string shard() const { return ShardPath(layout_.directory(), 7); }

  // Into the middle of an entry's bytes.
  void Damage(std::string_view name) {
    auto reader = storage::ShardReader::Open(files_, shard(), layout_.steps());
    ASSERT_THAT(reader, IsOk());
    const storage::ShardIndex& index = (*reader)->index();
    const auto entry = std::find_if(index.entries.begin(), index.entries.end(),
                                    [&](const storage::ShardEntry& one) { return one.spec.name == name; });
    ASSERT_NE(entry, index.entries.end());
    FlipBit(shard(), index.chunks[entry->first_chunk].offset + 3);
  }

  storage::TestDirectory directory_;
  const storage::StoreLayout layout_{directory_ / "store"};
  storage::FailingFileSystem files_{storage::PosixFileSystem()};
  const storage::ShardReadOptions read_{.codec_threads = 2};
  storage::StoreId id_;
  storage::StepRecord record_;
  TiedState state_;
};

TEST_F(StoredSnapshotTest, HasEveryEntryAsItWasSaved) {
  auto snapshot = Read();
  ASSERT_THAT(snapshot, IsOk());
  EXPECT_EQ((*snapshot)->step(), 7);
  EXPECT_THAT(Names(**snapshot), ElementsAre("model.bias", "model.empty", "epoch", "model.weight", "model.tied"));
  EXPECT_EQ(Numbers<float>(**snapshot, "model.weight"), state_.weight);
  EXPECT_EQ(Numbers<double>(**snapshot, "model.bias"), state_.bias);
  EXPECT_THAT(Numbers<int64_t>(**snapshot, "epoch"), ElementsAre(7));
  EXPECT_TRUE((*snapshot)->bytes(*(*snapshot)->Find("model.empty")).empty());
  EXPECT_EQ((*snapshot)->metrics(), (std::map<std::string, double>{{"loss", 0.5}}));
  EXPECT_EQ((*snapshot)->user_metadata(), R"({"a":1})");
  EXPECT_EQ((*snapshot)->Find("model.nothing"), std::nullopt);
}

TEST_F(StoredSnapshotTest, HasEntriesOfCompanionsOnlyIfPatternsAskForThem) {
  SaveWith({std::make_shared<StepCompanion>()});
  for (CompanionEntries companions : {CompanionEntries::kNever, CompanionEntries::kByPatterns}) {
    auto all = Read({}, HalfPrecision::kNone, companions);
    ASSERT_THAT(all, IsOk());
    EXPECT_THAT(Names(**all), ElementsAre("model.bias", "model.empty", "epoch", "model.weight", "model.tied"));
    EXPECT_EQ(Numbers<float>(**all, "model.weight"), state_.weight);
  }
  auto asked = Read({"ema.*", "epoch"});
  ASSERT_THAT(asked, IsOk());
  EXPECT_THAT(Names(**asked), testing::UnorderedElementsAre("epoch", "ema.step"));
  EXPECT_THAT(Numbers<int64_t>(**asked, "ema.step"), ElementsAre(7));
  EXPECT_THAT(Read({"ema.*"}, HalfPrecision::kNone, CompanionEntries::kNever),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'ema.*' matches no entry")));
}

TEST_F(StoredSnapshotTest, KeepsTiedEntriesTiedAndAligned) {
  for (HalfPrecision half : {HalfPrecision::kNone, HalfPrecision::kBfloat16}) {
    auto snapshot = Read({}, half);
    ASSERT_THAT(snapshot, IsOk());
    const auto bytes = [&](std::string_view name) { return (*snapshot)->bytes(*(*snapshot)->Find(name)); };
    EXPECT_EQ(bytes("model.weight").data(), bytes("model.tied").data());
    EXPECT_NE(bytes("model.weight").data(), bytes("model.bias").data());
    for (size_t i = 0; i < (*snapshot)->entries().size(); ++i) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>((*snapshot)->bytes(i).data()) % 64, 0u) << i;
    }
  }
}

TEST_F(StoredSnapshotTest, ReadsTheEntriesThatAreAskedForAndLooksAtNoOthers) {
  ASSERT_THAT(Read(), IsOk());
  EXPECT_GE(BytesRead(), kTiedWeights * sizeof(float));
  Damage("model.weight");
  files_.Reset();
  auto snapshot = Read({"model.bias", "ep*"});
  ASSERT_THAT(snapshot, IsOk());
  EXPECT_THAT(Names(**snapshot), ElementsAre("model.bias", "epoch"));
  EXPECT_EQ(Numbers<double>(**snapshot, "model.bias"), state_.bias);
  // Small entries lie side by side; with them and the index come a few pages.
  EXPECT_GT(BytesRead(), 0u);
  EXPECT_LE(BytesRead(), 32u * 1024);
}

TEST_F(StoredSnapshotTest, ConvertsWhatIsAskedForInHalf) {
  for (auto [half, dtype] :
       {std::pair(HalfPrecision::kBfloat16, Dtype::kBfloat16), std::pair(HalfPrecision::kFloat16, Dtype::kFloat16)}) {
    auto snapshot = Read({"model.*", "epoch"}, half);
    ASSERT_THAT(snapshot, IsOk());
    const EntrySpec& weight = (*snapshot)->entries()[*(*snapshot)->Find("model.weight")];
    EXPECT_EQ(weight.dtype, dtype);
    EXPECT_THAT(weight.shape, ElementsAre(kTiedWeights));
    EXPECT_THAT(Numbers<int64_t>(**snapshot, "epoch"), ElementsAre(7));
    // 7 and 7.01 to 7.16: those of a float64 tensor.
    const std::vector<uint16_t> bias = Numbers<uint16_t>(**snapshot, "model.bias");
    ASSERT_EQ(bias.size(), 17u);
    EXPECT_EQ(bias[0], half == HalfPrecision::kBfloat16 ? 0x40e0 : 0x4700);
    EXPECT_EQ(Numbers<uint16_t>(**snapshot, "model.weight").size(), static_cast<size_t>(kTiedWeights));
  }
}

TEST_F(StoredSnapshotTest, RefusesAPatternThatMatchesNothing) {
  EXPECT_THAT(Read({"model.*", "modle.*"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("read of step 7"), HasSubstr("'modle.*' matches no entry"))));
}

TEST_F(StoredSnapshotTest, ReportsDamageOfWhatIsAskedFor) {
  Damage("model.weight");
  EXPECT_THAT(Read(), StatusIs(absl::StatusCode::kDataLoss,
                               AllOf(HasSubstr("read of step 7"), HasSubstr("model.weight"), HasSubstr(shard()))));
  EXPECT_THAT(Read({"model.tied"}), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("model.tied")));
}

TEST_F(StoredSnapshotTest, TakesAChangedVersionForDamage) {
  FlipBit(shard(), 8);
  EXPECT_THAT(Read(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("read of step 7")));
}

TEST_F(StoredSnapshotTest, RefusesAnotherShardInThePlaceOfTheCommittedOne) {
  record_.shards.Add(1, 0, {});
  EXPECT_THAT(Read(), StatusIs(absl::StatusCode::kDataLoss,
                               HasSubstr("differ in number, size or digest from those that were committed")));
}

TEST_F(StoredSnapshotTest, SaysThatFilesAreGone) {
  std::filesystem::remove(shard());
  EXPECT_THAT(Read(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("read of step 7")));
  record_.info.attempt.clear();
  EXPECT_THAT(Read(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("step 7 has no attempt")));
}

TEST_F(StoredSnapshotTest, ReturnsWhatTheDeviceAnswers) {
  files_.FailOperation("QueueRead", absl::InternalError("a bad cable"));
  EXPECT_THAT(Read(), StatusIs(absl::StatusCode::kInternal, HasSubstr("a bad cable")));
  EXPECT_THAT(Read(), IsOk());
  files_.FailOperation("QueueRead", absl::InternalError("a bad cable"));
  EXPECT_THAT(Read({"model.weight"}, HalfPrecision::kFloat16),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("a bad cable")));
}

}  // namespace
}  // namespace tidemark
