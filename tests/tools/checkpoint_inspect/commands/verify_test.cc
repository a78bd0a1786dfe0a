// All that verify can find wrong in a step, a test for each, and what it says of it. record_check_test.cc has what it
// finds wrong in the journal, the index and store.json.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

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

TEST(Verify, PrintsALineForEverySoundStep) {
  TestStore store;
  store.Save({1, 2});
  const Finished verify = RunInspect({"--store", store.directory(), "verify"});
  EXPECT_EQ(verify.exit_code, 0);
  EXPECT_EQ(verify.err, "");
  EXPECT_THAT(verify.out, MatchesRegex("step 1: sound, [0-9.]+ KiB in 16 chunks\n"
                                       "step 2: sound, [0-9.]+ KiB in 16 chunks\n"
                                       "2 of 2 steps sound; a restore takes step 2\n"));
}

TEST(Verify, PrintsOnlyWhatIsWrongWhereItIsToBeQuiet) {
  TestStore store;
  store.Save({1, 2, 3});
  EXPECT_EQ(RunInspect({"--store", store.directory(), "verify", "--quiet"}).out,
            "3 of 3 steps sound; a restore takes step 3\n");
  EXPECT_THAT(RunInspect({"--store", store.directory(), "verify", "--quiet", "--read-data=0%"}).out,
              MatchesRegex("a sample of 0 % of [^\n]+\n3 of 3 steps without damage in the sample; [^\n]+\n"));
  store.DamageChunk(2);
  const Finished damaged = RunInspect({"--store", store.directory(), "verify", "--quiet"});
  EXPECT_EQ(damaged.exit_code, 3);
  EXPECT_THAT(damaged.out, AllOf(StartsWith("step 2: damaged\n"), Not(HasSubstr("step 1")),
                                 EndsWith("2 of 3 steps sound; damaged: 2; a restore takes step 3\n")));
  const json document = RunInspectJson({"--store", store.directory(), "verify", "--quiet"}, 3);
  EXPECT_THAT(document["steps"], SizeIs(3));
}

TEST(Verify, GivesResultsAsJson) {
  TestStore store;
  store.Save({1, 2});
  store.DamageChunk(2);
  const json document = RunInspectJson({"--store", store.directory(), "verify"}, 3);
  EXPECT_EQ(document["schema_version"], 2);
  ASSERT_THAT(document["steps"], SizeIs(2));
  EXPECT_EQ(document["steps"][0]["result"], "sound");
  EXPECT_EQ(document["steps"][0]["damage"], json::array());
  EXPECT_EQ(document["steps"][0]["chunks"], 16);
  const json& second = document["steps"][1];
  EXPECT_EQ(second["step"], 2);
  EXPECT_EQ(second["state"], "committed");
  EXPECT_EQ(second["result"], "damaged");
  EXPECT_GT(second["bytes_read"], 0);
  ASSERT_THAT(second["damage"], SizeIs(1));
  EXPECT_EQ(second["damage"][0]["path"], store.ShardPath(2));
  EXPECT_THAT(second["damage"][0]["what"].get<std::string>(), HasSubstr("at 4096"));
  EXPECT_EQ(second["damage"][0]["entries"], json::array({"model.weight"}));
  EXPECT_EQ(document["restore"], ParseJson(R"({"step": 1, "verified": true})"));
}

TEST(Verify, LocatesDamageAndNamesTheStepToRestore) {
  TestStore store;
  store.Save({1, 2, 3});
  store.DamageChunk(3);
  const Finished verify = RunInspect({"--store", store.directory(), "verify"});
  EXPECT_EQ(verify.exit_code, 3) << verify.err;
  EXPECT_THAT(verify.out, ContainsRegex("\nstep 3: damaged\n  [^\n]*shard-00000-of-00001.tmk: [^\n]* at 4096[^\n]*\n"
                                        "    entries affected: model.weight\n"
                                        "2 of 3 steps sound; damaged: 3; a restore takes step 2\n$"));
}

TEST(Verify, NamesAFewStepsInItsLastLineAndCountsTheRest) {
  TestStore store;
  std::vector<int64_t> steps(13);
  std::iota(steps.begin(), steps.end(), 1);
  store.Save(steps, {}, 10);
  for (int64_t step = 1; step <= 12; ++step) {
    store.Update(step, [](StepInfo& info) { info.state = StepState::kDamaged; });
  }
  EXPECT_THAT(RunInspect({"--store", store.directory(), "verify"}).out,
              EndsWith("\n1 of 13 steps sound; marked: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more; a restore takes step "
                       "13\n"));
}

TEST(Verify, TellsItsExitCodesAndWhatComesNext) {
  EXPECT_THAT(RunInspect({"verify", "--help"}).out,
              AllOf(HasSubstr("\n   3  "), HasSubstr("\n  12  "), HasSubstr("\n  13  "), HasSubstr("'repair'")));
}

TEST(Verify, FailsForTheDamagedStepThatWasAskedFor) {
  TestStore store;
  store.Save({1, 2});
  store.DamageChunk(2);
  const Finished verify = RunInspect({"--store", store.directory(), "verify", "2"});
  EXPECT_EQ(verify.exit_code, 13);
  EXPECT_THAT(verify.out,
              AllOf(HasSubstr("\na restore takes step 1, which was not verified\n"), Not(HasSubstr("steps sound"))));
  EXPECT_EQ(RunInspect({"--store", store.directory(), "verify", "1"}).exit_code, 0);
}

TEST(Verify, FailsWhereNoSoundStepRemains) {
  TestStore store;
  store.Save({1, 2});
  store.DamageChunk(1);
  store.RemoveShard(2);
  const Finished verify = RunInspect({"--store", store.directory(), "verify"});
  EXPECT_EQ(verify.exit_code, 13);
  EXPECT_THAT(verify.out, AllOf(HasSubstr("step 1: damaged\n"), HasSubstr("step 2: damaged\n"),
                                HasSubstr("\n0 of 2 steps sound; damaged: 1, 2; no step can be restored\n")));
  EXPECT_EQ(RunInspectJson({"--store", store.directory(), "verify"}, 13)["restore"], nullptr);
}

TEST(Verify, NamesTheShardThatIsGone) {
  TestStore store;
  store.Save({1, 2});
  const std::string path = store.ShardPath(2);
  store.RemoveShard(2);
  const Finished verify = RunInspect({"--store", store.directory(), "verify", "2"});
  EXPECT_EQ(verify.exit_code, 13);
  EXPECT_THAT(verify.out, AllOf(HasSubstr(path), HasSubstr("No such file")));
}

TEST(Verify, CountsWhatIsRecordedAsLostOrDamaged) {
  TestStore store;
  store.Save({1, 2, 3});
  const std::string sound = ReadWhole(store.ShardPath(3));
  store.RemoveStep(2);
  store.DamageChunk(3);
  store.Restart();
  WriteWhole(store.ShardPath(3), sound);
  const Finished verify = RunInspect({"--store", store.directory(), "verify"});
  EXPECT_EQ(verify.exit_code, 3) << verify.err;
  EXPECT_THAT(verify.out,
              MatchesRegex("step 1: sound[^\n]*\nstep 2: lost: [^\n]*No such file or directory[^\n]*\n"
                           "step 3: marked as damaged \\([^\n]+\\), though every byte reads as committed now\n"
                           "1 of 3 steps sound; marked: 3; lost: 2; a restore takes step 1\n"));
  EXPECT_EQ(RunInspect({"--store", store.directory(), "verify", "2"}).exit_code, 13);
  EXPECT_EQ(RunInspect({"--store", store.directory(), "verify", "3"}).exit_code, 13);
}

TEST(Verify, NamesTheStepWhicheverBitOfItsShardChanges) {
  const TestStore store;
  store.Save({1, 2}, {}, /*elements=*/300);
  const std::string path = store.ShardPath(2);
  const std::string sound = ReadWhole(path);
  const size_t stride = sound.size() * 8 / 40 | 1;  // odd, so that every bit of a byte has its turn
  for (size_t bit = 0; bit < sound.size() * 8; bit += stride) {
    SCOPED_TRACE(testing::Message() << "byte " << bit / 8 << ", bit " << bit % 8);
    std::string changed = sound;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    WriteWhole(path, changed);
    const Finished verify = RunInspect({"--store", store.directory(), "verify"});
    EXPECT_EQ(verify.exit_code, 3) << verify.err;
    EXPECT_THAT(verify.out,
                MatchesRegex("step 1: sound[^\n]*\nstep 2: damaged\n  [^\n]*shard-00000-of-00001.tmk[: ]"
                             "[^\n]*\n(  [^\n]*\n)*1 of 2 steps sound; damaged: 2; a restore takes step 1\n"));
    if (HasFailure()) return;
  }
  WriteWhole(path, sound);
  EXPECT_EQ(RunInspect({"--store", store.directory(), "verify"}).exit_code, 0);
}

TEST(Verify, NamesTheStepWhicheverOfItsSectorsAreSwappedOrAnEarlierSaves) {
  constexpr size_t kSector = 512;
  const TestStore store;
  store.Save({1, 2});
  const std::string stale = ReadWhole(store.ShardPath(2));
  store.Save({2}, {.overwrite = true});
  const std::string path = store.ShardPath(2);
  const std::string sound = ReadWhole(path);
  const auto seed = storage::SeedOfCases();
  std::mt19937 random(seed);
  const auto draw_sector = [&] { return random() % (std::min(sound.size(), stale.size()) / kSector) * kSector; };
  std::vector<std::string> rotten = {stale, ""};
  while (rotten.size() < 24) {
    const size_t at = draw_sector();
    const size_t with = draw_sector();
    std::string swapped = sound;
    swapped.replace(at, kSector, sound, with, kSector).replace(with, kSector, sound, at, kSector);
    rotten.push_back(swapped);
    rotten.push_back(sound.substr(0, at) + stale.substr(at));
    rotten.push_back(stale.substr(0, at) + sound.substr(at));
    std::erase(rotten, sound);
  }
  for (size_t i = 0; i < rotten.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", the one with number " << i);
    WriteWhole(path, rotten[i]);
    const Finished verify = RunInspect({"--store", store.directory(), "verify"});
    EXPECT_EQ(verify.exit_code, 3) << verify.err;
    EXPECT_THAT(verify.out, MatchesRegex("step 1: sound[^\n]*\nstep 2: damaged\n(  [^\n]*\n)+"
                                         "1 of 2 steps sound; damaged: 2; a restore takes step 1\n"));
    if (HasFailure()) return;
  }
  WriteWhole(path, sound);
  EXPECT_EQ(RunInspect({"--store", store.directory(), "verify"}).exit_code, 0);
}

TEST(Verify, NamesEveryStepThatNeedsAShardWhateverLengthThatIsCutTo) {
  TestStore store;
  {
    CheckpointerOptions options{.directory = store.directory(), .reuse = true};
    options.tuning.chunk_bytes = 4096;
    options.compression = Compression::kNone;
    auto opened = AsyncCheckpointer::Open(std::move(options));
    ASSERT_TRUE(opened.ok()) << opened.status();
    TestState state(5000);
    for (const int64_t step : {1, 2}) {
      ASSERT_TRUE((*opened)->Save(step, state).ok());
      ASSERT_TRUE((*opened)->WaitUntilCommitted().ok());
    }
    ASSERT_TRUE((*opened)->Close().ok());
  }
  const std::string path = store.ShardPath(1);
  const std::string sound = ReadWhole(path);
  ASSERT_GT(sound.size(), 2 * ReadWhole(store.ShardPath(2)).size());  // which refers to it
  for (size_t length = 0; length < sound.size(); length += sound.size() / 23) {
    SCOPED_TRACE(testing::Message() << "cut to " << length);
    WriteWhole(path, sound.substr(0, length));
    const json document = RunInspectJson({"--store", store.directory(), "verify"}, 13);
    ASSERT_THAT(document["steps"], SizeIs(2));
    for (const json& step : document["steps"]) {
      EXPECT_EQ(step["result"], "damaged");
      ASSERT_FALSE(step["damage"].empty());
      EXPECT_EQ(step["damage"][0]["path"], path);
    }
    EXPECT_EQ(document["restore"], nullptr);
    if (HasFailure()) return;
  }
  WriteWhole(path, sound);
  EXPECT_EQ(RunInspect({"--store", store.directory(), "verify"}).exit_code, 0);
}

TEST(Verify, FindsDamageOfTheIndex) {
  TestStore store;
  store.Save({1});
  store.DamageIndex(1);
  EXPECT_EQ(RunInspect({"--store", store.directory(), "verify", "1"}).exit_code, 13);
}

TEST(Verify, CountsAVersionThatDoesNotExistAsDamage) {
  TestStore store;
  store.Save({1});
  store.MakeShardNewer(1);
  EXPECT_EQ(RunInspect({"--store", store.directory(), "verify", "1"}).exit_code, 13);
}

TEST(Verify, SaysThatNothingIsRestorable) {
  TestStore store;
  store.Save({});
  const Finished verify = RunInspect({"--store", store.directory(), "verify"});
  EXPECT_EQ(verify.exit_code, 12);
  EXPECT_EQ(verify.out, "");
  EXPECT_EQ(verify.err, "checkpoint-inspect: error: no step is committed in " + store.directory() + "\n");
}

TEST(Verify, RefusesAStepThatWasNeverCommitted) {
  TestStore store;
  store.Save({1});
  store.SaveInVain(2);
  const Finished verify = RunInspect({"--store", store.directory(), "verify", "2"});
  EXPECT_EQ(verify.exit_code, 1);
  EXPECT_THAT(verify.err, AllOf(HasSubstr("step 2 was never committed: "), HasSubstr("File too large")));
  // And it is not damage to the rest.
  EXPECT_EQ(RunInspect({"--store", store.directory(), "verify"}).exit_code, 0);
}

TEST(Verify, NamesTheNearestStepsOfOneThatIsNotThere) {
  TestStore store;
  store.Save({1, 5});
  const Finished verify = RunInspect({"--store", store.directory(), "verify", "3"});
  EXPECT_EQ(verify.exit_code, 1);
  EXPECT_THAT(verify.err, HasSubstr("nearest: 1 and 5"));
}

TEST(Verify, VerifiesTheShardsWhereTheJournalCannotBeRead) {
  TestStore store;
  store.Save({1, 2});
  store.DamageJournal();
  const Finished verify = RunInspect({"--store", store.directory(), "verify"});
  EXPECT_EQ(verify.exit_code, 3) << verify.err;
  EXPECT_THAT(verify.out, AllOf(HasSubstr("step 1: sound"),
                                EndsWith("2 of 2 steps sound; the journal cannot be read; a restore takes step 2\n")));
}

TEST(Verify, ShowsProgressOnATerminalOnly) {
  TestStore store;
  store.Save({1});
  const Finished terminal = RunInspect({"--store", store.directory(), "verify"}, {.terminal = true});
  EXPECT_EQ(terminal.exit_code, 0);
  EXPECT_THAT(terminal.out, ContainsRegex("\rstep 1: [0-9.]+ KiB of [0-9.]+ KiB"));
  EXPECT_THAT(RunInspect({"--store", store.directory(), "verify"}).err, Not(HasSubstr("\r")));
}

TEST(Verify, NamesTheFirstEntriesOfManyThatAreAffected) {
  TestStore store;
  auto checkpointer = store.OpenCheckpointer();
  State state;
  std::vector<std::string> values(30, "x");
  for (size_t i = 0; i < values.size(); ++i) state.AddValue("value." + std::to_string(i), &values[i]);
  ASSERT_TRUE(checkpointer->Save(1, state).ok());
  ASSERT_TRUE(checkpointer->Close().ok());
  WriteWhole(store.ShardPath(1), ReadWhole(store.ShardPath(1)).replace(4096, 30, 30, 'y'));
  const Finished verify = RunInspect({"--store", store.directory(), "verify"});
  EXPECT_EQ(verify.exit_code, 13);
  EXPECT_THAT(verify.out, HasSubstr("entries affected: value.0\n"));
}

TEST(Verify, PassesOverStepsWithoutFiles) {
  TestStore store;
  store.Save({1, 2});
  store.Delete(1, "not among the latest 1");
  store.RecordUnsaved(3, {.evaluator = "validation"});
  EXPECT_THAT(RunInspectJson({"--store", store.directory(), "verify"})["steps"], SizeIs(1));
  const Finished deleted = RunInspect({"--store", store.directory(), "verify", "1"});
  EXPECT_EQ(deleted.exit_code, 1);
  EXPECT_EQ(deleted.err, "checkpoint-inspect: error: step 1 was deleted: not among the latest 1\n");
  const Finished unsaved = RunInspect({"--store", store.directory(), "verify", "3"});
  EXPECT_EQ(unsaved.exit_code, 1);
  EXPECT_THAT(unsaved.err, HasSubstr("step 3 was never committed"));
}

TEST(Verify, ReadsASampleThatItsSeedDrawsAgain) {
  TestStore store;
  store.Save({1, 2});
  const std::vector<std::string> sample = {"--store", store.directory(), "verify", "--read-data=25%", "--seed", "42"};
  const Finished verify = RunInspect(sample);
  EXPECT_EQ(verify.exit_code, 0);
  EXPECT_THAT(verify.out, MatchesRegex("a sample of 25 % of each shard's chunks; --seed 42 draws it again\n"
                                       "step 1: no damage found in the sample, 4 of 16 chunks, [0-9.]+ KiB\n"
                                       "step 2: no damage found in the sample, 4 of 16 chunks, [0-9.]+ KiB\n"
                                       "2 of 2 steps without damage in the sample; a restore takes step 2, which was "
                                       "not verified\n"));
  EXPECT_THAT(verify.out, Not(HasSubstr("sound")));
  EXPECT_EQ(RunInspect(sample).out, verify.out);
  const Finished no_sample = RunInspect({"--store", store.directory(), "verify", "--seed", "42"});
  EXPECT_EQ(no_sample.exit_code, 2);
  EXPECT_THAT(no_sample.err, HasSubstr("--seed requires --read-data"));
  const json document = RunInspectJson(sample);
  EXPECT_EQ(document["sample"], ParseJson(R"({"share": 0.25, "seed": 42})"));
  EXPECT_EQ(document["steps"][0]["result"], "sampled");
  EXPECT_EQ(document["steps"][0]["chunks"], 4);
  EXPECT_EQ(document["steps"][0]["chunks_total"], 16);
  EXPECT_EQ(document["restore"], ParseJson(R"({"step": 2, "verified": false})"));
  EXPECT_THAT(RunInspect({"--store", store.directory(), "verify", "--read-data=0.000001%"}).out,
              StartsWith("a sample of under 0.01 % of each shard's chunks; "));
  const json whole = RunInspectJson({"--store", store.directory(), "verify", "--read-data"});
  EXPECT_EQ(whole["sample"], nullptr);
  EXPECT_EQ(whole["steps"][0]["result"], "sound");
}

// More chunks are in the sample than are sound, so that the damage shows in any.
TEST(Verify, FindsDamageInTheSample) {
  TestStore store;
  store.Save({1, 2});
  std::string contents = ReadWhole(store.ShardPath(2));
  for (size_t i = 4096; i < 5 * 4096; i += 16) contents[i] = static_cast<char>(~contents[i]);
  WriteWhole(store.ShardPath(2), contents);
  const Finished verify = RunInspect({"--store", store.directory(), "verify", "--read-data=75%"});
  EXPECT_EQ(verify.exit_code, 3);
  EXPECT_THAT(verify.out, AllOf(HasSubstr("\nstep 1: no damage found in the sample"), HasSubstr("\nstep 2: damaged\n"),
                                HasSubstr("restore takes step 1, which was not verified\n")));
  EXPECT_EQ(RunInspect({"--store", store.directory(), "verify", "2", "--read-data=75%"}).exit_code, 13);
}

TEST(Verify, ReadsNoChunkWhereOnlyTheStructureIsAskedFor) {
  TestStore store;
  store.Save({1, 2});
  store.DamageChunk(2);
  const Finished verify = RunInspect({"--store", store.directory(), "verify", "--read-data=0%"});
  EXPECT_EQ(verify.exit_code, 0) << verify.err;
  EXPECT_THAT(verify.out, HasSubstr("step 2: no damage found in the sample, 0 of 16 chunks"));
  store.DamageIndex(1);
  EXPECT_EQ(RunInspect({"--store", store.directory(), "verify", "--read-data=0%"}).exit_code, 3);
}

TEST(Verify, ReadsNoChunkWithinTheSandboxEither) {
  if (storage::kAddressSanitizer) GTEST_SKIP() << storage::kNoSandbox;
  TestStore store;
  store.Save({1, 2});
  store.DamageChunk(2);
  EXPECT_EQ(RunInspect({"--store", store.directory(), "--untrusted", "verify", "2", "--read-data=0%"}).exit_code, 0);
}

TEST(Verify, SaysThatOnlyASampleOfAMarkedStepWasRead) {
  TestStore store;
  store.Save({1, 2});
  const std::string sound = ReadWhole(store.ShardPath(2));
  store.DamageChunk(2);
  store.Restart();
  WriteWhole(store.ShardPath(2), sound);
  const Finished verify = RunInspect({"--store", store.directory(), "verify", "2", "--read-data=10%"});
  EXPECT_EQ(verify.exit_code, 13);
  EXPECT_THAT(verify.out, HasSubstr(", though the sample reads as committed now\n"));
}

TEST(Verify, RefusesAShareThatIsNone) {
  TestStore store;
  store.Save({1});
  for (const char* option : {"--read-data=10", "--read-data=101%", "--read-data=-1%", "--read-data=x", "--seed=-1"}) {
    const Finished verify = RunInspect({"--store", store.directory(), "verify", option});
    EXPECT_EQ(verify.exit_code, 2) << option;
    EXPECT_EQ(verify.out, "");
    EXPECT_NE(verify.err, "");
  }
  // What follows on the option is the step, and not its value.
  EXPECT_EQ(RunInspect({"--store", store.directory(), "verify", "--read-data", "1"}).exit_code, 0);
}

TEST(Verify, SaysThatTheStepThatARestoreTakesIsUnhealthy) {
  TestStore store;
  store.Save({1, 2, 3});
  store.Update(3, [](StepInfo& info) { info.evaluations = {{.evaluator = "v", .unhealthy = "diverged"}}; });
  const std::string text =
      "a restore takes step 3; it is unhealthy (v: diverged), and the latest healthy one is step 2\n";
  EXPECT_THAT(RunInspect({"verify", "--store", store.directory()}).out, HasSubstr(text));
  EXPECT_THAT(RunInspect({"repair", "--store", store.directory()}).out, HasSubstr(text));
  store.DamageChunk(2);
  EXPECT_THAT(RunInspect({"verify", "--store", store.directory()}).out,
              HasSubstr("it is unhealthy (v: diverged), and the latest healthy one is step 1\n"));
}

}  // namespace
}  // namespace tidemark::inspect
