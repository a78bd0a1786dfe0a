// Shards whose index is a delta to the index of an earlier shard: their size, and the errors when the earlier shard is
// damaged or missing.

#include <cstring>
#include <filesystem>
#include <random>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/bytes/byte_reader.h"
#include "storage/shard/read/shard_verify.h"
#include "storage/shard/write/shard_writer.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Tensors of floats in the steps of one store.
class ShardWriterDelta : public ::testing::Test {
 protected:
  void Fill(size_t entries) {
    numbers_.resize(entries * floats_);
    for (float& number : numbers_) number = static_cast<float>(random_() % 1'000'000);
    names_.resize(entries);
    for (size_t i = 0; i < entries; ++i) names_[i] = fmt::format("layers.{:07}.weight", i);
  }
  void Change(size_t entry) { numbers_[entry * floats_ + 3] += 1; }
  void ChangeAtRandom(size_t entries) {
    for (size_t i = 0; i < entries; ++i) Change(random_() % names_.size());
  }

  ShardContents Contents() const {
    ShardContents contents;
    for (size_t i = 0; i < names_.size(); ++i) {
      contents.entries.push_back(
          {.spec = Tensor(names_[i], Dtype::kFloat32, {static_cast<int64_t>(floats_)}), .bytes = BytesOf(i)});
    }
    return contents;
  }
  std::span<const std::byte> BytesOf(size_t entry) const {
    return std::as_bytes(std::span(numbers_).subspan(entry * floats_, floats_));
  }

  static ShardIdentity IdentityOf(int64_t step) {
    ShardIdentity identity = TestIdentity(step);
    identity.sequence = static_cast<uint64_t>(step);
    return identity;
  }
  std::string PathOf(int64_t step) const {
    return directory_ / StepFolderName(step, IdentityOf(step).attempt) + "/" + ShardFileName(0, 1);
  }

  // Writes the next step, after the last one.
  WrittenShard Save(const ShardContents& contents, uint64_t saves_max = 0) {
    const ShardIdentity identity = IdentityOf(++step_);
    std::filesystem::create_directories(std::filesystem::path(PathOf(step_)).parent_path());
    ShardContents after = contents;
    after.reuse = last_.get();
    WrittenShard written =
        WriteShard(PathOf(step_), identity, after, {.policy = CodecPolicy::kNone, .reuse_saves_max = saves_max});
    last_ = written.reusable;
    return written;
  }
  WrittenShard Save() { return Save(Contents()); }

  absl::StatusOr<std::unique_ptr<ShardReader>> Open(int64_t step) {
    return ShardReader::Open(PosixFileSystem(), PathOf(step), directory_.path());
  }
  // Reads every entry of the last step.
  void ExpectReadsBack() {
    auto reader = Open(step_);
    ASSERT_THAT(reader, IsOk());
    EXPECT_EQ((*reader)->index(), last_->index);
    EXPECT_EQ((*reader)->index_base(), last_->index_base);
    std::vector<float> read(numbers_.size());
    std::vector<EntryRead> reads;
    for (size_t i = 0; i < names_.size(); ++i) {
      reads.push_back(
          {.entry = i, .destination = std::as_writable_bytes(std::span(read).subspan(i * floats_, floats_))});
    }
    ASSERT_THAT((*reader)->Read(reads, {}), IsOk());
    EXPECT_TRUE(read == numbers_);
  }
  std::vector<ShardDamage> DamageOf(int64_t step) {
    const ShardIdentity identity = IdentityOf(step);
    const auto verified = VerifyShard(PosixFileSystem(), PathOf(step), directory_.path(), &identity, {});
    EXPECT_THAT(verified, IsOk());
    return verified.ok() ? verified->damage : std::vector<ShardDamage>();
  }
  void Flip(int64_t step, uint64_t offset) {
    std::string bytes = ReadWhole(PathOf(step));
    bytes[offset] ^= 1;
    WriteWhole(PathOf(step), bytes);
  }

  const TestDirectory directory_;
  std::mt19937_64 random_{7};
  size_t floats_ = 16;  // of each tensor
  std::vector<float> numbers_;
  std::vector<std::string> names_;
  std::shared_ptr<const ReusableShard> last_;
  int64_t step_ = 0;
};

TEST_F(ShardWriterDelta, WritesAFiftiethWhereAHundredthOfAHundredThousandEntriesChanged) {
  Fill(100'000);
  const WrittenShard first = Save();
  EXPECT_FALSE(first.footer.index_is_delta);
  ChangeAtRandom(1000);
  const WrittenShard second = Save();
  EXPECT_TRUE(second.footer.index_is_delta);
  EXPECT_LE(second.footer.file_bytes, first.footer.file_bytes / 50);
  EXPECT_THAT(second.reusable->index.files, ElementsAre(ReferenceTo(IdentityOf(1))));
  ExpectReadsBack();
  EXPECT_THAT(DamageOf(2), IsEmpty());
  // Nothing changes.
  const WrittenShard third = Save();
  EXPECT_EQ(third.footer.index_bytes, second.footer.index_bytes + 32) << "and the file of the second save";
  ExpectReadsBack();
}

// Where a share p changes at random, the best that deltas to one base can do is sqrt(2 p) of the whole: 0.14.
TEST_F(ShardWriterDelta, TakesASixthOfTheWholeIndexWhereAHundredthChangesInEachOfManySaves) {
  Fill(12'000);
  const WrittenShard first = Save();
  uint64_t bytes = 0;
  int whole = 0;
  constexpr int kSaves = 30;
  for (int i = 0; i < kSaves; ++i) {
    ChangeAtRandom(120);
    const WrittenShard written = Save();
    bytes += written.footer.index_bytes;
    whole += written.footer.index_is_delta ? 0 : 1;
    EXPECT_LE(written.footer.index_bytes, first.footer.index_bytes + 65 * 32);
    const uint16_t base = written.reusable->index_base.file;
    if (base != 0) {
      const FileReference& file = written.reusable->index.files[base - 1];
      auto reader = Open(file.step);
      ASSERT_THAT(reader, IsOk());
      EXPECT_FALSE((*reader)->footer().index_is_delta) << "a base is whole";
    }
  }
  EXPECT_THAT(whole, ::testing::AllOf(::testing::Ge(1), ::testing::Le(4)));
  EXPECT_LE(bytes, kSaves * first.footer.index_bytes / 6);
  ExpectReadsBack();
  EXPECT_THAT(DamageOf(step_), IsEmpty());
}

TEST_F(ShardWriterDelta, IsWholeWhereEveryTensorChanged) {
  Fill(12'000);
  Save();
  for (size_t i = 0; i < names_.size(); ++i) Change(i);
  const WrittenShard second = Save();
  EXPECT_FALSE(second.footer.index_is_delta);
  EXPECT_THAT(second.reusable->index.files, IsEmpty());
  ExpectReadsBack();
}

// The descriptions are the larger part of the index, and did not change. The tensors are the larger part of the file.
TEST_F(ShardWriterDelta, KeepsNoFileForItsIndexAlone) {
  floats_ = 256;
  Fill(4'000);
  for (std::string& name : names_) name.append(300, 'x');
  Save();
  for (size_t i = 0; i < names_.size(); ++i) Change(i);
  const WrittenShard second = Save();
  EXPECT_FALSE(second.footer.index_is_delta);
  EXPECT_THAT(second.reusable->index.files, IsEmpty());
  for (size_t i = 0; i < names_.size() / 4; ++i) Change(i);
  EXPECT_TRUE(Save().footer.index_is_delta);
  ExpectReadsBack();
}

TEST_F(ShardWriterDelta, IsWholeWhereTheIndexIsSmall) {
  Fill(1000);
  Save();
  Change(5);
  EXPECT_FALSE(Save().footer.index_is_delta);
}

TEST_F(ShardWriterDelta, IsWholeWhereAnEntryWasAddedOrTheOrderIsAnother) {
  Fill(12'000);
  Save();
  names_.push_back("added");
  numbers_.resize(names_.size() * floats_);
  EXPECT_FALSE(Save().footer.index_is_delta);
  EXPECT_TRUE(Save().footer.index_is_delta);
  ExpectReadsBack();
}

// A text whose length changes with each save, as a trainer's log position.
TEST_F(ShardWriterDelta, HasTheEntriesWhoseDescriptionsChanged) {
  Fill(12'000);
  std::string text = "9";
  const auto contents = [&] {
    ShardContents with_text = Contents();
    with_text.entries.push_back({.spec = {.name = "note",
                                          .kind = EntryKind::kString,
                                          .dtype = Dtype::kUint8,
                                          .shape = {static_cast<int64_t>(text.size())}},
                                 .bytes = std::as_bytes(std::span(text))});
    return with_text;
  };
  Save(contents());
  for (const char* next : {"10", "100"}) {
    text = next;
    EXPECT_TRUE(Save(contents()).footer.index_is_delta);
    auto reader = Open(step_);
    ASSERT_THAT(reader, IsOk());
    EXPECT_EQ((*reader)->index(), last_->index);
    EXPECT_THAT((*reader)->index().entries.back().spec.shape, ElementsAre(text.size()));
    EXPECT_THAT(DamageOf(step_), IsEmpty());
  }
}

// The last two entries are boxes of one tensor, or of two tensors.
TEST_F(ShardWriterDelta, IsWholeWhereOnlyOneOfTheTwoRepeatsNames) {
  Fill(12'000);
  const auto contents = [&](bool repeats) {
    ShardContents with_boxes = Contents();
    for (size_t i = 0; i < 2; ++i) {
      EntrySpec& spec = with_boxes.entries[names_.size() - 2 + i].spec;
      spec = Tensor(repeats || i == 0 ? "w" : "v", Dtype::kFloat32, {2, static_cast<int64_t>(floats_)});
      spec.box_offset = {static_cast<int64_t>(i), 0};
      spec.box_extent = {1, static_cast<int64_t>(floats_)};
    }
    return with_boxes;
  };
  Save(contents(false));
  EXPECT_FALSE(Save(contents(true)).footer.index_is_delta);
  for (int i = 0; i < 2; ++i) {
    Change(5);
    EXPECT_TRUE(Save(contents(true)).footer.index_is_delta);
    ExpectReadsBack();
    EXPECT_TRUE((*Open(step_))->header().repeats_names);
    EXPECT_THAT(DamageOf(step_), IsEmpty());
  }
  // The next shard claims that no name is repeated.
  const std::string path = PathOf(step_ + 1);
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  WriteWhole(path, BuildShard({IdentityOf(step_ + 1), last_->chunk_bytes}, std::string(kShardBlockBytes, 'x'),
                              last_->index, last_->index_base));
  EXPECT_THAT(Open(step_ + 1),
              StatusIs(StatusCode::kDataLoss, HasSubstr("shard header: version: expected 1, found 2")));
  std::filesystem::remove(path);
  EXPECT_FALSE(Save(contents(false)).footer.index_is_delta);
  ExpectReadsBack();
}

TEST_F(ShardWriterDelta, HasNoBaseOfMoreSavesThanAFileMayBeOld) {
  Fill(12'000);
  constexpr uint64_t kSavesMax = 6;
  int deltas = 0;
  for (int i = 0; i < 30; ++i) {
    Change(static_cast<size_t>(i));
    const WrittenShard written = Save(Contents(), kSavesMax);
    deltas += written.footer.index_is_delta ? 1 : 0;
    for (const FileReference& file : written.reusable->index.files) EXPECT_LE(step_ - file.step, kSavesMax);
  }
  EXPECT_GE(deltas, 12);
  ExpectReadsBack();
}

// All chunks of the first save are written again by and by. What is left in use of its file is the index.
TEST_F(ShardWriterDelta, KeepsTheFileOfItsBase) {
  Fill(12'000);
  Save();
  ChangeAtRandom(100);
  const WrittenShard second = Save();
  ASSERT_TRUE(second.footer.index_is_delta);
  std::filesystem::remove(PathOf(1));
  EXPECT_THAT(Open(2), StatusIs(StatusCode::kNotFound, HasSubstr(PathOf(1))));
  const std::vector<ShardDamage> damage = DamageOf(2);
  ASSERT_EQ(damage.size(), 1u);
  EXPECT_EQ(damage[0].path, PathOf(1));
  EXPECT_THAT(damage[0].what, HasSubstr(PathOf(2)));
}

TEST_F(ShardWriterDelta, NamesTheFileOfADamagedBase) {
  Fill(12'000);
  const WrittenShard first = Save();
  Change(0);
  ASSERT_TRUE(Save().footer.index_is_delta);
  Flip(1, first.footer.index_offset + 100'000);
  EXPECT_THAT(Open(2), StatusIs(StatusCode::kDataLoss, HasSubstr(PathOf(1) + " at ")));
  const std::vector<ShardDamage> damage = DamageOf(2);
  ASSERT_EQ(damage.size(), 1u);
  EXPECT_EQ(damage[0].path, PathOf(1));
  EXPECT_THAT(damage[0].what, HasSubstr("shard index: digest"));
}

TEST_F(ShardWriterDelta, RefusesABaseThatIsAnotherThanItWas) {
  Fill(12'000);
  Save();
  Change(0);
  ASSERT_TRUE(Save().footer.index_is_delta);
  // The same shard, written once more with other numbers.
  Change(1);
  std::filesystem::remove(PathOf(1));
  WriteShard(PathOf(1), IdentityOf(1), Contents(), {.policy = CodecPolicy::kNone});
  EXPECT_THAT(Open(2), StatusIs(StatusCode::kDataLoss, HasSubstr("shard footer: index digest: expected")));
}

TEST_F(ShardWriterDelta, RefusesABaseThatIsADeltaItself) {
  Fill(12'000);
  Save();
  Change(0);
  ASSERT_TRUE(Save().footer.index_is_delta);
  // The third shard claims that the second one is its base.
  ShardIndex index = last_->index;
  IndexBase base = last_->index_base;
  auto second = Open(2);
  ASSERT_THAT(second, IsOk());
  base.digest = (*second)->footer().index_digest;
  index.files = {ReferenceTo(IdentityOf(2)), ReferenceTo(IdentityOf(1))};
  base.file = 1;
  const std::string path = PathOf(3);
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  WriteWhole(path, BuildShard({IdentityOf(3), last_->chunk_bytes}, "", index, base));
  EXPECT_THAT(Open(3), StatusIs(StatusCode::kDataLoss, HasSubstr("expected one that is whole, found a delta")));
}

}  // namespace
}  // namespace tidemark::storage
