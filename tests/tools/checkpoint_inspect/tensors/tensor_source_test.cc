#include "tools/checkpoint_inspect/tensors/tensor_source.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "tests/snapshot/observers.h"
#include "tests/tools/checkpoint_inspect/test_store.h"
#include "tidemark/store_reader.h"

namespace tidemark::inspect {
namespace {

absl::Status ReadWeight(const TensorSource& source) {
  const std::span<const StoredEntry> entries = source.entries();
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [](const StoredEntry& entry) { return entry.spec.name == "model.weight"; });
  if (found == entries.end()) return absl::NotFoundError("no model.weight");
  std::vector<std::byte> bytes(found->bytes);
  const StepReader::Window window{.entry = static_cast<size_t>(found - entries.begin()), .destination = bytes};
  return source.Read({&window, 1});
}

// Two steps of the same bytes, of which the second refers to the file of the first.
class StepSourceTest : public testing::Test {
 protected:
  StepSourceTest() {
    CheckpointerOptions options{.directory = store_.directory()};
    options.observer = NoWarnings();
    auto checkpointer = AsyncCheckpointer::Open(std::move(options));
    EXPECT_TRUE(checkpointer.ok()) << checkpointer.status();
    TestState state(5000);
    for (const int64_t step : {1, 2}) {
      EXPECT_TRUE((*checkpointer)->Save(step, state).ok());
      EXPECT_TRUE((*checkpointer)->WaitUntilCommitted().ok());
    }
    EXPECT_TRUE((*checkpointer)->Close().ok());
  }

  std::unique_ptr<TensorSource> Open(int64_t step, std::string advice = "") const {
    const auto reader = StoreReader::Open(store_.directory());
    EXPECT_TRUE(reader.ok()) << reader.status();
    auto opened = (*reader)->OpenStep(step);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return MakeStepSource(*std::move(opened), "a step", std::move(advice));
  }

  const TestStore store_;
};

TEST_F(StepSourceTest, IsReadToTheEndWhenItsFilesAreGone) {
  const auto source = Open(1);
  store_.RemoveStep(1);
  EXPECT_EQ(ReadWeight(*source), absl::OkStatus());
}

TEST_F(StepSourceTest, WasRemovedWhereWhatItRefersToWentWithIt) {
  const auto source = Open(2);
  store_.RemoveStep(2);
  store_.RemoveStep(1);
  EXPECT_EQ(ReadWeight(*source), absl::AbortedError("step 2 was removed while it was being read"));
}

TEST_F(StepSourceTest, LacksAFileWhereOnlyWhatItRefersToIsGone) {
  const auto source = Open(2);
  store_.RemoveStep(1);
  EXPECT_TRUE(absl::IsDataLoss(ReadWeight(*source))) << ReadWeight(*source);
}

TEST_F(StepSourceTest, SaysItsAdviceBehindDamageAndNothingElse) {
  const auto source = Open(2, "; advice");
  const auto other = Open(2, "; advice");
  store_.RemoveStep(1);
  const absl::Status lacks = ReadWeight(*source);
  EXPECT_TRUE(absl::IsDataLoss(lacks)) << lacks;
  EXPECT_THAT(std::string(lacks.message()), testing::EndsWith("; advice"));
  store_.RemoveStep(2);
  EXPECT_EQ(ReadWeight(*other), absl::AbortedError("step 2 was removed while it was being read"));
}

}  // namespace
}  // namespace tidemark::inspect
