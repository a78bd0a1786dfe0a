#include "tools/checkpoint_inspect/tensors/tensor_survey.h"

#include <cstdio>

#include "gmock/gmock.h"
#include "tests/tools/checkpoint_inspect/fake_tensor_source.h"

namespace tidemark::inspect {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

TEST(Survey, ReadsWhatHasTheSameBytesOnce) {
  FakeTensorSource source;
  source.Add<float>("embedding", Dtype::kFloat32, {3, 4}, "d1");
  source.Add<float>("head", Dtype::kFloat32, {3, 4}, "d1").tied_to = "embedding";
  source.Add<uint32_t>("same bytes", Dtype::kUint32, {0x40400000, 0x40800000}, "d1");
  source.Add<float>("unknown", Dtype::kFloat32, {3, 4});
  Console console(stdout, stderr);
  const std::vector<size_t> all = {0, 1, 2, 3};
  const auto statistics = Survey(source, all, console);
  ASSERT_TRUE(statistics.ok()) << statistics.status();
  EXPECT_THAT(source.reads, ElementsAre("embedding", "same bytes", "unknown"));
  for (const size_t i : {0, 1, 3}) EXPECT_EQ(statistics->Of(i)->Norm(), 5);
  EXPECT_EQ(statistics->Of(2)->min, 0x40400000);
}

TEST(Survey, LeavesOutWhatHasNoNumbersAndWhatNobodyAskedFor) {
  FakeTensorSource source;
  source.Add<uint8_t>("bits", Dtype::kBits8, {1, 2});
  source.Add<uint8_t>("text", Dtype::kUint8, {1, 2}).spec.kind = EntryKind::kString;
  source.Add<float>("weight", Dtype::kFloat32, {1});
  source.Add<float>("empty", Dtype::kFloat32, {});
  source.Add<float>("other", Dtype::kFloat32, {1});
  Console console(stdout, stderr);
  const std::vector<size_t> some = {3, 2, 1, 0};
  const auto statistics = Survey(source, some, console);
  ASSERT_TRUE(statistics.ok()) << statistics.status();
  ASSERT_THAT(statistics->place_of, SizeIs(4));
  EXPECT_EQ(statistics->Of(0)->numbers, 0u);
  EXPECT_EQ(statistics->Of(1)->max, 1);
  EXPECT_EQ(statistics->Of(2), nullptr);
  EXPECT_EQ(statistics->Of(3), nullptr);
  EXPECT_THAT(source.reads, ElementsAre("weight"));
}

TEST(Survey, EndsWithTheFirstErrorOfReading) {
  FakeTensorSource source;
  source.Add<float>("weight", Dtype::kFloat32, {1});
  source.fails_at = "weight";
  Console console(stdout, stderr);
  const std::vector<size_t> all = {0};
  EXPECT_EQ(Survey(source, all, console).status(), absl::DataLossError("rotten"));
}

}  // namespace
}  // namespace tidemark::inspect
