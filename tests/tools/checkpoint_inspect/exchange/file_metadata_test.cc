#include "tools/checkpoint_inspect/exchange/file_metadata.h"

#include <limits>
#include <utility>

#include "gmock/gmock.h"
#include "storage/shard/format/shard_format.h"
#include "tests/storage/io/status_matchers.h"
#include "tools/checkpoint_inspect/output/json.h"

namespace tidemark::inspect {
namespace {

using absl::StatusCode;
using storage::IsOk;
using storage::StatusIs;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Strings = std::map<std::string, std::string>;

// What an export says, and this.
Strings Exported(const Strings& more) {
  Strings strings = {{"format", "pt"}, {"tidemark.step", "2"}, {"tidemark.store", "0123"}};
  strings.insert(more.begin(), more.end());
  return strings;
}

absl::Status AddOne(const Strings& strings) { return FileMetadata(/*with_step=*/true).Add("a", strings); }

TEST(FileMetadata, ValuesTiesAndTheStepOfAnExportComeBack) {
  FileMetadata metadata(/*with_step=*/true);
  const Metrics metrics = {{"loss", 0.1}, {"other", std::numeric_limits<double>::infinity()}};
  ASSERT_THAT(metadata.Add("a", Exported({{"epoch", "3"},
                                          {"tidemark.kind.epoch", "int64"},
                                          // Behind all other keys, and next to those that say kinds.
                                          {"tidemark.l", "text"},
                                          {"tidemark.kind.tidemark.l", "string"},
                                          {"w.tied", "w"},
                                          {"tidemark.kind.w.tied", "tied"},
                                          {"tidemark.metrics", MetricsJson(metrics)},
                                          {"tidemark.user_metadata", R"({ "run":7 })"}})),
              IsOk());
  ASSERT_EQ(metadata.values().size(), 1u);
  EXPECT_EQ(metadata.values()[0]->name(), "the metadata of a");
  ASSERT_EQ(metadata.values()[0]->entries().size(), 2u);
  EXPECT_EQ(metadata.values()[0]->entries()[0].spec,
            (EntrySpec{.name = "epoch", .kind = EntryKind::kInt64, .dtype = Dtype::kInt64}));
  int64_t epoch = 0;
  const StepReader::Window window{.entry = 0, .destination = std::as_writable_bytes(std::span(&epoch, 1))};
  ASSERT_THAT(metadata.values()[0]->Read({&window, 1}), IsOk());
  EXPECT_EQ(epoch, 3);
  EXPECT_EQ(metadata.values()[0]->entries()[1].spec.name, "tidemark.l");
  ASSERT_EQ(metadata.ties().size(), 1u);
  EXPECT_EQ(metadata.ties()[0].name, "w.tied");
  EXPECT_EQ(metadata.ties()[0].tied_to, "w");
  EXPECT_EQ(metadata.metrics(), metrics);
  EXPECT_EQ(metadata.UserMetadata({"a"}).value(), R"({ "run":7 })");
}

TEST(FileMetadata, StringsOfOthersBecomeUserMetadata) {
  FileMetadata metadata(/*with_step=*/true);
  ASSERT_THAT(metadata.Add("a", {{"format", "pt"}, {"tidemark.kind.epoch", "int64"}}), IsOk());
  ASSERT_THAT(metadata.Add("b", {{"format", "pt"}, {"author", "\"x\""}}), IsOk());
  EXPECT_THAT(metadata.values(), IsEmpty());
  EXPECT_EQ(metadata.UserMetadata({"a", "b"}).value(),
            R"({"author":"\"x\"","format":"pt","imported_from":["a","b"],"tidemark.kind.epoch":"int64"})");
}

TEST(FileMetadata, WhereAFileSaysItIsFromStandsBesideWhereTheStepIsFrom) {
  FileMetadata metadata(/*with_step=*/true);
  ASSERT_THAT(metadata.Add("a", {{"imported_from", "elsewhere"}}), IsOk());
  EXPECT_EQ(metadata.UserMetadata({"a"}).value(), R"({"file.imported_from":"elsewhere","imported_from":["a"]})");
  EXPECT_THAT(metadata.Add("b", {{"file.imported_from", "nowhere"}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("'file.imported_from' of the metadata differs between a "
                                                               "and b; --metadata")));
}

TEST(FileMetadata, StringsBesideAnExportAreAddedToItsUserMetadata) {
  FileMetadata metadata(/*with_step=*/true);
  ASSERT_THAT(metadata.Add("a", Exported({{"tidemark.user_metadata", R"({"run":7})"}, {"note", "mine"}})), IsOk());
  EXPECT_EQ(metadata.UserMetadata({"a"}).value(), R"({"note":"mine","run":7})");
}

TEST(FileMetadata, AKeyWithTwoTextsIsRefusedWithBothFiles) {
  FileMetadata metadata(/*with_step=*/true);
  ASSERT_THAT(metadata.Add("a", {{"author", "x"}}), IsOk());
  EXPECT_THAT(metadata.Add("b", {{"author", "y"}}),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("'author' of the metadata differs between a and b; --metadata")));
  FileMetadata steps(/*with_step=*/true);
  ASSERT_THAT(steps.Add("a", Exported({{"tidemark.metrics", R"({"loss":1.0})"}})), IsOk());
  EXPECT_THAT(
      steps.Add("b", Exported({{"tidemark.metrics", R"({"loss":2.0})"}})),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("'tidemark.metrics' of the metadata differs between a")));
  FileMetadata both(/*with_step=*/true);
  ASSERT_THAT(both.Add("a", Exported({{"tidemark.user_metadata", R"({"run":"7"})"}})), IsOk());
  ASSERT_THAT(both.Add("b", {{"run", "8"}}), IsOk());
  EXPECT_THAT(both.UserMetadata({"a", "b"}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("'run' of the metadata differs between a and b")));
}

TEST(FileMetadata, WithoutTheStepNothingIsAtOddsAndEntriesComeBack) {
  FileMetadata metadata(/*with_step=*/false);
  ASSERT_THAT(metadata.Add("a", {{"author", "x"}}), IsOk());
  ASSERT_THAT(
      metadata.Add(
          "b", Exported({{"author", "y"}, {"tidemark.metrics", "none"}, {"on", "true"}, {"tidemark.kind.on", "bool"}})),
      IsOk());
  EXPECT_THAT(metadata.metrics(), IsEmpty());
  ASSERT_EQ(metadata.values().size(), 1u);
  EXPECT_EQ(metadata.values()[0]->entries()[0].spec.kind, EntryKind::kBool);
}

TEST(FileMetadata, AnExportThatSaysWhatNoneSaysIsRefused) {
  const auto expect_refused = [](const Strings& strings, const char* message) {
    EXPECT_THAT(AddOne(Exported(strings)),
                StatusIs(StatusCode::kDataLoss, AllOf(HasSubstr("a: '"), HasSubstr(message))));
  };
  expect_refused({{"tidemark.kind.epoch", "int64"}}, "'tidemark.kind.epoch' of the metadata is present, but the entry");
  expect_refused({{"tidemark.kind.", "int64"}}, "is present, but the entry");
  expect_refused({{"tidemark.kind.tidemark.kind.x", "string"}, {"tidemark.kind.x", "y"}}, "is present, but the entry");
  expect_refused({{"epoch", "3"}, {"tidemark.kind.epoch", "tensor"}}, "is 'tensor', which is not a kind of entry");
  expect_refused({{"epoch", "3"}, {"tidemark.kind.epoch", "\x1b[2J"}}, R"(is '\x1b[2J', which is not a kind of entry)");
  expect_refused({{"epoch", "three"}, {"tidemark.kind.epoch", "int64"}},
                 "'epoch' of the metadata is not a valid int64");
  for (const char* metrics : {"", "[]", R"({"loss":"low"})", R"({"loss":1.0,"loss":1.0})", R"({"":1.0})",
                              R"({"loss": 1.0})", R"({"loss":null})"}) {
    expect_refused({{"tidemark.metrics", metrics}}, "'tidemark.metrics' of the metadata has invalid metrics");
  }
  expect_refused({{"tidemark.metrics", std::string(kStepTextBytesMax + 1, ' ')}}, "has invalid metrics");
  expect_refused({{"tidemark.user_metadata", "[]"}}, "is not a JSON object of at most 1048576 bytes, 8192 keys");
  expect_refused({{"tidemark.user_metadata", "{\"a\":\"" + std::string(kStepTextBytesMax, 'x') + "\"}"}},
                 "is not a JSON object of at most 1048576 bytes");
  std::string deep;
  for (int i = 0; i < 300; ++i) deep += "{\"a\":";
  expect_refused({{"tidemark.user_metadata", deep + "1" + std::string(300, '}')}}, "is not a JSON object");
}

TEST(FileMetadata, MoreValuesThanAnExportHasAreRefused) {
  const std::string half(kFileEntryBytesMax / 2 - 1, 'x');
  FileMetadata bytes(/*with_step=*/false);
  ASSERT_THAT(bytes.Add("a", Exported({{"k", half}, {"tidemark.kind.k", "string"}})), IsOk());
  ASSERT_THAT(bytes.Add("b", Exported({{"l", half}, {"tidemark.kind.l", "tied"}})), IsOk());
  EXPECT_THAT(bytes.Add("c", Exported({{"m", ""}, {"tidemark.kind.m", "string"}})),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("c: up to 'm' there are 3 values and tied names with 100000001 bytes, where an import "
                                 "takes 131072 with 100000000")));
  Strings strings;
  for (size_t i = 0; i < kFileEntriesMax; ++i) {
    strings[std::to_string(i)] = "";
    strings["tidemark.kind." + std::to_string(i)] = i % 2 == 0 ? "string" : "tied";
  }
  FileMetadata many(/*with_step=*/false);
  ASSERT_THAT(many.Add("a", Exported(strings)), IsOk());
  EXPECT_THAT(
      many.Add("b", Exported({{"m", ""}, {"tidemark.kind.m", "string"}})),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("b: up to 'm' there are 131073 values and tied names with")));
}

// So many strings, all different.
Strings Many(const std::string& prefix, size_t count) {
  Strings strings;
  for (size_t i = 0; i < count; ++i) strings[prefix + std::to_string(i)] = "";
  return strings;
}

TEST(FileMetadata, MoreKeysThanUserMetadataMayHaveAreRefused) {
  const auto refused =
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("the metadata of b and the files before it has more keys than "
                                                       "the 8192 of a step's user metadata; --metadata replaces"));
  FileMetadata most(/*with_step=*/true);
  ASSERT_THAT(most.Add("a", Many("a", kMetadataKeysMax - 2)), IsOk());
  ASSERT_THAT(most.Add("b", Many("b", 1)), IsOk());
  const absl::StatusOr<std::string> text = most.UserMetadata({"a", "b"});
  ASSERT_THAT(text, IsOk());
  EXPECT_EQ(MetadataToJson(*text).size(), kMetadataKeysMax);
  // One more, with that of the files.
  ASSERT_THAT(most.Add("b", Many("c", 1)), IsOk());
  const auto refused_together = StatusIs(
      StatusCode::kInvalidArgument,
      HasSubstr("the metadata of b and the files before it has more values than the 8192 keys, 32768 values and a "
                "depth of 256 of a step's user metadata; --metadata replaces"));
  EXPECT_THAT(most.UserMetadata({"a", "b"}), refused_together);
  EXPECT_THAT(most.Add("b", Many("d", 1)), refused);
  // Together with those of an export.
  FileMetadata both(/*with_step=*/true);
  ASSERT_THAT(both.Add("a", Exported({{"tidemark.user_metadata", R"({"run":7})"}})), IsOk());
  ASSERT_THAT(both.Add("b", Many("b", kMetadataKeysMax)), IsOk());
  EXPECT_THAT(both.UserMetadata({"a", "b"}), refused_together);
  EXPECT_THAT(FileMetadata(/*with_step=*/false).Add("b", Many("b", 3 * kMetadataKeysMax)), IsOk());
}

TEST(FileMetadata, MoreValuesThanUserMetadataMayHaveAreRefused) {
  // The object, the array, and a number for each of the others.
  std::string values = R"({"a":[0)";
  for (size_t i = 3; i < kMetadataValuesMax; ++i) values += ",0";
  FileMetadata metadata(/*with_step=*/true);
  ASSERT_THAT(metadata.Add("a", Exported({{"tidemark.user_metadata", values + "]}"}})), IsOk());
  EXPECT_THAT(metadata.UserMetadata({"a"}), IsOk());
  ASSERT_THAT(metadata.Add("b", {{"c", ""}}), IsOk());
  EXPECT_THAT(metadata.UserMetadata({"a", "b"}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("32768 values")));
  EXPECT_THAT(
      AddOne(Exported({{"tidemark.user_metadata", values + ",0]}"}})),
      StatusIs(StatusCode::kDataLoss, HasSubstr("'tidemark.user_metadata' of the metadata is not a JSON object")));
}

TEST(FileMetadata, MetricsOfAnyNumberComeBack) {
  Metrics metrics;
  for (int i = 0; i < 40'000; ++i) metrics["m" + std::to_string(i)] = i;
  const std::string text = MetricsJson(metrics);
  ASSERT_LE(text.size(), kStepTextBytesMax);
  FileMetadata metadata(/*with_step=*/true);
  ASSERT_THAT(metadata.Add("a", Exported({{"tidemark.metrics", text}})), IsOk());
  EXPECT_EQ(metadata.metrics(), metrics);
}

TEST(FileMetadata, MoreThanUserMetadataMayHaveIsRefused) {
  const std::string half(storage::kUserMetadataBytesMax / 2, 'x');
  FileMetadata metadata(/*with_step=*/true);
  ASSERT_THAT(metadata.Add("a", {{"k", half}}), IsOk());
  EXPECT_THAT(metadata.Add("b", {{"l", half}}),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("b: up to 'l' the metadata has 16777218 bytes, more than the 16777216"),
                             HasSubstr("--metadata replaces it"))));
  // Which fits as it is, and not as JSON has it.
  FileMetadata escaped(/*with_step=*/true);
  ASSERT_THAT(escaped.Add("a", {{"k", std::string(storage::kUserMetadataBytesMax - 1, '\n')}}), IsOk());
  EXPECT_THAT(
      escaped.UserMetadata({"a"}),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("the metadata of a and the files before it takes 33554")));
}

}  // namespace
}  // namespace tidemark::inspect
