// The average of each step, read from the store and evaluated by a worker that knows nothing of the model's own
// tensors.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/average.h"
#include "tidemark/store_reader.h"
#include "tidemark/worker.h"

namespace tidemark {
namespace {

using storage::IsOk;
using testing::ElementsAre;

double FirstNumber(std::span<const std::byte> bytes) {
  double value = -1;
  if (bytes.size() >= sizeof(value)) std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

TEST(AverageWorker, EvaluatesTheAverageOfEachStep) {
  storage::TestDirectory directory;
  const std::string store = directory / "store";
  auto checkpointer = AsyncCheckpointer::Open({.directory = store});
  ASSERT_THAT(checkpointer, IsOk());
  ASSERT_THAT((*checkpointer)->AddCompanion(*MakeAverage({.kind = AverageOptions::Kind::kUniform})), IsOk());
  TestTrainer trainer(1000);
  for (int64_t step = 1; step <= 4; ++step) {
    trainer.SetTo(step);
    ASSERT_THAT((*checkpointer)->Save(step, trainer.state), IsOk());
  }
  ASSERT_THAT((*checkpointer)->WaitUntilCommitted(), IsOk());

  std::vector<int64_t> asked;
  auto report = FollowStore({.directory = store,
                             .evaluator = "ema",
                             .entries = {"ema.model.*"},
                             .idle_timeout = absl::ZeroDuration(),
                             .stop_on_signal = false},
                            [&](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
                              asked.push_back(snapshot.step());
                              std::vector<std::string> names;
                              for (const EntrySpec& spec : snapshot.entries()) names.push_back(spec.name);
                              EXPECT_THAT(names, ElementsAre("ema.model.weight", "ema.model.bias"));
                              const auto bias = snapshot.Find("ema.model.bias");
                              if (!bias) return absl::NotFoundError("no average");
                              return Metrics{{"bias", FirstNumber(snapshot.bytes(*bias))}};
                            });
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->failed, 0);
  EXPECT_THAT(asked, ElementsAre(1, 2, 3, 4));

  // The bias is `step` after each step, and its mean that of 1 to `step`.
  auto reader = StoreReader::Open(store);
  ASSERT_THAT(reader, IsOk());
  for (int64_t step = 1; step <= 4; ++step) {
    const double mean = static_cast<double>(step + 1) / 2;
    auto info = (*reader)->FindStep(step);
    ASSERT_THAT(info, IsOk());
    EXPECT_EQ(info->metrics, (Metrics{{"ema/bias", mean}})) << "step " << step;
    auto bytes = (*reader)->ReadEntry(step, "ema.model.bias");
    ASSERT_THAT(bytes, IsOk());
    EXPECT_EQ(FirstNumber(*bytes), mean);
  }
  ASSERT_THAT((*checkpointer)->Tidy(), IsOk());
  auto best = (*checkpointer)->BestStep("ema/bias", BestMode::kLowest);
  ASSERT_THAT(best, IsOk());
  EXPECT_EQ(best->step, 1);
  EXPECT_THAT((*checkpointer)->Close(), IsOk());
}

}  // namespace
}  // namespace tidemark
