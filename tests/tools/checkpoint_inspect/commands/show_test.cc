#include <filesystem>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"
#include "tools/checkpoint_inspect/commands/commands.h"

namespace tidemark::inspect {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ContainsRegex;
using testing::EndsWith;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

TEST(Show, PrintsRecordPropertiesAndShardsAndHowManyEntriesThereAre) {
  TestStore store;
  store.Save({5}, {.metrics = {{"loss", 0.5}}, .user_metadata = R"({"run": "a"})"}, 5000, absl::Now() - absl::Hours(5));
  const Finished show = RunInspect({"--store", store.directory(), "show", "5"});
  EXPECT_EQ(show.exit_code, 0);
  EXPECT_EQ(show.err, "");
  EXPECT_THAT(show.out, StartsWith("step 5 committed\n"));
  EXPECT_THAT(show.out, ContainsRegex("\n  created +20[0-9T:.-]+Z \\(age 5 h\\)\n"));
  EXPECT_THAT(show.out, ContainsRegex("\n  logical +39.1 KiB \\(40036 bytes\\)\n"));
  EXPECT_THAT(show.out, HasSubstr("\nmetrics\n  loss  0.5\n"));
  EXPECT_THAT(show.out, HasSubstr("\nuser metadata\n  {\n    \"run\": \"a\"\n  }\n"));
  EXPECT_THAT(show.out, ContainsRegex("\nsaved with\n(  [^\n]+\n)*  compression +space\n"));
  EXPECT_THAT(show.out, HasSubstr(store.ShardPath(5) + "\n"));
  EXPECT_THAT(show.out, ContainsRegex("\n  blocked +[0-9.]+ m?s \\(how long the training waited\\)\n"));
  EXPECT_THAT(show.out, ContainsRegex("\n  entries +9; 'tensors 5' lists them\n"));
  EXPECT_THAT(show.out, Not(HasSubstr("model.weight")));
}

TEST(Show, GivesEverythingAsJson) {
  TestStore store;
  store.Save({5});
  const json document = RunInspectJson({"--store", store.directory(), "show", "5"});
  EXPECT_EQ(document["schema_version"], 2);
  EXPECT_EQ(document["step"], RunInspectJson({"--store", store.directory(), "ls"})["steps"][0]);
  EXPECT_EQ(document["properties"]["compression"], "space");
  EXPECT_EQ(document["properties"]["chunk_bytes"], "4096");
  EXPECT_EQ(document["properties"]["reuse"], "none");
  ASSERT_THAT(document["shards"], SizeIs(1));
  EXPECT_EQ(document["shards"][0]["path"], store.ShardPath(5));
  EXPECT_EQ(document["shards"][0]["rank"], 0);
  EXPECT_EQ(document["shards"][0]["file_bytes"], document["step"]["stored_bytes"]);
  // Two tensors of 5 chunks each and six entries of one.
  EXPECT_EQ(document["shards"][0]["chunks"], 16);
  ASSERT_THAT(document["entries"], SizeIs(9));
  json weight = document["entries"][0];
  EXPECT_GT(weight["stored_bytes"], 0);
  weight.erase("stored_bytes");
  EXPECT_THAT(weight["digest"].get<std::string>(), MatchesRegex("[0-9a-f]{32}"));
  weight.erase("digest");
  EXPECT_EQ(weight, ParseJson(R"({"name": "model.weight", "kind": "tensor", "dtype": "float32", "shape": [5000, 1],
                                    "box": null, "bytes": 20000, "reused_bytes": 0, "rank": 0, "tied_to": null})"));
  EXPECT_EQ(document["entries"][8]["name"], "model.tied_too");
  EXPECT_EQ(document["entries"][8]["tied_to"], "model.tied");
  EXPECT_EQ(document["entries"][8]["stored_bytes"], 0);
}

TEST(Show, NamesTheFilesOfEarlierStepsThatHoldChunksOfIt) {
  TestStore store;
  store.SaveReusing({1, 2});
  const std::string path = store.ShardPath(1);
  const Finished show = RunInspect({"--store", store.directory(), "show", "2"});
  EXPECT_EQ(show.exit_code, 0) << show.err;
  EXPECT_THAT(show.out, AllOf(ContainsRegex("\nfiles of earlier steps\n  STEP +BYTES +CHUNKS +PATH\n"
                                            "     1 +[0-9.]+ KiB +16 +[^\n]+\n$"),
                              EndsWith("  " + path + "\n")));
  const json document = RunInspectJson({"--store", store.directory(), "show", "2"});
  EXPECT_GT(document["step"]["reused_bytes"], 0);
  EXPECT_EQ(document["properties"]["reuse"], "step 1");
  EXPECT_EQ(document["references"], json::array({{{"step", 1},
                                                  {"attempt", store.Info(1).attempt},
                                                  {"path", path},
                                                  {"chunks", 16},
                                                  {"stored_bytes", document["step"]["reused_bytes"]}}}));
  EXPECT_THAT(RunInspect({"--store", store.directory(), "show", "1"}).out, Not(HasSubstr("files of earlier steps")));
  EXPECT_EQ(RunInspectJson({"--store", store.directory(), "show", "1"})["references"], json::array());
}

TEST(Show, NamesAFileWhoseOwnStepWasDeleted) {
  TestStore store;
  store.SaveReusing({1, 2, 3});
  const std::string path = store.ShardPath(1);
  store.Delete(1, "not among the latest 2");
  const json document = RunInspectJson({"--store", store.directory(), "show", "3"});
  ASSERT_THAT(document["references"], SizeIs(1)) << "the place of the bytes, and no chain by way of step 2";
  EXPECT_EQ(document["references"][0]["path"], path);
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(Show, TellsWhatTheSaveWasBusyWith) {
  TestStore store;
  store.Save({5}, {.staging = Staging::kBlocking});
  const Finished show = RunInspect({"--store", store.directory(), "show", "5"});
  EXPECT_EQ(show.exit_code, 0) << show.err;
  EXPECT_THAT(show.out,
              ContainsRegex("\nphases\n  PHASE +THREADS +BEGIN +TIME +BUSY +SHARE +BYTES +RATE +TRAINER\n"
                            "  refresh +1 +[0-9.]+ m?s +[0-9.]+ m?s +[0-9.]+ m?s +(under )?[0-9.]+ % +- +- +waits\n"));
  EXPECT_THAT(show.out,
              ContainsRegex("\n  copy +1 +[0-9.]+ m?s +[0-9.]+ m?s +[0-9.]+ m?s +(under )?[0-9.]+ % +39.1 KiB +[0-9.]+ "
                            "[KMGT]?i?B/s +waits\n"));
  EXPECT_THAT(show.out, ContainsRegex("\n  encode +[1-9][0-9]* +"));
  EXPECT_THAT(show.out, ContainsRegex("\n  commit +1 +[^\n]+ -\n"));
  EXPECT_THAT(show.out, ContainsRegex("\n  SHARE is of the [0-9.]+ m?s that the whole save took\n"));
  const json document = RunInspectJson({"--store", store.directory(), "show", "5"});
  double whole = 0;
  for (const json& phase : document["phases"]) {
    EXPECT_THAT(phase, SizeIs(6));
    EXPECT_LE(phase["busy_seconds"], phase["seconds"]);
    whole = std::max(whole, phase["begin_seconds"].get<double>() + phase["seconds"].get<double>());
    if (phase["name"] != "copy") continue;
    EXPECT_EQ(phase["lane"], "trainer");
    EXPECT_EQ(phase["bytes"], 40012);
  }
  EXPECT_GE(whole, document["step"]["blocked_seconds"].get<double>());
}

TEST(Show, SaysNothingOfPhasesThatNobodyKnows) {
  TestStore store;
  store.Save({5});
  std::filesystem::remove_all(store.directory() + "/journal");
  store.RemoveIndex();
  store.Restart();
  const Finished show = RunInspect({"--store", store.directory(), "show", "5"});
  EXPECT_EQ(show.exit_code, 0) << show.err;
  EXPECT_THAT(show.out, Not(HasSubstr("phases")));
  EXPECT_EQ(RunInspectJson({"--store", store.directory(), "show", "5"})["phases"], json::array());
}

TEST(Show, TakesTheHighestCommittedStepAsLatest) {
  TestStore store;
  store.Save({10, 5});
  store.SaveInVain(11);
  const Finished show = RunInspect({"--store", store.directory(), "show", "latest"});
  EXPECT_EQ(show.exit_code, 0) << show.err;
  EXPECT_THAT(show.out, StartsWith("step 10 committed\n"));
}

TEST(Show, PrintsUserMetadataOfVeryManyKeysAsItIs) {
  std::string text = "{\"0\":0";
  for (int i = 1; i < 40'000; ++i) text += ",\"" + std::to_string(i) + "\":" + std::to_string(i);
  text += "}";
  TestStore store;
  store.Save({5}, {.user_metadata = text});
  const std::string limits =
      ", because it is not a JSON object of at most 8192 keys, 32768 values and a depth of 256\n";
  const Finished show = RunInspect({"--store", store.directory(), "show", "5"});
  EXPECT_EQ(show.exit_code, 0);
  EXPECT_EQ(show.err, "checkpoint-inspect: the user metadata is shown as it is" + limits);
  EXPECT_THAT(show.out, HasSubstr("\nuser metadata\n  " + text + "\n"));
  const Finished as_json = RunInspect({"--store", store.directory(), "--json", "show", "5"});
  EXPECT_EQ(as_json.err, "checkpoint-inspect: the user metadata is null" + limits);
  EXPECT_EQ(ParseJson(as_json.out).at("step").at("user_metadata"), nullptr);
}

TEST(Show, FailsForLatestWhereNothingIsCommitted) {
  TestStore store;
  store.Save({});
  store.SaveInVain(1);
  const Finished show = RunInspect({"--store", store.directory(), "show", "latest"});
  EXPECT_EQ(show.exit_code, 12);
  EXPECT_EQ(show.out, "");
  EXPECT_EQ(show.err, "checkpoint-inspect: error: no step is committed in " + store.directory() + "\n");
}

TEST(Show, NamesTheNearestStepsOfOneThatIsNotThere) {
  TestStore store;
  store.Save({1, 5, 10, 20});
  const auto error_of = [&](const char* step) {
    const Finished show = RunInspect({"--store", store.directory(), "show", step});
    EXPECT_EQ(show.exit_code, 1);
    EXPECT_EQ(show.out, "");
    return show.err;
  };
  const std::string end = " is not in " + store.directory() + "; nearest: ";
  EXPECT_EQ(error_of("7"), "checkpoint-inspect: error: step 7" + end + "5 and 10\n");
  EXPECT_EQ(error_of("0"), "checkpoint-inspect: error: step 0" + end + "1\n");
  EXPECT_EQ(error_of("21"), "checkpoint-inspect: error: step 21" + end + "20\n");
}

TEST(Show, SaysThatThereAreNoStepsInAnEmptyStore) {
  TestStore store;
  store.Save({});
  const Finished show = RunInspect({"--store", store.directory(), "show", "7"});
  EXPECT_EQ(show.exit_code, 1);
  EXPECT_THAT(show.err, HasSubstr("step 7 is not in " + store.directory() + ", which has no steps"));
}

TEST(Show, PrintsTheRecordOfAFailedSave) {
  TestStore store;
  store.Save({1});
  store.SaveInVain(2);
  const Finished show = RunInspect({"--store", store.directory(), "show", "2"});
  EXPECT_EQ(show.exit_code, 0) << show.err;
  EXPECT_THAT(show.out,
              AllOf(StartsWith("step 2 failed\n"), HasSubstr("File too large"), Not(HasSubstr("\nshards\n"))));
  const json document = RunInspectJson({"--store", store.directory(), "show", "2"});
  EXPECT_EQ(document["entries"], nullptr);
  EXPECT_EQ(document["shards"], nullptr);
  EXPECT_EQ(document["references"], nullptr);
}

TEST(Show, PrintsTheRecordAndFailsWhereTheIndexIsDamaged) {
  TestStore store;
  store.Save({1, 2});
  store.DamageIndex(2);
  const Finished show = RunInspect({"--store", store.directory(), "show", "2"});
  EXPECT_EQ(show.exit_code, 13);
  EXPECT_THAT(show.out, AllOf(StartsWith("step 2 committed\n"), Not(HasSubstr("\nentries\n"))));
  EXPECT_THAT(show.err, AllOf(StartsWith("checkpoint-inspect: error: "), HasSubstr(store.ShardPath(2))));
}

TEST(Show, PrintsWhatEvaluatorsSaidAndWhyTheStepStays) {
  TestStore store;
  store.Save({5}, {.metrics = {{"loss", 0.5}}});
  store.Update(5, [](StepInfo& info) {
    info.pinned = true;
    info.pin_note = "for the paper";
    info.kept = "pinned, among the latest 3";
  });
  store.Deliver(5, {.evaluator = "validation",
                    .worker = "pid 7 on node-3",
                    .metrics = {{"loss", 0.25}},
                    .unhealthy = "diverged",
                    .reported = absl::FromUnixSeconds(1'700'000'000),
                    .took = absl::Milliseconds(1500)});
  store.Deliver(5, {.evaluator = "test", .outcome = Evaluation::Outcome::kFailed, .reason = "no data"});
  const Finished show = RunInspect({"--store", store.directory(), "show", "5"});
  EXPECT_EQ(show.exit_code, 0) << show.err;
  EXPECT_THAT(show.out, ContainsRegex("\n  unhealthy +validation: diverged\n  pinned +for the paper\n"
                                      "  kept +pinned, among the latest 3\n"));
  EXPECT_THAT(show.out, HasSubstr("\nmetrics\n  loss             0.5\n  validation/loss  0.25\n"));
  EXPECT_THAT(
      show.out,
      ContainsRegex("\nevaluations\n  EVALUATOR +OUTCOME +SECONDS +REPORTED +WORKER\n  test +failed +0.00 [^\n]+\n"
                    "    no data\n  validation +done +1.50 +2023-11-14T22:13:20Z +pid 7 on node-3\n"
                    "    unhealthy: diverged\n"));
}

TEST(Show, PrintsTheRecordOfStepsWithoutFiles) {
  TestStore store;
  store.Save({1, 2});
  store.Delete(1, "not among the latest 1");
  store.RecordUnsaved(3, {.evaluator = "validation", .metrics = {{"loss", 0.25}}});
  const Finished deleted = RunInspect({"--store", store.directory(), "show", "1"});
  EXPECT_EQ(deleted.exit_code, 0) << deleted.err;
  EXPECT_THAT(deleted.out,
              AllOf(StartsWith("step 1 deleted\n"), HasSubstr("not among the latest 1"), Not(HasSubstr("\nshards\n"))));
  const Finished unsaved = RunInspect({"--store", store.directory(), "show", "3"});
  EXPECT_EQ(unsaved.exit_code, 0) << unsaved.err;
  EXPECT_THAT(unsaved.out, AllOf(StartsWith("step 3 unsaved\n"), HasSubstr("validation/loss  0.25"),
                                 Not(HasSubstr("blocked")), Not(HasSubstr("stored"))));
  const Finished latest = RunInspect({"--store", store.directory(), "show", "latest"});
  EXPECT_THAT(latest.out, StartsWith("step 2 committed\n"));
}

TEST(Show, ReadsNoTensor) {
  TestStore store;
  store.Save({1});
  store.DamageChunk(1);
  EXPECT_EQ(RunInspect({"--store", store.directory(), "show", "1"}).exit_code, 0);
}

TEST(Show, FailsWhereTheShardIsGone) {
  TestStore store;
  store.Save({1});
  const std::string folder = std::filesystem::path(store.ShardPath(1)).parent_path();
  store.RemoveShard(1);
  const Finished show = RunInspect({"--store", store.directory(), "show", "1"});
  EXPECT_EQ(show.exit_code, 13);
  EXPECT_THAT(show.err, HasSubstr(folder));
}

TEST(Show, SaysThatAShardIsOfANewerVersion) {
  TestStore store;
  store.Save({1});
  store.MakeShardNewer(1);
  const Finished show = RunInspect({"--store", store.directory(), "show", "1"});
  EXPECT_EQ(show.exit_code, 14);
  EXPECT_THAT(show.err, HasSubstr("newer version"));
}

TEST(Show, WarnsWhereTheManifestCannotBeRead) {
  TestStore store;
  store.Save({1});
  store.DamageJournal();
  const Finished show = RunInspect({"--store", store.directory(), "show", "latest"});
  EXPECT_EQ(show.exit_code, 3);
  EXPECT_THAT(show.out, StartsWith("step 1 committed\n"));
  EXPECT_THAT(show.err, HasSubstr("warning: the journal cannot be read"));
}

TEST(Show, ReadsTheAttemptThatTookThePlaceOfTheOneItHad) {
  TestStore store;
  store.Save({1});
  const auto reader = *StoreReader::Open(store.directory());
  store.Save({1}, {.metrics = {{"second", 1}}, .overwrite = true});
  Console console;
  testing::internal::CaptureStdout();
  const ExitCode code =
      ShowStep({console, *reader, store.directory(), /*json=*/true, absl::Now(), store.directory()}, 1);
  EXPECT_TRUE(console.FlushData().ok());
  const json document = ParseJson(testing::internal::GetCapturedStdout());
  EXPECT_EQ(code, ExitCode::kOk);
  EXPECT_EQ(document["step"]["metrics"], ParseJson(R"({"second": 1.0})"));
  EXPECT_THAT(document["entries"], SizeIs(9));
}

}  // namespace
}  // namespace tidemark::inspect
