#include "tidemark/step_reader.h"

#include <algorithm>
#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using storage::TestDirectory;
using testing::HasSubstr;

class StepReaderTest : public testing::Test {
 protected:
  void SetUp() override {
    auto checkpointer = AsyncCheckpointer::Open({.directory = store_, .reuse = false});
    ASSERT_THAT(checkpointer, IsOk());
    for (int64_t step : {1, 2}) {
      trainer_.SetTo(1);
      trainer_.epoch = step;
      auto save = (*checkpointer)->Save(step, trainer_.state);
      ASSERT_THAT(save, IsOk());
      ASSERT_THAT(save->committed().Wait(), IsOk());
    }
    ASSERT_THAT((*checkpointer)->Close(), IsOk());
  }

  std::unique_ptr<StepReader> OpenStep(int64_t step) const {
    auto reader = StoreReader::Open(store_);
    EXPECT_THAT(reader, IsOk());
    auto opened = (*reader)->OpenStep(step);
    EXPECT_THAT(opened, IsOk());
    return *std::move(opened);
  }

  // That of 'model.weight', from byte `offset` on.
  bool IsWeight(std::span<const std::byte> bytes, uint64_t offset) const {
    const auto weight = std::as_bytes(std::span(trainer_.weight));
    return std::equal(bytes.begin(), bytes.end(), weight.begin() + static_cast<ptrdiff_t>(offset));
  }

  TestDirectory directory_;
  const std::string store_ = directory_ / "store";
  TestTrainer trainer_;
};

TEST_F(StepReaderTest, ReadsSeveralWindowsAtOnce) {
  const auto step = OpenStep(1);
  EXPECT_EQ(step->contents().info.step, 1);
  EXPECT_EQ(step->chunk_bytes(), uint64_t{1} << 20);
  std::vector<std::byte> front(70'000);
  std::vector<std::byte> end(4);
  std::vector<std::byte> bias(17 * sizeof(double));
  const StepReader::Window windows[] = {{.entry = 0, .offset = 3, .destination = front},
                                        {.entry = 1, .destination = bias},
                                        {.entry = 0, .offset = 1'199'996, .destination = end}};
  ASSERT_THAT(step->Read(windows), IsOk());
  EXPECT_TRUE(IsWeight(front, 3));
  EXPECT_TRUE(IsWeight(end, 1'199'996));
  EXPECT_TRUE(std::ranges::equal(bias, std::as_bytes(std::span(trainer_.bias))));
}

TEST_F(StepReaderTest, RefusesWhatIsNotThere) {
  const auto step = OpenStep(1);
  std::vector<std::byte> bytes(8);
  const StepReader::Window no_entry{.entry = 4, .destination = bytes};
  EXPECT_THAT(step->Read({&no_entry, 1}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no entry 4")));
  const StepReader::Window beyond{.entry = 0, .offset = 1'199'993, .destination = bytes};
  EXPECT_THAT(step->Read({&beyond, 1}), StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("'model.weight' has")));
}

TEST_F(StepReaderTest, TellsByTheDigestWhichEntriesAreTheSame) {
  const auto first = OpenStep(1);
  const auto second = OpenStep(2);
  const auto digest = [](const StepReader& step, size_t entry) { return step.contents().entries[entry].digest; };
  EXPECT_EQ(digest(*first, 0), digest(*second, 0));
  EXPECT_EQ(digest(*first, 1), digest(*second, 1));
  EXPECT_NE(digest(*first, 2), digest(*second, 2)) << "the epoch";
  EXPECT_NE(digest(*first, 0), digest(*first, 1));
}

TEST_F(StepReaderTest, ReadsAStepThatHasBeenRemovedMeanwhile) {
  const auto step = OpenStep(1);
  std::filesystem::remove_all(std::filesystem::path(ShardPath(store_, 1)).parent_path());
  std::vector<std::byte> bytes(1'200'000);
  const StepReader::Window window{.entry = 0, .destination = bytes};
  ASSERT_THAT(step->Read({&window, 1}), IsOk());
  EXPECT_TRUE(IsWeight(bytes, 0));
}

TEST_F(StepReaderTest, NamesTheChunkThatIsDamaged) {
  FlipBit(ShardPath(store_, 1), 100'000);
  const auto step = OpenStep(1);
  std::vector<std::byte> bytes(4096);
  const StepReader::Window damaged{.entry = 0, .destination = bytes};
  EXPECT_THAT(step->Read({&damaged, 1}), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("chunk 0")));
  const StepReader::Window sound{.entry = 0, .offset = 1 << 20, .destination = bytes};
  EXPECT_THAT(step->Read({&sound, 1}), IsOk());
}

}  // namespace
}  // namespace tidemark
