#include "storage/records/best_modes.h"

#include "gmock/gmock.h"
#include "storage/io/file_system.h"
#include "storage/manifest/manifest.h"
#include "storage/manifest/retention_plan.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/manifest/retention_model.h"

namespace tidemark::storage {
namespace {

using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;

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

TEST(ResolveBestModes, SetsTheModesThatAreNotGivenAndNamesTheRuleOfWhichNothingTells) {
  RetentionOptions options{
      .keep_best = {{.metric = "loss"}, {.metric = "x"}, {.metric = "loss", .mode = BestMode::kHighest}}};
  ASSERT_THAT(ResolveBestModes({{"x", BestMode::kHighest}}, options), IsOk());
  EXPECT_EQ(options.keep_best[0].mode, BestMode::kLowest);
  EXPECT_EQ(options.keep_best[1].mode, BestMode::kHighest);
  EXPECT_EQ(options.keep_best[2].mode, BestMode::kHighest);
  options.keep_best.push_back({.metric = "y"});
  EXPECT_THAT(ResolveBestModes({}, options), StatusIs(absl::StatusCode::kInvalidArgument,
                                                      HasSubstr("keep_best[3].mode is not set, and the name 'y'")));
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

TEST(BestModes, OfAManifestAreAddedToAndReplaced) {
  const std::string path = NewFolderInMemory("best_modes") + "/manifest";
  FileSystem& files = PosixFileSystem();
  auto manifest = Manifest::Create(files, path, StoreId{});
  ASSERT_THAT(manifest, IsOk());
  EXPECT_THAT(*(*manifest)->RecordedBestModes(), testing::IsEmpty());
  ASSERT_THAT((*manifest)->AddBestModes({{"a", BestMode::kLowest}, {"b", BestMode::kLowest}}), IsOk());
  EXPECT_THAT(*(*manifest)->AddBestModes({{"b", BestMode::kHighest}}),
              UnorderedElementsAre(Pair("a", BestMode::kLowest), Pair("b", BestMode::kHighest)));
  manifest->reset();
  auto again = Manifest::OpenReadOnly(files, path);
  ASSERT_THAT(again, IsOk());
  EXPECT_THAT(*(*again)->RecordedBestModes(),
              UnorderedElementsAre(Pair("a", BestMode::kLowest), Pair("b", BestMode::kHighest)));
}

}  // namespace
}  // namespace tidemark::storage
