// What the oracle notices: a test that asks it is worth as much.

#include "tests/real/step_oracle.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/real/save_lines.h"
#include "tests/real/versioned_state.h"
#include "tests/snapshot/observers.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark {
namespace {

using storage::IsOk;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class StepOracleTest : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = AsyncCheckpointer::Open({.directory = directory_.path(), .observer = NoWarnings()});
    ASSERT_THAT(opened, IsOk());
    checkpointer_ = *std::move(opened);
  }

  // Saves the version as the step; what the oracle hears of it is the test's own business.
  void Save(int64_t step, int64_t version, double loss = 1) {
    state_.SetTo(step, version);
    SaveAsItIs(step, loss);
  }
  void SaveAsItIs(int64_t step, double loss = 1) {
    auto save = checkpointer_->Save(step, state_.state(), {.metrics = {{"loss", loss}}, .overwrite = true});
    ASSERT_THAT(save, IsOk());
    ASSERT_THAT(save->committed().Wait(), IsOk());
  }
  void Acknowledge(int64_t step, int64_t version, double loss = 1) {
    oracle_.Begun(step, version, loss);
    oracle_.Committed(version);
  }
  std::vector<std::string> Check() { return oracle_.CheckOpened(*checkpointer_, directory_.path()); }
  // By who only reads; the store is closed for it.
  std::vector<std::string> CheckUnopened() {
    EXPECT_THAT(checkpointer_->Close(), IsOk());
    auto reader = StoreReader::Open(directory_.path());
    EXPECT_THAT(reader, IsOk());
    return oracle_.CheckUnopened(**reader);
  }

  storage::TestDirectory directory_;
  std::unique_ptr<AsyncCheckpointer> checkpointer_;
  VersionedState state_;
  StepOracle oracle_;
};

TEST_F(StepOracleTest, FindsNothingWhereNothingIsWrong) {
  Save(1, 1);
  Acknowledge(1, 1);
  Save(2, 2);
  oracle_.Begun(2, 2, 1);  // never acknowledged, and there
  oracle_.Begun(3, 3, 1);  // never acknowledged, and not there
  EXPECT_THAT(Check(), IsEmpty());
  EXPECT_EQ(oracle_.found(), 1u);
  EXPECT_EQ(oracle_.vanished(), 1u);
  EXPECT_THAT(CheckUnopened(), IsEmpty());
}

TEST_F(StepOracleTest, NoticesThatAStepIsNotThere) {
  Save(1, 1);
  Acknowledge(1, 1);
  Acknowledge(2, 2);
  EXPECT_THAT(Check(), ElementsAre("step 2 was acknowledged and is unknown",
                                   "the latest step is 1, and step 2 was acknowledged"));
}

TEST_F(StepOracleTest, WhatWasFoundMustStay) {
  oracle_.Begun(1, 1, 1);
  Save(1, 1);
  EXPECT_THAT(Check(), IsEmpty());
  Acknowledge(2, 2);
  EXPECT_THAT(CheckUnopened(), ElementsAre("step 2 was acknowledged and is unknown"));
}

TEST_F(StepOracleTest, NoticesWrongBytes) {
  Acknowledge(1, 1);
  state_.SetTo(1, 1);
  State& state = state_.state();
  ASSERT_THAT(state.Refresh(), IsOk());
  state.entries()[0].host[77] ^= std::byte{1};
  SaveAsItIs(1);
  EXPECT_THAT(Check(), ElementsAre("step 1 restores with wrong bytes"));
  EXPECT_THAT(CheckUnopened(), ElementsAre("step 1 is read with wrong bytes"));
}

TEST_F(StepOracleTest, NoticesAnEarlierVersion) {
  Save(1, 1);
  Acknowledge(1, 1);
  Acknowledge(1, 2);
  EXPECT_THAT(Check(), ElementsAre("step 1 is of version 1, and version 2 of it was acknowledged"));
}

TEST_F(StepOracleTest, NoticesWhatWasNeverBegun) {
  Save(1, 1);
  EXPECT_THAT(Check(), ElementsAre("step 1 was never begun"));
}

TEST_F(StepOracleTest, NoticesWhatIsWrongWithTheRecord) {
  Save(1, 1, /*loss=*/2);
  Acknowledge(1, 1);
  EXPECT_THAT(CheckUnopened(), ElementsAre("step 1 has another loss than it was saved with"));
}

TEST_F(StepOracleTest, NoticesThatAReportIsLost) {
  Save(1, 1);
  Acknowledge(1, 1);
  oracle_.Reporting(1, 0.5);
  EXPECT_THAT(CheckUnopened(), IsEmpty()) << "it was not acknowledged";
  oracle_.Reported(1, 0.5);
  EXPECT_THAT(CheckUnopened(), ElementsAre("step 1 has lost a report that was acknowledged"));
}

TEST_F(StepOracleTest, AReportThatWasBegunMayBeThereInThePlaceOfAnEarlierOne) {
  Save(1, 1);
  Acknowledge(1, 1);
  ASSERT_THAT(checkpointer_->ReportMetrics(1, "late", {{"score", 0.25}}).Wait(), IsOk());
  oracle_.Reporting(1, 0.5);
  oracle_.Reported(1, 0.5);
  oracle_.Reporting(1, 0.25);
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(StepOracleTest, AReportThatWasNotFoundMustNotComeLater) {
  Save(1, 1);
  Acknowledge(1, 1);
  oracle_.Reporting(1, 0.5);
  EXPECT_THAT(Check(), IsEmpty());
  ASSERT_THAT(checkpointer_->ReportMetrics(1, "late", {{"score", 0.5}}).Wait(), IsOk());
  EXPECT_THAT(Check(), ElementsAre("step 1 has a report that was never made"));
}

TEST_F(StepOracleTest, AReportThatWasFoundMustStay) {
  Save(1, 1);
  Acknowledge(1, 1);
  oracle_.Reporting(1, 0.5);
  oracle_.Reporting(1, 0.25);
  ASSERT_THAT(checkpointer_->ReportMetrics(1, "late", {{"score", 0.25}}).Wait(), IsOk());
  EXPECT_THAT(Check(), IsEmpty());
  ASSERT_THAT(checkpointer_->ReportMetrics(1, "late", {{"score", 0.5}}).Wait(), IsOk());
  EXPECT_THAT(Check(), ElementsAre("step 1 has lost a report that was acknowledged"));
}

TEST_F(StepOracleTest, NoticesThatAPinIsLost) {
  Save(1, 1);
  Acknowledge(1, 1);
  oracle_.Pinning(1);
  EXPECT_THAT(CheckUnopened(), IsEmpty());
  oracle_.Pinned(1, true);
  EXPECT_THAT(CheckUnopened(), ElementsAre("step 1 is not pinned any more"));
}

TEST_F(StepOracleTest, NoticesAFolderThatNoRecordNames) {
  std::filesystem::create_directory(directory_ / "steps/0000000001-00");
  EXPECT_THAT(Check(), ElementsAre(HasSubstr("0000000001-00 is left in steps/")));
}

// Retention keeps the last three and the best: a step may be gone once three others are behind it, and no sooner.
TEST_F(StepOracleTest, KnowsWhatRetentionMayDelete) {
  Acknowledge(1, 1, /*loss=*/0.5);
  Acknowledge(2, 2, /*loss=*/0.9);
  for (int64_t step : {3, 4}) {
    Save(step, step, 0.9);
    Acknowledge(step, step, 0.9);
  }
  EXPECT_THAT(CheckUnopened(),
              ElementsAre("step 1 was acknowledged and is unknown", "step 2 was acknowledged and is unknown"));
  oracle_.Begun(5, 5, /*loss=*/0.9);
  EXPECT_THAT(CheckUnopened(), ElementsAre("step 1 was acknowledged and is unknown")) << "it was the best";
  oracle_.Begun(6, 6, /*loss=*/0.1);
  EXPECT_THAT(CheckUnopened(), IsEmpty());
}

TEST_F(StepOracleTest, HoldsWhatWasRestoredAgainstWhatWasAcknowledged) {
  Acknowledge(1, 1);
  Acknowledge(2, 2);
  oracle_.Begun(3, 3, 1);
  EXPECT_THAT(oracle_.CheckRestored(2, 2), IsEmpty());
  EXPECT_THAT(oracle_.CheckRestored(3, 3), IsEmpty());
  EXPECT_THAT(oracle_.CheckRestored(1, 1), ElementsAre("step 1 was restored, and step 2 was acknowledged"));
  EXPECT_THAT(oracle_.CheckRestored(2, 1), ElementsAre("version 1 of step 2 was restored, which cannot be there"));
}

// What one process writes as lines is what another one's oracle hears.
TEST(SaveLines, AreReadAsTheyWereWritten) {
  class Heard final : public SaveLog {
   public:
    void Begun(int64_t step, int64_t version, double loss) override { Add("begun", step, version, loss); }
    void Committed(int64_t version) override { Add("committed", version); }
    void Reporting(int64_t version, double score) override { Add("reporting", version, 0, score); }
    void Reported(int64_t version, double score) override { Add("reported", version, 0, score); }
    void Pinning(int64_t step) override { Add("pinning", step); }
    void Pinned(int64_t step, bool pinned) override { Add("pinned", step, pinned ? 1 : 0); }
    std::vector<std::tuple<std::string, int64_t, int64_t, double>> lines;

   private:
    void Add(const std::string& what, int64_t first, int64_t second = 0, double value = 0) {
      lines.emplace_back(what, first, second, value);
    }
  };
  const auto tell = [](SaveLog& log) {
    log.Begun(7, 1'000'000'000'000, 0.1);
    log.Committed(8);
    log.Reporting(8, 1.0 / 3);
    log.Reported(8, 1.0 / 3);
    log.Pinning(9);
    log.Pinned(9, true);
    log.Pinned(9, false);
  };
  Heard expected;
  tell(expected);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  SaveLineWriter writer(ends[1]);
  tell(writer);
  close(ends[1]);
  Heard heard;
  FILE* lines = fdopen(ends[0], "r");
  char line[200];
  while (std::fgets(line, sizeof(line), lines) != nullptr) EXPECT_TRUE(ReadSaveLine(line, heard)) << line;
  std::fclose(lines);
  EXPECT_EQ(heard.lines, expected.lines);
  EXPECT_FALSE(ReadSaveLine("resumed 1 2", heard));
}

}  // namespace
}  // namespace tidemark
