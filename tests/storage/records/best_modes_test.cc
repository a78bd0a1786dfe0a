#include "storage/records/best_modes.h"

#include "gmock/gmock.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {
namespace {

using testing::HasSubstr;

TEST(BestModeOfName, IsThatOfTheLastTellingWordOfTheLastPart) {
  for (const char* metric : {"loss", "validation/loss", "val_loss", "valLoss", "eval.word-error-rate", "reward_loss",
                             "accuracy/loss", "PPL", "RMSE@10", "MaE"}) {
    EXPECT_EQ(BestModeOfName(metric), BestMode::kLowest) << metric;
  }
  for (const char* metric : {"accuracy", "validation/accuracy", "eval.F1_macro", "top1", "acc@5", "meanReward", "BLEU",
                             "loss/score", "mIoU", "mAP", "IoU", "val/mIoU_large", "mAP@50", "loss_mIoU", "auROC"}) {
    EXPECT_EQ(BestModeOfName(metric), BestMode::kHighest) << metric;
  }
  for (const char* metric : {"", "/", "learning_rate", "gradient_norm", "accelerator_seconds", "lossless", "loss/x",
                             "mIoUs", "m_IoUx", "roadmAPs"}) {
    EXPECT_EQ(BestModeOfName(metric), std::nullopt) << metric;
  }
}

TEST(FindBestMode, TakesTheRecordBeforeTheName) {
  const BestModes recorded = {{"loss", BestMode::kHighest}, {"x", BestMode::kLowest}};
  EXPECT_EQ(FindBestMode(recorded, "loss"), BestMode::kHighest);
  EXPECT_EQ(FindBestMode(recorded, "x"), BestMode::kLowest);
  EXPECT_EQ(FindBestMode(recorded, "accuracy"), BestMode::kHighest);
  EXPECT_EQ(FindBestMode(recorded, "y"), std::nullopt);
  EXPECT_THAT(RequireBestMode(recorded, "y"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'y'")));
}

TEST(BestModes, AreReadAsTheyWereWritten) {
  const BestModes modes = {{"a", BestMode::kHighest}, {"b/loss", BestMode::kLowest}};
  const std::string bytes = EncodeBestModes(modes);
  EXPECT_EQ(bytes, R"({"metrics":{"a":"highest","b/loss":"lowest"},"version":1})");
  EXPECT_EQ(*DecodeBestModes(bytes), modes);
  for (const char* wrong : {"", "{}", R"({"version":1})", R"({"version":1,"metrics":[]})",
                            R"({"version":1,"metrics":{"a":"best"}})", R"({"version":1,"metrics":{"a":1}})"}) {
    EXPECT_THAT(DecodeBestModes(wrong), StatusIs(absl::StatusCode::kDataLoss, testing::_)) << wrong;
  }
  EXPECT_THAT(DecodeBestModes(R"({"version":2})"), StatusIs(absl::StatusCode::kUnimplemented, testing::_));
}

}  // namespace
}  // namespace tidemark::storage
