#include <cmath>

#include "gmock/gmock.h"
#include "snapshot/exchange/safetensors_header.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

Finished Diff(const TestStore& store, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"--store", store.directory(), "diff"});
  return RunInspect(arguments);
}

json DiffJson(const TestStore& store, std::vector<std::string> arguments, int exit_code) {
  arguments.insert(arguments.begin(), {"--store", store.directory(), "diff"});
  return RunInspectJson(arguments, exit_code);
}

void Commit(const TestStore& store, int64_t step, State& state) {
  auto checkpointer = store.OpenCheckpointer();
  ASSERT_TRUE(checkpointer->Save(step, state).ok());
  const absl::Status closed = checkpointer->Close();
  ASSERT_TRUE(closed.ok()) << closed;
}

// Steps 1 and 2, between which everything happens that can.
class DiffTwoSteps : public testing::Test {
 protected:
  void SetUp() override {
    std::vector<float> steady = {1, 2};
    std::vector<float> weight = {3, 4, 0, 0};
    std::vector<float> bias = {1, 1};
    std::vector<float> narrowed = {1, -2};
    std::vector<float> broken = {1, 1};
    std::string text = "before";
    {
      State state;
      state.AddTensor("steady", Dtype::kFloat32, {2}, steady.data());
      state.AddTensor("weight", Dtype::kFloat32, {2, 2}, weight.data());
      state.AddTensor("bias", Dtype::kFloat32, {2}, bias.data());
      state.AddTensor("narrowed", Dtype::kFloat32, {2}, narrowed.data());
      state.AddTensor("reshaped", Dtype::kFloat32, {2}, steady.data());
      state.AddTensor("broken", Dtype::kFloat32, {2}, broken.data());
      state.AddTensor("gone", Dtype::kFloat32, {2}, steady.data());
      state.AddValue("text", &text);
      Commit(store, 1, state);
    }
    weight = {3, 4, 5, 0};
    bias = {1, 1.5};
    broken = {1, NAN};
    text = "behind";
    uint16_t narrow[] = {0x3f80, 0xc000};
    State state;
    state.AddTensor("steady", Dtype::kFloat32, {2}, steady.data());
    state.AddTensor("weight", Dtype::kFloat32, {2, 2}, weight.data());
    state.AddTensor("bias", Dtype::kFloat32, {2}, bias.data());
    state.AddTensor("narrowed", Dtype::kBfloat16, {2}, narrow);
    state.AddTensor("reshaped", Dtype::kFloat32, {1, 2}, steady.data());
    state.AddTensor("broken", Dtype::kFloat32, {2}, broken.data());
    state.AddValue("text", &text);
    state.AddTensor("new", Dtype::kFloat32, {2}, steady.data());
    Commit(store, 2, state);
  }

  TestStore store;
};

TEST_F(DiffTwoSteps, TellsTheLargestChangeFirst) {
  const Finished diff = Diff(store, {"1", "2"});
  EXPECT_EQ(diff.exit_code, 1);
  EXPECT_EQ(diff.err, "");
  EXPECT_EQ(diff.out, "A: step 1 of " + store.directory() + "\nB: step 2 of " + store.directory() +
                          "\n"
                          "   NAME      TYPE                 SHAPE            CHANGE      COSINE  LARGEST  AT\n"
                          "-  gone      float32              [2]\n"
                          "+  new       float32              [2]\n"
                          "~  reshaped  float32              [2] -> [1, 2]\n"
                          "~  text      string               [6]\n"
                          "~  broken    float32              [2]                   0  1.00000000        0  -\n"
                          "  1 of 2 numbers are NaN or infinite in A or B alone\n"
                          "~  weight    float32              [2, 2]                1  0.70710678        5  [1, 0]\n"
                          "~  bias      float32              [2]            0.353553  0.98058068      0.5  [1]\n"
                          "~  narrowed  float32 -> bfloat16  [2]                   0  1.00000000        0  -\n"
                          "6 changed, 1 added, 1 removed, 1 same\n");
}

TEST_F(DiffTwoSteps, SortsByNameIfAskedTo) {
  EXPECT_THAT(EntryNames(DiffJson(store, {"1", "2", "--sort", "name"}, 1)),
              ElementsAre("bias", "broken", "gone", "narrowed", "new", "reshaped", "text", "weight"));
}

TEST_F(DiffTwoSteps, GivesEveryFieldAsJson) {
  const json document = DiffJson(store, {"1", "2"}, 1);
  EXPECT_EQ(document["schema_version"], 2);
  EXPECT_EQ(document["a"]["name"], "step 1 of " + store.directory());
  EXPECT_EQ(document["a"]["store"]["directory"], store.directory());
  EXPECT_EQ(document["a"]["step"], 1);
  EXPECT_THAT(document["b"]["attempt"].get<std::string>(), SizeIs(32));
  EXPECT_EQ(document["structure_only"], false);
  EXPECT_EQ(document["counts"],
            ParseJson(R"({"changed": 6, "added": 1, "removed": 1, "held_differently": 0, "same": 1})"));
  ASSERT_THAT(document["entries"], SizeIs(8));
  const json& gone = document["entries"][0];
  EXPECT_EQ(gone["difference"], "removed");
  EXPECT_EQ(gone["differs_in"], json::array());
  EXPECT_EQ(gone["a"][0]["name"], "gone");
  EXPECT_EQ(gone["b"], json::array());
  EXPECT_EQ(gone["change"], nullptr);
  EXPECT_EQ(document["entries"][2]["differs_in"], json({"shape"}));
  EXPECT_EQ(document["entries"][3]["differs_in"], json({"bytes"}));
  const json& weight = document["entries"][5];
  EXPECT_EQ(weight["difference"], "changed");
  EXPECT_EQ(weight["a"][0]["dtype"], "float32");
  json change = weight["change"];
  EXPECT_NEAR(change["cosine"].get<double>(), std::sqrt(0.5), 1e-15);
  change.erase("cosine");
  EXPECT_EQ(change, ParseJson(R"({"relative": 1.0, "norm": 5.0, "largest": 5.0, "largest_at": [1, 0], "numbers": 4,
                                    "not_finite": 0})"));
  EXPECT_EQ(document["entries"][4]["change"]["not_finite"], 1);
  EXPECT_EQ(document["entries"][7]["differs_in"], json({"dtype"}));
}

TEST_F(DiffTwoSteps, ComparesWhatTheGlobMatches) {
  const Finished same = Diff(store, {"1", "2", "steady"});
  EXPECT_EQ(same.exit_code, 0);
  EXPECT_THAT(same.out, EndsWith("\n0 changed, 0 added, 0 removed, 1 same\n"));
  EXPECT_THAT(EntryNames(DiffJson(store, {"1", "2", "n*"}, 1)), ElementsAre("new", "narrowed"));
  const Finished none = Diff(store, {"1", "2", "wight"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_EQ(none.out, "");
  EXPECT_THAT(none.err, HasSubstr("matches 'wight'; nearest: weight, "));
}

TEST_F(DiffTwoSteps, ReadsNoTensorForTheStructure) {
  const Finished diff = Diff(store, {"1", "2", "--structure-only"});
  EXPECT_EQ(diff.exit_code, 1);
  EXPECT_THAT(diff.out,
              AllOf(HasSubstr("~  narrowed  float32 -> bfloat16  [2]\n"), Not(HasSubstr("weight")),
                    Not(HasSubstr("CHANGE")), EndsWith("2 changed, 1 added, 1 removed, 5 same; no tensor was read\n")));
  EXPECT_EQ(Diff(store, {"1", "2", "w*", "--structure-only"}).exit_code, 0);
  EXPECT_EQ(DiffJson(store, {"1", "2", "--structure-only"}, 1)["structure_only"], true);
}

// Steps 1 and 2 of a tensor that no codec makes much smaller, of which the last number changes.
void CommitLargeSteps(const TestStore& store) {
  std::vector<float> weight(5000);
  uint32_t random = 1;
  for (float& value : weight) value = static_cast<float>(random = random * 1664525 + 1013904223) / 4e9F;
  State state;
  state.AddTensor("weight", Dtype::kFloat32, {5000}, weight.data());
  Commit(store, 1, state);
  weight[4999] += 2;
  Commit(store, 2, state);
}

TEST(Diff, SaysWhatIsDamagedWhereItIsRead) {
  TestStore store;
  CommitLargeSteps(store);
  store.DamageChunk(2);
  const Finished diff = Diff(store, {"1", "2"});
  EXPECT_EQ(diff.exit_code, 2);
  EXPECT_EQ(diff.out, "");
  EXPECT_THAT(diff.err, AllOf(HasSubstr(store.ShardPath(2)), HasSubstr("'weight'"),
                              EndsWith("; 'verify 2' lists what is damaged\n")));
  // Which is not a step of the store that the command line names.
  const Finished elsewhere = Diff(store, {"1", store.directory() + "@2"});
  EXPECT_EQ(elsewhere.exit_code, 2);
  EXPECT_THAT(elsewhere.err, EndsWith("; '--store " + store.directory() + " verify 2' lists what is damaged\n"));
  EXPECT_EQ(Diff(store, {"1", "2", "--structure-only"}).exit_code, 0);
}

TEST(Diff, ReadsNothingThatHasTheSameDigest) {
  TestStore store;
  store.Save({1, 2});
  // Would be found if it were read.
  for (const int64_t step : {1, 2}) store.DamageChunk(step);
  const Finished diff = Diff(store, {"1", "latest"});
  EXPECT_EQ(diff.exit_code, 0) << diff.err;
  EXPECT_THAT(diff.out, EndsWith("\n0 changed, 0 added, 0 removed, 9 same\n"));
  EXPECT_EQ(DiffJson(store, {"1", "2"}, 0)["entries"], json::array());
}

TEST(Diff, ComparesStores) {
  TestStore store, other;
  store.Save({1}, {}, 5000);
  other.Save({3, 4}, {}, 4999);
  const std::string there = other.directory() + "@latest";
  const json document = DiffJson(store, {"1", there, "model.weight"}, 1);
  EXPECT_EQ(document["a"]["store"]["directory"], store.directory());
  EXPECT_EQ(document["b"]["store"]["directory"], other.directory());
  EXPECT_EQ(document["b"]["step"], 4);
  EXPECT_EQ(document["entries"][0]["differs_in"], json({"shape"}));
  // Needs no store of its own.
  const Finished both = RunInspect({"diff", there, other.directory() + "@3"}, {.directory = "/"});
  EXPECT_EQ(both.exit_code, 0) << both.err;
}

TEST(Diff, ComparesAStepWithASafetensorsFile) {
  TestStore store;
  CommitLargeSteps(store);
  const std::string path = store.directory() + "/model.safetensors";
  SafetensorsHeader header;
  header.tensors = {{"weight", Dtype::kFloat32, {5000}, 0, 20000}};
  WriteWhole(path, EncodeSafetensorsHeader(header).value() + std::string(20000, '\0'));
  const json document = DiffJson(store, {path, "1"}, 1);
  EXPECT_EQ(document["a"], (json{{"name", path}, {"store", nullptr}, {"step", nullptr}, {"attempt", nullptr}}));
  ASSERT_THAT(document["entries"], SizeIs(1));
  EXPECT_EQ(document["entries"][0]["change"]["relative"], "Infinity");
  EXPECT_EQ(document["entries"][0]["change"]["cosine"], nullptr);
  EXPECT_EQ(document["entries"][0]["a"][0]["digest"], "");
  // Nobody knows before it is read that it is the same; and no store is needed.
  EXPECT_EQ(RunInspect({"diff", path, path}, {.directory = "/"}).exit_code, 0);
  WriteWhole(path, "no such file");
  const Finished broken = Diff(store, {path, "1"});
  EXPECT_EQ(broken.exit_code, 2);
  EXPECT_THAT(broken.err, HasSubstr(path));
}

TEST(Diff, EndsWithTroubleForWhateverIsWrong) {
  TestStore store;
  store.Save({1});
  const std::string absent = store.directory() + "/absent";
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"1"},
                                                    {"1", "newest"},
                                                    {"1", "7"},
                                                    {"7", "1"},
                                                    {"1", absent + "@1"},
                                                    {absent + "@1", "1"},
                                                    {"1", absent + ".safetensors"},
                                                    {"1", "1", "--sort", "size"},
                                                    {"1", "best:loss"}}) {
    SCOPED_TRACE(testing::PrintToString(arguments));
    const Finished diff = Diff(store, arguments);
    EXPECT_EQ(diff.exit_code, 2);
    EXPECT_EQ(diff.out, "");
    EXPECT_NE(diff.err, "");
  }
  EXPECT_EQ(RunInspect({"--store", absent, "diff", "1", "1"}).exit_code, 2);
  EXPECT_EQ(RunInspect({"--store", store.directory(), "diff", "1", "1"}, {.out_path = "/dev/full"}).exit_code, 2);
}

TEST(Diff, WarnsOfAJournalThatCannotBeReadAndComparesAllTheSame) {
  TestStore store;
  store.Save({1, 2});
  store.DamageJournal();
  const Finished diff = Diff(store, {"1", "2"});
  EXPECT_EQ(diff.exit_code, 0);
  EXPECT_THAT(diff.err, StartsWith("checkpoint-inspect: warning: the journal cannot be read"));
  EXPECT_THAT(DiffJson(store, {"1", "2"}, 0)["a"]["store"]["journal_problem"].get<std::string>(),
              HasSubstr("/journal"));
}

TEST(Diff, ReadsTheStoreAloneWhereItIsNotTrusted) {
  if (storage::kAddressSanitizer) GTEST_SKIP() << storage::kNoSandbox;
  TestStore store;
  store.Save({1}, {}, 100);
  store.Save({2}, {}, 101);
  EXPECT_EQ(DiffJson(store, {"1", "2", "--untrusted"}, 1), DiffJson(store, {"1", "2"}, 1));
  for (const std::string& elsewhere : {store.directory() + "@1", std::string("model.safetensors")}) {
    const Finished diff = Diff(store, {"1", elsewhere, "--untrusted"});
    EXPECT_EQ(diff.exit_code, 2);
    EXPECT_THAT(diff.err, HasSubstr("--untrusted reads only the store"));
  }
}

TEST(Diff, ShowsColourAndProgressOnATerminal) {
  TestStore store;
  CommitLargeSteps(store);
  const Finished diff = RunInspect({"--store", store.directory(), "diff", "1", "2"}, {.terminal = true});
  EXPECT_EQ(diff.exit_code, 1);
  EXPECT_THAT(diff.out,
              AllOf(HasSubstr("\x1b[33m~\x1b[0m"), HasSubstr("weight: "), HasSubstr("%)"), HasSubstr("[4999]")));
}

TEST(Diff, ExplainsItsColumns) {
  const std::string help = RunInspect({"diff", "--help"}).out;
  for (const char* column : {"CHANGE", "COSINE", "LARGEST", "AT"}) {
    EXPECT_THAT(help, HasSubstr(std::string("\n  ") + column + "  ")) << column;
  }
}

}  // namespace
}  // namespace tidemark::inspect
