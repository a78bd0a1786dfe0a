#include <unistd.h>

#include <filesystem>

#include "gmock/gmock.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;

// A store, and a folder beside it for pages.
class ReportTest : public testing::Test {
 protected:
  ReportTest() { fs::create_directory(folder_); }

  Finished Report(const std::vector<std::string>& more, const RunOptions& options = {}) const {
    std::vector<std::string> arguments = {"--store", store_.directory(), "report", "-o", path_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunInspect(arguments, options);
  }
  size_t Names() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  TestStore store_;
  TestStore elsewhere_;
  const std::string folder_ = elsewhere_.directory() + "/out";
  const std::string path_ = folder_ + "/page.html";
};

TEST_F(ReportTest, WritesAPageAndChangesNothingOfTheStore) {
  store_.Save({1, 2}, {.metrics = {{"loss", 0.5}}});
  const auto before = store_.Listing();
  const Finished report = Report({});
  EXPECT_EQ(report.exit_code, 0);
  EXPECT_EQ(report.out, "");
  EXPECT_THAT(report.err, MatchesRegex("checkpoint-inspect: wrote .*/page.html: [0-9.]+ KiB\n"));
  EXPECT_EQ(store_.Listing(), before);
  EXPECT_THAT(ReadWhole(path_), AllOf(StartsWith("<!DOCTYPE html>"), HasSubstr("Checkpoints in " + store_.directory()),
                                      HasSubstr("loss by step"), HasSubstr("Relative change of tensors"),
                                      HasSubstr("Histogram of model.weight"), HasSubstr("</html>\n")));
  EXPECT_EQ(Names(), 1);
}

TEST_F(ReportTest, ReadsNoTensorWhereItIsToldNotTo) {
  store_.Save({1, 2});
  // Reading it would fail.
  store_.DamageChunk(2);
  const Finished report = Report({"--no-tensors"});
  EXPECT_EQ(report.exit_code, 0) << report.err;
  EXPECT_THAT(ReadWhole(path_), AllOf(HasSubstr("No tensor was read"), Not(HasSubstr("Histogram"))));
}

TEST_F(ReportTest, SaysWhatItLeftOut) {
  store_.Save({1});
  const Finished report = Report({"--max-read", "1kB"});
  EXPECT_EQ(report.exit_code, 0) << report.err;
  EXPECT_THAT(ReadWhole(path_),
              AllOf(HasSubstr("beyond --max-read 1000 B."), Not(HasSubstr("that could not be read"))));
}

TEST_F(ReportTest, IsWrittenThoughATensorIsDamaged) {
  store_.Save({1, 2});
  store_.DamageChunk(2);
  const Finished report = Report({});
  EXPECT_EQ(report.exit_code, 3);
  EXPECT_THAT(report.err, HasSubstr("warning: step 2: "));
  EXPECT_THAT(ReadWhole(path_),
              AllOf(HasSubstr("Not all could be read"), HasSubstr("of tensors that could not be read."),
                    Not(HasSubstr("beyond --max-read")), HasSubstr("Needs a look."),
                    HasSubstr("Found while reading tensors for this page: step 2 damaged (model.weight). A restore "
                              "takes step 1."),
                    HasSubstr("<td>this report</td>"), Not(HasSubstr("No problem is known of any step"))));
}

TEST_F(ReportTest, NamesTheStoreByItsAbsolutePath) {
  store_.Save({1});
  const Finished report =
      RunInspect({"--store", ".", "report", "-o", path_, "--no-tensors"}, {.directory = store_.directory()});
  EXPECT_EQ(report.exit_code, 0) << report.err;
  EXPECT_THAT(ReadWhole(path_),
              AllOf(HasSubstr("<h1>Checkpoints in " + fs::canonical(store_.directory()).string() + "</h1>"),
                    Not(HasSubstr("<code>.</code>"))));
}

TEST_F(ReportTest, TakesTitleMetricsAndLastSteps) {
  store_.Save({1, 2, 3}, {.metrics = {{"loss", 0.5}, {"score", 3}}});
  const Finished report = Report({"--title", "Run <7>", "--metric", "score:lowest", "--last", "2", "--no-tensors"});
  EXPECT_EQ(report.exit_code, 0) << report.err;
  EXPECT_THAT(ReadWhole(path_),
              AllOf(HasSubstr("<title>Run &lt;7&gt;</title>"), HasSubstr("<h1>Run &lt;7&gt;</h1>"),
                    HasSubstr("score by step"), Not(HasSubstr("loss by step")), HasSubstr("The latest 2 of 3")));
}

TEST_F(ReportTest, DoesNotReplaceAFileUnlessForced) {
  store_.Save({1});
  WriteWhole(path_, "theirs");
  const Finished report = Report({"--no-tensors"});
  EXPECT_EQ(report.exit_code, 1);
  EXPECT_THAT(report.err, HasSubstr("exists; --force replaces it"));
  EXPECT_EQ(ReadWhole(path_), "theirs");
  EXPECT_EQ(Report({"--no-tensors", "--force"}).exit_code, 0);
  EXPECT_THAT(ReadWhole(path_), StartsWith("<!DOCTYPE html>"));
  EXPECT_EQ(Names(), 1);
}

TEST_F(ReportTest, FailsWhereThereIsNoFolder) {
  store_.Save({1});
  const Finished report =
      RunInspect({"--store", store_.directory(), "report", "-o", folder_ + "/none/page.html", "--no-tensors"});
  EXPECT_EQ(report.exit_code, 1);
  EXPECT_THAT(report.err, HasSubstr("none/page.html"));
}

TEST_F(ReportTest, FailsForAMetricThatNoStepHas) {
  store_.Save({1}, {.metrics = {{"loss", 0.5}}});
  const Finished report = Report({"--metric", "perplexity"});
  EXPECT_EQ(report.exit_code, 1);
  EXPECT_THAT(report.err, AllOf(HasSubstr("perplexity"), HasSubstr("loss")));
  EXPECT_EQ(Names(), 0);
}

TEST_F(ReportTest, RefusesCommandLinesThatMakeNoSense) {
  store_.Save({1});
  EXPECT_EQ(RunInspect({"--store", store_.directory(), "report"}).exit_code, 2);
  EXPECT_EQ(Report({"--last", "0"}).exit_code, 2);
  EXPECT_EQ(Report({"--max-read", "much"}).exit_code, 2);
  EXPECT_EQ(Report({"--max-read", "1MB", "--no-tensors"}).exit_code, 2);
  const Finished untrusted = RunInspect({"--store", store_.directory(), "--untrusted", "report", "-o", path_});
  EXPECT_EQ(untrusted.exit_code, 2);
  EXPECT_EQ(Names(), 0);
}

TEST_F(ReportTest, DescribesAnEmptyStoreAndOneWithoutManifest) {
  store_.Save({});
  EXPECT_EQ(Report({}).exit_code, 0);
  EXPECT_THAT(ReadWhole(path_), HasSubstr("There is no committed step to restore"));
  store_.Save({1});
  store_.DamageJournal();
  EXPECT_EQ(Report({"--force"}).exit_code, 3);
  EXPECT_THAT(ReadWhole(path_), HasSubstr("the journal cannot be read"));
  EXPECT_EQ(RunInspect({"--store", folder_, "report", "-o", path_}).exit_code, 10);
}

TEST_F(ReportTest, TellsWhatItDidAsJson) {
  store_.Save({1, 2}, {.metrics = {{"loss", 0.5}}});
  const nlohmann::json document = RunInspectJson({"--store", store_.directory(), "report", "-o", path_});
  EXPECT_EQ(document["schema_version"], 2);
  const nlohmann::json& report = document["report"];
  EXPECT_EQ(report["path"], path_);
  EXPECT_EQ(report["bytes"], ReadWhole(path_).size());
  EXPECT_EQ(report["steps"], 2);
  EXPECT_THAT(report["metrics"], ElementsAre("loss"));
  EXPECT_THAT(report["verdict"].get<std::string>(), StartsWith("A restore takes step 2"));
  EXPECT_THAT(report["tensors"]["steps"], ElementsAre(1, 2));
  // One tensor of 5000 floats that another one is tied to, one of its own of as many, and one of 3; no pair differs.
  EXPECT_EQ(report["tensors"]["bytes_read"], 40012);
  EXPECT_EQ(report["tensors"]["bytes_left_out"], 0);
  EXPECT_EQ(report["tensors"]["problems"].size(), 0);
  EXPECT_EQ(RunInspectJson(
                {"--store", store_.directory(), "report", "-o", path_, "--force", "--no-tensors"})["report"]["tensors"],
            nullptr);
}

}  // namespace
}  // namespace tidemark::inspect
