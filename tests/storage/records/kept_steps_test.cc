#include "storage/records/kept_steps.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidemark::storage {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

StepInfo InfoOf(int64_t step, StepState state = StepState::kCommitted) {
  StepInfo info;
  info.step = step;
  info.state = state;
  return info;
}

CommittedSteps Committed(std::initializer_list<int64_t> numbers) {
  CommittedSteps steps;
  for (const int64_t number : numbers) steps.push_back(std::make_shared<const StepInfo>(InfoOf(number)));
  return steps;
}

// {-1}: nothing is kept.
std::vector<int64_t> Kept(const KeptSteps& kept) {
  const std::optional<CommittedSteps> steps = kept.Get();
  if (!steps) return {-1};
  std::vector<int64_t> numbers;
  for (const auto& info : *steps) numbers.push_back(info->step);
  return numbers;
}

TEST(KeptSteps, KeepNothingBeforeTheyHaveBeenRead) {
  KeptSteps kept;
  EXPECT_THAT(Kept(kept), ElementsAre(-1));
  kept.Wrote(absl::OkStatus(), {InfoOf(1)});
  EXPECT_THAT(Kept(kept), ElementsAre(-1));
  kept.Keep({}, kept.writes());
  EXPECT_THAT(Kept(kept), IsEmpty());
}

TEST(KeptSteps, ChangeWithEveryWrite) {
  KeptSteps kept;
  kept.Keep(Committed({1, 3, 5}), kept.writes());
  const CommittedSteps before = *kept.Get();
  StepInfo pinned = InfoOf(3);
  pinned.pinned = true;
  kept.Wrote(absl::OkStatus(), {pinned, InfoOf(4), InfoOf(1, StepState::kDeleted), InfoOf(5, StepState::kLost),
                                InfoOf(7, StepState::kUnsaved)});
  EXPECT_THAT(Kept(kept), ElementsAre(3, 4));
  EXPECT_TRUE(kept.Get()->front()->pinned);
  EXPECT_FALSE(before[1]->pinned) << "who has been given it goes on with what it was";
  kept.Wrote(absl::OkStatus(), {InfoOf(5)});
  EXPECT_THAT(Kept(kept), ElementsAre(3, 4, 5));
}

TEST(KeptSteps, AreNotWhatWasReadBeforeAWrite) {
  KeptSteps kept;
  const uint64_t before = kept.writes();
  kept.Wrote(absl::OkStatus(), {InfoOf(2)});
  kept.Keep(Committed({1}), before);
  EXPECT_THAT(Kept(kept), ElementsAre(-1));
  kept.Keep(Committed({1, 2}), kept.writes());
  EXPECT_THAT(Kept(kept), ElementsAre(1, 2));
}

// What of it is on disk shows when the database has been opened anew, which a write does.
TEST(KeptSteps, AreNoneFromAFailedWriteToTheNextThatSucceeds) {
  KeptSteps kept;
  kept.Keep(Committed({1}), kept.writes());
  kept.Wrote(absl::ResourceExhaustedError("full"), {InfoOf(2)});
  EXPECT_THAT(Kept(kept), ElementsAre(-1));
  kept.Keep(Committed({1}), kept.writes());
  EXPECT_THAT(Kept(kept), ElementsAre(-1));
  kept.Wrote(absl::ResourceExhaustedError("full"), {InfoOf(3)});
  kept.Keep(Committed({1}), kept.writes());
  EXPECT_THAT(Kept(kept), ElementsAre(-1));
  kept.Wrote(absl::OkStatus(), {InfoOf(3)});
  EXPECT_THAT(Kept(kept), ElementsAre(-1));
  kept.Keep(Committed({1, 2, 3}), kept.writes());
  EXPECT_THAT(Kept(kept), ElementsAre(1, 2, 3));
}

// What the strings and maps of the steps take.
size_t BytesOf(const CommittedSteps& steps) {
  size_t bytes = 0;
  for (const auto& info : steps) {
    bytes += info->user_metadata.capacity() + info->attempt.capacity() + info->kept.capacity();
    for (const Evaluation& row : info->evaluations) {
      bytes += row.evaluator.capacity() + row.reason.capacity() + 64 * row.metrics.size();
    }
  }
  return bytes;
}

TEST(KeptSteps, DoNotGrowWithTheMetadataOfTheirSteps) {
  const auto bytes = [](size_t metadata_bytes) {
    KeptSteps kept;
    kept.Keep({}, kept.writes());
    for (int64_t step = 0; step < 200; ++step) {
      StepInfo info = InfoOf(step);
      info.user_metadata = std::string(metadata_bytes, 'm');
      info.evaluations = {{.evaluator = "validation", .reason = std::string(metadata_bytes, 'r')}};
      kept.Wrote(absl::OkStatus(), {info});
    }
    EXPECT_EQ(Kept(kept).size(), 200u);
    EXPECT_TRUE(kept.Get()->back()->evaluated_by("validation"));
    return BytesOf(*kept.Get());
  };
  EXPECT_EQ(bytes(100 << 10), bytes(2));
}

TEST(KeptSteps, AreForgottenWithWhatIsBeingRead) {
  KeptSteps kept;
  kept.Keep(Committed({1}), kept.writes());
  const uint64_t before = kept.writes();
  kept.Forget();
  EXPECT_THAT(Kept(kept), ElementsAre(-1));
  kept.Keep(Committed({1}), before);
  EXPECT_THAT(Kept(kept), ElementsAre(-1));
}

}  // namespace
}  // namespace tidemark::storage
