#include "storage/manifest/manifest_dump.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rocksdb/write_batch.h"
#include "storage/manifest/database.h"
#include "storage/manifest/index_keys.h"
#include "storage/manifest/manifest.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::_;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const AttemptId kAttempt{{0xab, 1}};
constexpr const char* kAttemptText = "ab010000000000000000000000000000";

StepRecord ReferringRecord(int64_t step) {
  StepRecord record;
  record.info.step = step;
  record.info.attempt = kAttemptText;
  record.info.metrics = {{"loss", -0.25}};
  record.references = {{.step = 1, .attempt = kAttempt, .rank = 0, .world_size = 1}};
  return record;
}

TEST(KeyText, NamesEveryKindOfKey) {
  const auto text = [](std::string_view key) { return *KeyText(key); };
  EXPECT_EQ(text(kStoreKey), "store");
  EXPECT_EQ(text(kSettledKey), "settled");
  EXPECT_EQ(text(kBestModesKey), "best");
  EXPECT_EQ(text(StepKey(1000)), "step/1000");
  EXPECT_EQ(text(CommittedKey(INT64_MAX)), "committed/9223372036854775807");
  EXPECT_EQ(text(PhasesKey(7)), "phases/7");
  EXPECT_EQ(text(DeletionKey(kAttempt)), std::string("deleting/") + kAttemptText);
  EXPECT_EQ(text(MetricKey("validation/loss", -0.25, 7)), "metric/validation/loss/-0.25/7");
  EXPECT_EQ(text(MetricKey("", 1e-300, 0)), "metric//1e-300/0");
  EXPECT_EQ(text(ReferencePrefix(kAttempt) + StepKey(9).substr(kStepKeyPrefix.size())),
            std::string("reference/") + kAttemptText + "/9");
}

TEST(KeyText, RefusesWhatIsNoKey) {
  const std::string metric = MetricKey("loss", 1, 7);
  for (const std::string& key :
       {std::string(), std::string("stor"), std::string("stores"), std::string("step/"), StepKey(1) + "x",
        StepKey(1).substr(0, 12), std::string("step/\xff\xff\xff\xff\xff\xff\xff\xff"), std::string("metric/"),
        metric.substr(0, metric.size() - 1), metric + "x", std::string("deleting/") + kAttemptText + "0",
        std::string("reference/") + kAttemptText, std::string("reference/x/12345678"), std::string("other/1")}) {
    EXPECT_THAT(KeyText(key), StatusIs(StatusCode::kDataLoss, _)) << key;
  }
}

TEST(DumpRecord, SaysWhatIsWrongWithAValue) {
  EXPECT_THAT(DumpRecord(StepKey(7), EncodeStepRecord(ReferringRecord(7))).status, IsOk());
  EXPECT_THAT(DumpRecord(StepKey(8), EncodeStepRecord(ReferringRecord(7))).status,
              StatusIs(StatusCode::kDataLoss, HasSubstr("step 7 is under another key")));
  EXPECT_THAT(DumpRecord(StepKey(7), "{").status, StatusIs(StatusCode::kDataLoss, HasSubstr("step record of 1 bytes")));
  EXPECT_THAT(DumpRecord(StepKey(7), R"({"version":9})").status, StatusIs(StatusCode::kUnimplemented, _));
  EXPECT_THAT(DumpRecord(CommittedKey(7), "x").status, StatusIs(StatusCode::kDataLoss, HasSubstr("of an index")));
  EXPECT_THAT(DumpRecord(DeletionKey(kAttempt), EncodeDeletionRecord({.step = 1})).status,
              StatusIs(StatusCode::kDataLoss, HasSubstr("another attempt")));
  const DumpedRecord stranger = DumpRecord("what\xff", "ever");
  EXPECT_EQ(stranger.key, "what\xff");
  EXPECT_EQ(stranger.value, "ever");
  EXPECT_THAT(stranger.status, StatusIs(StatusCode::kDataLoss, _));
}

class DumpManifestTest : public testing::Test {
 protected:
  DumpManifestTest() {
    const auto manifest = Manifest::Create(PosixFileSystem(), path_, StoreId{{1}});
    EXPECT_THAT(manifest, IsOk());
    for (const int64_t step : {2, 10}) EXPECT_THAT((*manifest)->Commit(ReferringRecord(step)), IsOk());
  }

  std::vector<std::string> Keys(std::string_view prefix) {
    std::vector<std::string> keys;
    status_ = DumpManifest(PosixFileSystem(), path_, prefix, [&](const DumpedRecord& record) {
      keys.push_back(record.key + (record.status.ok() ? "" : "!"));
      return true;
    });
    return keys;
  }

  void Put(std::string_view key, std::string_view value) {
    auto database = Database::Open(PosixFileSystem(), path_);
    ASSERT_THAT(database, IsOk());
    rocksdb::WriteBatch batch;
    batch.Put(rocksdb::Slice(key.data(), key.size()), rocksdb::Slice(value.data(), value.size()));
    ASSERT_THAT((*database)->Write(batch), IsOk());
  }

  TestDirectory directory_;
  const std::string path_ = directory_ / "manifest";
  absl::Status status_;
};

TEST_F(DumpManifestTest, VisitsEveryRecord) {
  const std::string reference = std::string("reference/") + kAttemptText;
  EXPECT_THAT(Keys(""), ElementsAre("committed/2", "committed/10", "metric/loss/-0.25/2", "metric/loss/-0.25/10",
                                    reference + "/2", reference + "/10", "step/2", "step/10", "store"));
  EXPECT_THAT(status_, IsOk());
}

TEST_F(DumpManifestTest, LooksForAPrefixOfWhatIsShown) {
  EXPECT_THAT(Keys("st"), ElementsAre("step/2", "step/10", "store"));
  EXPECT_THAT(Keys("step/1"), ElementsAre("step/10"));
  EXPECT_THAT(Keys("metric/loss/-0.25/2"), ElementsAre("metric/loss/-0.25/2"));
  EXPECT_THAT(Keys("x"), IsEmpty());
}

TEST_F(DumpManifestTest, ShowsWhatCannotBeDecodedToo) {
  Put(StepKey(5), "no JSON");
  Put("zz", "");
  EXPECT_THAT(Keys("step/"), ElementsAre("step/2", "step/5!", "step/10"));
  EXPECT_THAT(Keys("z"), ElementsAre("zz!"));
  EXPECT_THAT(status_, IsOk());
}

TEST_F(DumpManifestTest, EndsWhereTheVisitorHasSeenEnough) {
  int seen = 0;
  EXPECT_THAT(DumpManifest(PosixFileSystem(), path_, "",
                           [&](const DumpedRecord&) {
                             ++seen;
                             return false;
                           }),
              IsOk());
  EXPECT_EQ(seen, 1);
}

TEST_F(DumpManifestTest, RefusesANewerManifest) {
  Put(kStoreKey, R"({"version":99})");
  EXPECT_THAT(Keys(""), IsEmpty());
  EXPECT_THAT(status_, StatusIs(StatusCode::kUnimplemented, HasSubstr(path_)));
}

TEST_F(DumpManifestTest, SaysThatThereIsNoManifest) {
  EXPECT_THAT(DumpManifest(PosixFileSystem(), directory_ / "absent", "", [](const DumpedRecord&) { return true; }),
              StatusIs(StatusCode::kNotFound, _));
}

}  // namespace
}  // namespace tidemark::storage
