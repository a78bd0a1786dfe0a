#include "tidemark/export.h"

#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "gmock/gmock.h"
#include "snapshot/exchange/safetensors_header.h"
#include "tests/snapshot/exchange/exported_file.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/capture.h"

namespace tidemark {
namespace {

using absl::StatusCode;
using storage::IsOk;
using storage::StatusIs;
using testing::ElementsAre;
using testing::HasSubstr;

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

class ExportSafetensorsTest : public testing::Test {
 protected:
  std::shared_ptr<const Snapshot> Captured() {
    auto captured = Capture(trainer_.state);
    EXPECT_THAT(captured, IsOk());
    return *captured;
  }

  TestTrainer trainer_{1000};
  const storage::TestDirectory directory_;
  const std::string path_ = directory_ / "model.safetensors";
};

TEST_F(ExportSafetensorsTest, HasTheTensorsAndSaysTheRest) {
  trainer_.SetTo(3);
  ASSERT_THAT(ExportSafetensors(*Captured(), path_), IsOk());
  const ExportedTensors exported(path_);
  EXPECT_EQ(exported.Bytes("model.weight"), BytesOf(trainer_.weight));
  EXPECT_EQ(exported.Bytes("model.bias"), BytesOf(trainer_.bias));
  const std::map<std::string, std::string>& metadata = exported.header().metadata;
  EXPECT_EQ(metadata.at("format"), "pt");
  EXPECT_EQ(metadata.at("tidemark.step"), "0");
  EXPECT_EQ(metadata.at("tidemark.store"), "");
  EXPECT_EQ(metadata.at("tidemark.metrics"), "{}");
  EXPECT_EQ(metadata.at("epoch"), "3");
  EXPECT_EQ(metadata.at("tidemark.kind.epoch"), "int64");
  EXPECT_EQ(metadata.at("note"), "after step 3");
}

TEST_F(ExportSafetensorsTest, SelectsRenamesAndConverts) {
  trainer_.weight[0] = 1.00390625F;  // between two bfloat16: to even
  trainer_.weight[1] = NAN;
  trainer_.weight[2] = -INFINITY;
  ASSERT_THAT(ExportSafetensors(*Captured(), path_,
                                {.entries = {"model.weight"}, .renames = {{"model", ""}}, .dtype = Dtype::kBfloat16}),
              IsOk());
  const ExportedTensors exported(path_);
  ASSERT_EQ(exported.header().tensors.size(), 1u);
  EXPECT_EQ(exported.header().tensors[0].dtype, Dtype::kBfloat16);
  const std::string bytes = exported.Bytes("weight");
  ASSERT_EQ(bytes.size(), 2000u);
  uint16_t bits[3];
  std::memcpy(bits, bytes.data(), sizeof(bits));
  EXPECT_EQ(bits[0], 0x3F80);
  EXPECT_EQ(bits[1] & 0x7FC0, 0x7FC0);
  EXPECT_EQ(bits[2], 0xFF80);
}

TEST_F(ExportSafetensorsTest, WritesTiedTensorsOnceAndThoseOfAnotherShapeAgain) {
  trainer_.state.AddTensor("head.weight", Dtype::kFloat32, {1000}, trainer_.weight.data());
  trainer_.state.AddTensor("square", Dtype::kFloat32, {10, 100}, trainer_.weight.data());
  ASSERT_THAT(ExportSafetensors(*Captured(), path_, {.entries = {"*weight", "square"}}), IsOk());
  const ExportedTensors exported(path_);
  std::vector<std::string> names;
  for (const SafetensorsTensor& tensor : exported.header().tensors) names.push_back(tensor.name);
  EXPECT_THAT(names, testing::UnorderedElementsAre("model.weight", "square"));
  EXPECT_EQ(exported.header().metadata.at("head.weight"), "model.weight");
  EXPECT_EQ(exported.Bytes("square"), BytesOf(trainer_.weight));
}

TEST_F(ExportSafetensorsTest, OfAStoreHasTheMetricsOfEvaluations) {
  auto opened = AsyncCheckpointer::Open({.directory = directory_ / "store"});
  ASSERT_THAT(opened, IsOk());
  for (const int64_t step : {1, 2}) {
    trainer_.SetTo(step);
    ASSERT_THAT((*opened)->Save(step, trainer_.state, {.metrics = {{"loss", 0.5}}}), IsOk());
    ASSERT_THAT((*opened)->ReportMetrics(step, "validation", {{"loss", static_cast<double>(step)}}).Wait(), IsOk());
  }
  ASSERT_THAT((*opened)->Close(), IsOk());
  auto store = StoreReader::Open(directory_ / "store");
  ASSERT_THAT(store, IsOk());
  const auto step = ExportSafetensors(**store, StepSelector::Best("validation/loss"), path_, {.entries = {"model.*"}});
  ASSERT_THAT(step, IsOk());
  EXPECT_EQ(*step, 1);
  const ExportedTensors exported(path_);
  EXPECT_EQ(exported.header().metadata.at("tidemark.step"), "1");
  EXPECT_EQ(exported.header().metadata.at("tidemark.store"), (*store)->store_id());
  EXPECT_EQ(exported.header().metadata.at("tidemark.metrics"), R"({"loss":0.5,"validation/loss":1.0})");
  EXPECT_FALSE(exported.header().metadata.contains("epoch"));
  trainer_.SetTo(1);
  EXPECT_EQ(exported.Bytes("model.weight"), BytesOf(trainer_.weight));
  EXPECT_THAT(ExportSafetensors(**store, 9, path_, {.replace = true}), StatusIs(StatusCode::kNotFound, HasSubstr("9")));
}

TEST_F(ExportSafetensorsTest, ReplacesAFileOnlyIfToldTo) {
  std::ofstream(path_) << "notes of a person";
  EXPECT_THAT(ExportSafetensors(*Captured(), path_),
              StatusIs(StatusCode::kAlreadyExists, HasSubstr("ExportOptions::replace")));
  EXPECT_EQ(ReadExported(path_), "notes of a person");
  EXPECT_THAT(ExportSafetensors(*Captured(), path_, {.replace = true}), IsOk());
  EXPECT_EQ(ExportedTensors(path_).header().metadata.at("epoch"), "0");
}

TEST_F(ExportSafetensorsTest, ReplacesTheFileAsAWhole) {
  trainer_.SetTo(1);
  ASSERT_THAT(ExportSafetensors(*Captured(), path_), IsOk());
  std::ifstream reader(path_, std::ios::binary);  // of the first file
  trainer_.SetTo(2);
  ASSERT_THAT(ExportSafetensors(*Captured(), path_, {.replace = true}), IsOk());
  const std::string first{std::istreambuf_iterator<char>(reader), {}};
  EXPECT_THAT(first, HasSubstr("after step 1"));
  EXPECT_THAT(ReadExported(path_), HasSubstr("after step 2"));
  EXPECT_EQ(FilesIn(directory_.path()), 1);
}

TEST_F(ExportSafetensorsTest, RefusesWhatItCannotWriteAndLeavesTheFileAsItWas) {
  ASSERT_THAT(ExportSafetensors(*Captured(), path_), IsOk());
  const std::string before = ReadExported(path_);
  EXPECT_THAT(ExportSafetensors(*Captured(), path_, {.entries = {"modle.*"}, .replace = true}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("the pattern 'modle.*' matches no entry")));
  EXPECT_THAT(
      ExportSafetensors(*Captured(), path_, {.dtype = Dtype::kInt8, .replace = true}),
      StatusIs(StatusCode::kInvalidArgument, "dtype: expected float16, bfloat16, float32 or float64, found int8"));
  EXPECT_THAT(ExportSafetensors(*Captured(), path_, {.renames = {{"model.bias", "model.weight"}}, .replace = true}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("the same name 'model.weight'")));
  EXPECT_THAT(ExportSafetensors(*Captured(), directory_.path(), {.replace = true}),
              StatusIs(StatusCode::kAlreadyExists, HasSubstr("is a directory")));
  EXPECT_THAT(ExportSafetensors(*Captured(), directory_ / "none/model.safetensors"),
              StatusIs(StatusCode::kNotFound, HasSubstr("none/model.safetensors")));
  EXPECT_EQ(ReadExported(path_), before);
  EXPECT_EQ(FilesIn(directory_.path()), 1);
}

}  // namespace
}  // namespace tidemark
