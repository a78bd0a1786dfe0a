#include "tools/checkpoint_inspect/tensor_source.h"

#include <algorithm>
#include <filesystem>

#include "gmock/gmock.h"
#include "tests/tools/checkpoint_inspect/test_store.h"
#include "tidemark/store_reader.h"

namespace tidemark::inspect {
namespace {

namespace fs = std::filesystem;

// All of the tensor that TestStore::DamageChunk damages.
absl::Status ReadWeight(const TensorSource& source) {
  const std::span<const StoredEntry> entries = source.entries();
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [](const StoredEntry& entry) { return entry.spec.name == "model.weight"; });
  if (found == entries.end()) return absl::NotFoundError("no model.weight");
  std::vector<std::byte> bytes(found->bytes);
  const StepReader::Window window{.entry = static_cast<size_t>(found - entries.begin()), .destination = bytes};
  return source.Read({&window, 1});
}

class StepSourceTest : public testing::Test {
 protected:
  StepSourceTest() {
    store_.Save({1});
    const auto reader = StoreReader::Open(store_.directory());
    EXPECT_TRUE(reader.ok()) << reader.status();
    auto step = (*reader)->OpenStep(1);
    EXPECT_TRUE(step.ok()) << step.status();
    source_ = MakeStepSource(*std::move(step), "step 1");
  }

  const TestStore store_;
  std::unique_ptr<TensorSource> source_;
};

TEST_F(StepSourceTest, CallsDamageOfAStepThatIsThereDamage) {
  EXPECT_EQ(ReadWeight(*source_), absl::OkStatus());
  store_.DamageChunk(1);
  EXPECT_TRUE(absl::IsDataLoss(ReadWeight(*source_))) << ReadWeight(*source_);
}

// As a trainer does it that lets the step go, and has its file for the next one.
TEST_F(StepSourceTest, CallsAFileThatWasWrittenOverForAnotherStepRemoved) {
  const std::string shard = store_.ShardPath(1);
  store_.DamageChunk(1);
  fs::rename(shard, store_.directory() + "/retired.tmk");
  EXPECT_EQ(ReadWeight(*source_), absl::AbortedError("step 1 was removed while it was being read"));
}

TEST_F(StepSourceTest, ReadsWhatWasRemovedAndIsWhole) {
  store_.RemoveStep(1);
  EXPECT_EQ(ReadWeight(*source_), absl::OkStatus());
}

}  // namespace
}  // namespace tidemark::inspect
