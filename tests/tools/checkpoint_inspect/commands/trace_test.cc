#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "tests/snapshot/observers.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"
#include "tidemark/store_reader.h"

namespace tidemark::inspect {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::SizeIs;

const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

// What a checker finds that knows the format and not the code.
json Check(const std::string& path, int expected_exit_code = 0) {
  FILE* pipe = popen(("python3 -B '" CHECK_TRACE "' '" + path + "'").c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  std::string output;
  char buffer[4096];
  for (size_t size; (size = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) output.append(buffer, size);
  EXPECT_EQ(WEXITSTATUS(pclose(pipe)), expected_exit_code) << output;
  return expected_exit_code == 0 ? ParseJson(output, nullptr, false) : json(output);
}

class TraceTest : public testing::Test {
 protected:
  Finished Trace(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"--store", store_.directory(), "trace"});
    return RunInspect(arguments);
  }

  // Names of the steps in the trace, in its order.
  std::vector<std::string> Steps() const {
    std::vector<std::string> steps;
    const json trace = ParseJson(ReadWhole(path_));
    for (const json& event : trace["traceEvents"]) {
      if (event["name"] == "process_name") steps.push_back(event["args"]["name"]);
    }
    return steps;
  }

  TestStore store_;
  const std::string path_ = store_.directory() + "/trace.json";
};

TEST_F(TraceTest, HasOneLaneForEachThreadOfASave) {
  CheckpointerOptions options{.directory = store_.directory()};
  options.tuning.chunk_bytes = 4096;
  options.tuning.codec_threads = 3;
  options.compression = Compression::kSpace;
  options.observer = NoWarnings();
  auto checkpointer = AsyncCheckpointer::Open(std::move(options));
  ASSERT_TRUE(checkpointer.ok()) << checkpointer.status();
  TestState state(20'000'000);
  ASSERT_TRUE((*checkpointer)->Save(5, state, {.staging = Staging::kOverlapped}).ok());
  ASSERT_TRUE((*checkpointer)->Close().ok());
  const Finished run = Trace({"5", "-o", path_});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, AllOf(HasSubstr(path_ + ": 1 save,"), HasSubstr("https://ui.perfetto.dev")));
  const json found = Check(path_);
  EXPECT_EQ(found["processes"], json({{"1", "step 5"}}));
  std::set<std::string> lanes;
  for (const auto& [place, name] : found["threads"].items()) lanes.insert(name);
  EXPECT_THAT(lanes, IsSupersetOf({"save", "trainer", "staging", "persister", "persister: disk"}));
  const auto codecs =
      std::count_if(lanes.begin(), lanes.end(), [](const std::string& lane) { return lane.starts_with("codec "); });
  EXPECT_GE(codecs, 2) << "thousands of chunks are too many for one of three threads";
  EXPECT_LE(codecs, 3);
  const auto phases = (*StoreReader::Open(store_.directory()))->Phases(5);
  ASSERT_TRUE(phases.ok()) << phases.status();
  EXPECT_EQ(found["complete"], phases->size() + 1) << "and the save as a whole";
}

TEST_F(TraceTest, PlacesSavesByWhenTheyWereCalled) {
  store_.Save({10}, {}, 5000, kNow + absl::Seconds(60));
  store_.Save({5}, {}, 5000, kNow);
  store_.Save({7}, {}, 5000, kNow + absl::Seconds(30));
  const Finished run = Trace({"all", "-o", path_});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  Check(path_);
  EXPECT_THAT(Steps(), ElementsAre("step 5", "step 7", "step 10"));
  std::vector<int64_t> begins;
  const json trace = ParseJson(ReadWhole(path_));
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X" && event["tid"] == 1) begins.push_back(event["ts"]);
  }
  EXPECT_THAT(begins, ElementsAre(0, 30'000'000, 60'000'000));
  EXPECT_EQ(trace["otherData"]["origin"], "2023-11-14T22:13:20Z");
}

TEST_F(TraceTest, TakesSelectorsRangesAndTheLastOnes) {
  store_.Save({1, 2, 3, 4, 5, 6, 7, 8}, {.metrics = {{"loss", 1}}}, 10, kNow);
  const auto traced = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"-o", path_, "--force"});
    const Finished run = Trace(arguments);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return Steps();
  };
  EXPECT_THAT(traced({"latest", "step:2", "2", "best:loss"}), ElementsAre("step 2", "step 8"));
  EXPECT_THAT(traced({"2..4", "7"}), ElementsAre("step 2", "step 3", "step 4", "step 7"));
  EXPECT_THAT(traced({"8..100"}), ElementsAre("step 8"));
  EXPECT_THAT(traced({"--last", "2"}), ElementsAre("step 7", "step 8"));
  EXPECT_THAT(traced({"1", "--last", "1"}), ElementsAre("step 1", "step 8"));
  EXPECT_THAT(traced({"--last", "100"}), SizeIs(8));
}

TEST_F(TraceTest, HasStepsWhoseFilesWereDeleted) {
  store_.Save({1, 2}, {}, 10);
  store_.Delete(1, "not among the latest 1");
  EXPECT_EQ(Trace({"1", "-o", path_}).exit_code, 0);
  Check(path_);
}

TEST_F(TraceTest, LeavesOutStepsOfWhichNothingIsKnown) {
  store_.Save({1}, {}, 10);
  store_.RecordUnsaved(3, {.evaluator = "validation"});
  const json document = RunInspectJson({"--store", store_.directory(), "trace", "all", "-o", path_});
  EXPECT_EQ(document["schema_version"], 2);
  EXPECT_EQ(document["path"], path_);
  ASSERT_THAT(document["saves"], SizeIs(1));
  EXPECT_EQ(document["saves"][0]["step"], 1);
  EXPECT_EQ(document["events"], document["saves"][0]["events"]);
  EXPECT_EQ(document["events"], ParseJson(ReadWhole(path_))["traceEvents"].size());
  EXPECT_EQ(document["without_phases"], json({3}));
  const Finished run = Trace({"all", "-o", path_, "--force"});
  EXPECT_THAT(run.err, HasSubstr("left out, because no phases of their saves are recorded: 3\n"));
}

TEST_F(TraceTest, WritesNothingWhereThereIsNothing) {
  store_.Save({1}, {}, 10);
  std::filesystem::remove_all(store_.directory() + "/journal");
  store_.RemoveIndex();
  store_.Restart();
  const Finished run = Trace({"1", "-o", path_});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, HasSubstr("was not written: no phases of these steps are recorded"));
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(TraceTest, ReplacesAFileOnlyWhereItIsToldTo) {
  store_.Save({1}, {}, 10);
  WriteWhole(path_, "mine");
  const Finished run = Trace({"1", "-o", path_});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, HasSubstr("--force replaces it"));
  EXPECT_EQ(ReadWhole(path_), "mine");
  EXPECT_EQ(Trace({"1", "-o", path_, "--force"}).exit_code, 0);
  Check(path_);
}

TEST_F(TraceTest, FailsWhereAStepIsNotThere) {
  store_.Save({5}, {}, 10);
  const auto error_of = [&](const char* step) {
    const Finished run = Trace({step, "-o", path_});
    EXPECT_EQ(run.exit_code, 1);
    EXPECT_FALSE(std::filesystem::exists(path_));
    return run.err;
  };
  EXPECT_THAT(error_of("7"), HasSubstr("step 7 is not in " + store_.directory() + "; nearest: 5"));
  EXPECT_THAT(error_of("6..9"), EndsWith("no step from 6 to 9 is in " + store_.directory() + "; nearest: 5\n"));
  store_.Save({12}, {}, 10);
  EXPECT_THAT(error_of("6..9"), EndsWith("; nearest: 5 and 12\n"));
  EXPECT_THAT(error_of("0..4"), EndsWith("; nearest: 5\n"));
  EXPECT_THAT(error_of("best:loss"), HasSubstr("no step has a metric 'loss'"));
  EXPECT_THAT(error_of("tag:v1..2"), HasSubstr("no step has a tag 'v1..2'"));
  TestStore empty;
  empty.Save({});
  const Finished all = RunInspect({"--store", empty.directory(), "trace", "all", "-o", path_});
  EXPECT_EQ(all.exit_code, 1);
  EXPECT_THAT(all.err, HasSubstr("there are no steps in " + empty.directory()));
  EXPECT_EQ(RunInspect({"--store", empty.directory(), "trace", "latest", "-o", path_}).exit_code, 12);
}

TEST_F(TraceTest, RejectsWrongUsage) {
  store_.Save({1}, {}, 10);
  const std::vector<std::vector<std::string>> wrong = {{"-o", path_},
                                                       {"1"},
                                                       {"newest", "-o", path_},
                                                       {"3..1", "-o", path_},
                                                       {"1..", "-o", path_},
                                                       {"1..x", "-o", path_},
                                                       {"--last", "0", "-o", path_},
                                                       {"--last", "-1", "-o", path_},
                                                       {"1", "-o", path_, "--untrusted"}};
  for (const auto& arguments : wrong) {
    EXPECT_EQ(Trace(arguments).exit_code, 2) << testing::PrintToString(arguments);
    EXPECT_FALSE(std::filesystem::exists(path_));
  }
}

TEST_F(TraceTest, TakesAStepInBracketsForNoListOfSteps) {
  store_.Save({1, 2}, {}, 10);
  const Finished run = Trace({"[1,2]", "-o", path_});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("'[1,2]' names no step"));
}

// A checker that takes everything would say nothing of the traces above.
TEST_F(TraceTest, IsHeldAgainstRulesThatCanBeBroken) {
  store_.Save({5}, {}, 10);
  ASSERT_EQ(Trace({"5", "-o", path_}).exit_code, 0);
  const json good = ParseJson(ReadWhole(path_));
  const auto error_after = [&](auto&& change) {
    json bad = good;
    for (json& event : bad["traceEvents"]) {
      if (event["ph"] == "X" && event["name"] == "write") change(bad, event);
    }
    WriteWhole(path_, bad.dump());
    return Check(path_, 1).get<std::string>();
  };
  EXPECT_THAT(error_after([](json&, json& event) { event.erase("dur"); }), HasSubstr("no dur"));
  EXPECT_THAT(error_after([](json&, json& event) { event["dur"] = -1; }), HasSubstr("dur is negative"));
  EXPECT_THAT(error_after([](json&, json& event) { event["ph"] = "Z"; }), HasSubstr("unknown phase"));
  EXPECT_THAT(error_after([](json&, json& event) { event["tid"] = 99; }), HasSubstr("a thread without a name"));
  EXPECT_THAT(error_after([](json&, json& event) { event["dur"] = event["dur"].get<int64_t>() + 1; }),
              HasSubstr("overlaps an event of its thread"));
  EXPECT_THAT(error_after([](json& trace, json&) { trace.erase("displayTimeUnit"); }), HasSubstr("displayTimeUnit"));
}

}  // namespace
}  // namespace tidemark::inspect
