#include "storage/manifest/rebuild.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/manifest/made_records.h"

namespace tidemark::storage {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// What a rebuild does in between is in recovery_test.cc.
TEST(RebuildManifest, HoldsWhatItWroteAgainstTheWholeRecord) {
  const TestDirectory directory;
  const std::string path = directory / "manifest";
  const auto manifest = Manifest::Create(PosixFileSystem(), path, StoreId{{7}});
  ASSERT_THAT(manifest, IsOk());
  StepRecord record = MakeRecord(10, 1);
  record.info.metrics = {{"loss", 0.5}, {"not UTF-8 \xff", 1}};
  record.shards = {{.rank = 0, .file_bytes = 12288}};
  EXPECT_THAT(CheckHolds(**manifest, path, record),
              StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr(path), HasSubstr("of step 10"), HasSubstr("''"))));
  ASSERT_THAT((*manifest)->Commit(record), IsOk());
  EXPECT_THAT(CheckHolds(**manifest, path, record), IsOk());
  StepRecord other = record;
  other.info.metrics["loss"] = 0.25;
  EXPECT_THAT(CheckHolds(**manifest, path, other),
              StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr("expected '25,"), HasSubstr("found '5,"))));
  other = record;
  other.shards[0].file_bytes += 4096;
  EXPECT_THAT(CheckHolds(**manifest, path, other),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("differs from what was written")));
  other = record;
  other.info.pinned = true;
  EXPECT_THAT(CheckHolds(**manifest, path, other),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("differs from what was written")));
}

}  // namespace
}  // namespace tidemark::storage
