#include "snapshot/exchange/export_plan.h"

#include "gmock/gmock.h"

namespace tidemark {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

StoredEntry StoredTensor(std::string name, Dtype dtype = Dtype::kFloat32, int64_t elements = 4) {
  StoredEntry entry;
  entry.spec = {.name = std::move(name), .dtype = dtype, .shape = {elements}};
  entry.bytes = static_cast<uint64_t>(elements) * GetDtypeInfo(dtype).element_bytes;
  return entry;
}

StoredEntry Tied(std::string name, std::string to) {
  StoredEntry entry = StoredTensor(std::move(name));
  entry.tied_to = std::move(to);
  return entry;
}

ExportPlan Plan(const std::vector<StoredEntry>& entries, const ExportPlanOptions& options = {}) {
  absl::StatusOr<ExportPlan> plan = PlanExport(entries, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : ExportPlan();
}

std::string Refusal(const std::vector<StoredEntry>& entries, const ExportPlanOptions& options = {}) {
  const absl::Status status = PlanExport(entries, options).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

std::vector<std::string> Names(const std::vector<ExportItem>& items) {
  std::vector<std::string> names;
  for (const ExportItem& item : items) names.push_back(item.spec.name);
  return names;
}

const std::vector<StoredEntry> kModel = {StoredTensor("model.a"), StoredTensor("model.b"), StoredTensor("optimizer.a")};

TEST(PlanExport, TakesEverythingThatIsWanted) {
  EXPECT_THAT(Names(Plan(kModel).tensors), ElementsAre("model.a", "model.b", "optimizer.a"));
  EXPECT_THAT(Names(Plan(kModel, {.include = {"model.*"}, .exclude = {"*.b"}}).tensors), ElementsAre("model.a"));
  EXPECT_THAT(Names(Plan(kModel, {.include = {"*.a", "model.b"}}).tensors),
              ElementsAre("model.a", "model.b", "optimizer.a"));
}

TEST(PlanExport, RefusesPatternsThatMatchNothing) {
  EXPECT_THAT(Refusal(kModel, {.include = {"model.*", "x\x1b*"}}), HasSubstr("the pattern 'x\\x1b*' matches no entry"));
  EXPECT_EQ(Refusal(kModel, {.exclude = {"model"}}), "the pattern 'model' matches no entry of the step");
  EXPECT_EQ(Refusal(kModel, {.exclude = {"*"}}), "nothing is left to export");
  EXPECT_THAT(Refusal(kModel, {.renames = {{"mod", "x"}}}), HasSubstr("is called 'mod' or begins with 'mod.'"));
  EXPECT_THAT(Refusal(kModel, {.include = {"model.*"}, .renames = {{"optimizer", "x"}}}), HasSubstr("'optimizer'"));
}

TEST(PlanExport, RenamesAsARestoreDoes) {
  EXPECT_THAT(Names(Plan(kModel, {.renames = {{"model.a", "x"}, {"model", "net"}}}).tensors),
              ElementsAre("x", "net.b", "optimizer.a"));
  EXPECT_THAT(Names(Plan(kModel, {.renames = {{"model", ""}}}).tensors), ElementsAre("a", "b", "optimizer.a"));
  EXPECT_EQ(Refusal(kModel, {.renames = {{"model", ""}, {"optimizer", ""}}}),
            "renames give 'model.a' and 'optimizer.a' the same name 'a'");
  EXPECT_EQ(Refusal(kModel, {.renames = {{"model.a", ""}}}), "renames give 'model.a' an empty name");
}

TEST(PlanExport, ConvertsFloatingTensorsAlone) {
  const ExportPlan plan =
      Plan({StoredTensor("f", Dtype::kFloat64), StoredTensor("i", Dtype::kInt64), StoredTensor("c", Dtype::kComplex64)},
           {.dtype = Dtype::kBfloat16});
  ASSERT_EQ(plan.tensors.size(), 3u);
  EXPECT_EQ(plan.tensor_bytes, 8u + 32 + 32);
  for (const ExportItem& item : plan.tensors) {
    EXPECT_EQ(item.spec.dtype == Dtype::kBfloat16, item.spec.name == "f");
  }
}

TEST(PlanExport, KeepsTheFirstOfTiedTensorsThatIsExported) {
  const std::vector<StoredEntry> entries = {StoredTensor("a"), Tied("b", "a"), Tied("c", "a"), Tied("d", "b")};
  const ExportPlan all = Plan(entries);
  EXPECT_EQ(all.tensor_bytes, 16u);
  EXPECT_EQ(all.tensors[0].tied_to, "");
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(all.tensors[i].tied_to, "a");
  const ExportPlan some = Plan(entries, {.exclude = {"a"}, .renames = {{"b", "x"}}});
  EXPECT_THAT(Names(some.tensors), ElementsAre("x", "c", "d"));
  EXPECT_EQ(some.tensors[0].tied_to, "");
  EXPECT_EQ(some.tensors[1].tied_to, "x");
  EXPECT_EQ(some.tensors[2].tied_to, "x");
  const ExportPlan npz = Plan(entries, {.format = ExportFormat::kNpz});
  EXPECT_EQ(npz.tensor_bytes, 64u);
  EXPECT_EQ(npz.tensors[3].tied_to, "");
}

TEST(PlanExport, PutsTheWidestNumbersOfAFileFirst) {
  EXPECT_THAT(Names(Plan({StoredTensor("u8", Dtype::kUint8, 3), StoredTensor("f2", Dtype::kFloat16),
                          StoredTensor("f8", Dtype::kFloat64), StoredTensor("f4"), StoredTensor("g8", Dtype::kInt64)})
                        .tensors),
              ElementsAre("f8", "g8", "f4", "f2", "u8"));
}

TEST(PlanExport, FillsFilesUpToTheirSize) {
  const std::vector<StoredEntry> entries = {StoredTensor("a"), StoredTensor("b"), Tied("t", "a"),
                                            StoredTensor("large", Dtype::kFloat32, 40), StoredTensor("c")};
  const ExportPlan plan = Plan(entries, {.shard_bytes = 32});
  EXPECT_EQ(plan.files, 3u);
  std::map<std::string, size_t> files;
  for (const ExportItem& item : plan.tensors) files[item.spec.name] = item.file;
  EXPECT_EQ(files, (std::map<std::string, size_t>{{"a", 0}, {"b", 0}, {"t", 0}, {"large", 1}, {"c", 2}}));
  EXPECT_EQ(Plan(entries, {.format = ExportFormat::kNpz, .shard_bytes = 1}).files, 1u);
  EXPECT_EQ(Plan(entries).files, 1u);
}

TEST(PlanExport, RefusesMoreFilesThanCanBeOpen) {
  std::vector<StoredEntry> entries;
  for (size_t i = 0; i <= kExportFilesMax; ++i) entries.push_back(StoredTensor(std::to_string(i)));
  EXPECT_EQ(Refusal(entries, {.shard_bytes = 1}), "1 bytes a file make 513 files, more than 512");
}

TEST(PlanExport, RefusesWhatRanksHoldInParts) {
  StoredEntry part = StoredTensor("w");
  part.spec.box_offset = {0};
  part.spec.box_extent = {2};
  const std::string refusal = Refusal({StoredTensor("a"), part});
  EXPECT_THAT(refusal, HasSubstr("'w' is stored in parts"));
  EXPECT_THAT(Names(Plan({StoredTensor("a"), part}, {.exclude = {"w"}}).tensors), ElementsAre("a"));
  EXPECT_THAT(Refusal({StoredTensor("a"), StoredTensor("a")}), HasSubstr("'a' is stored in parts"));
}

TEST(PlanExport, TakesOnceWhatEveryRankHas) {
  StoredEntry entry = StoredTensor("a");
  entry.digest = "d";
  EXPECT_THAT(Names(Plan({entry, entry}).tensors), ElementsAre("a"));
  StoredEntry other = entry;
  other.digest = "e";
  EXPECT_THAT(Refusal({entry, other}), HasSubstr("'a' is stored in parts"));
}

TEST(PlanExport, RefusesDtypesThatTheFormatDoesNotHave) {
  EXPECT_EQ(Refusal({StoredTensor("w", Dtype::kBfloat16)}, {.format = ExportFormat::kNpz}),
            "numpy has no dtype for 'w' of bfloat16; dtype float32 converts it");
  EXPECT_EQ(Refusal({StoredTensor("w", Dtype::kComplex128)}),
            "safetensors has no dtype for 'w' of complex128; exclude it, or export it as raw");
  EXPECT_EQ(Plan({StoredTensor("w", Dtype::kBfloat16)}, {.format = ExportFormat::kNpz, .dtype = Dtype::kFloat32})
                .tensors.size(),
            1u);
  EXPECT_EQ(Plan({StoredTensor("w", Dtype::kInt3)}, {.format = ExportFormat::kRaw}).tensors.size(), 1u);
}

TEST(PlanExport, PutsWhatIsNoTensorIntoMetadataWhereTheFormatHasOnlyTensors) {
  StoredEntry text;
  text.spec = {.name = "text", .kind = EntryKind::kString, .shape = {kMetadataValueBytesMax}};
  text.bytes = kMetadataValueBytesMax;
  EXPECT_THAT(Names(Plan({StoredTensor("a"), text}).values), ElementsAre("text"));
  EXPECT_THAT(Names(Plan({StoredTensor("a"), text}, {.format = ExportFormat::kNpz}).tensors), ElementsAre("a", "text"));
  text.spec.shape[0] += 1;
  text.bytes += 1;
  EXPECT_THAT(Refusal({StoredTensor("a"), text}), HasSubstr("'text' has 1048577 bytes, more than the 1048576"));
}

TEST(SafeFileName, LeadsNowhereElse) {
  EXPECT_EQ(SafeFileName("model.layers-0_weight", 0), "model.layers-0_weight");
  EXPECT_EQ(SafeFileName("../../etc/passwd", 0), "%2E.%2F..%2Fetc%2Fpasswd");
  EXPECT_EQ(SafeFileName(".", 0), "%2E");
  EXPECT_EQ(SafeFileName("..", 0), "%2E.");
  EXPECT_EQ(SafeFileName("a\n\x1b\\%~é", 0), "a%0A%1B%5C%25%7E%C3%A9");
  EXPECT_EQ(SafeFileName(std::string(4096, 'a'), 7), std::string(180, 'a') + "~7");
}

}  // namespace
}  // namespace tidemark
