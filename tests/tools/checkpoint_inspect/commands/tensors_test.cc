#include <algorithm>
#include <cmath>
#include <sstream>

#include "gmock/gmock.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

Finished ListTensors(const TestStore& store, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"--store", store.directory(), "tensors"});
  return RunInspect(arguments);
}

json TensorsJson(const TestStore& store, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"--store", store.directory(), "tensors"});
  return RunInspectJson(arguments);
}

TEST(Tensors, ListsWhatTheStepHolds) {
  TestStore store;
  store.Save({1});
  const Finished tensors = ListTensors(store, {"latest"});
  EXPECT_EQ(tensors.exit_code, 0) << tensors.err;
  EXPECT_EQ(tensors.err, "");
  EXPECT_EQ(tensors.out,
            "NAME            TYPE     SHAPE         BYTES  RANK  TIED TO\n"
            "model.weight    float32  [5000, 1]  19.5 KiB     0\n"
            "model.bias      float32  [3]            12 B     0\n"
            "epoch           int64    []              8 B     0\n"
            "rate            double   []              8 B     0\n"
            "ended           bool     []              1 B     0\n"
            "text            string   [5]             5 B     0\n"
            "blob            bytes    [2]             2 B     0\n"
            "model.tied      float32  [5000, 1]  19.5 KiB     0\n"
            "model.tied_too  float32  [5000, 1]  19.5 KiB     0  model.tied\n");
}

TEST(Tensors, SortsByNameAndBySize) {
  TestStore store;
  store.Save({1});
  EXPECT_THAT(EntryNames(TensorsJson(store, {"1", "--sort", "name"})),
              ElementsAre("blob", "ended", "epoch", "model.bias", "model.tied", "model.tied_too", "model.weight",
                          "rate", "text"));
  EXPECT_THAT(EntryNames(TensorsJson(store, {"1", "--sort", "size"})),
              ElementsAre("model.weight", "model.tied", "model.tied_too", "model.bias", "epoch", "rate", "text", "blob",
                          "ended"));
}

TEST(Tensors, TakesThoseThatTheGlobMatches) {
  TestStore store;
  store.Save({1});
  EXPECT_THAT(EntryNames(TensorsJson(store, {"1", "model.tied*"})), ElementsAre("model.tied", "model.tied_too"));
  const Finished none = ListTensors(store, {"1", "model.weights"});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_EQ(none.out, "");
  EXPECT_EQ(none.err, "checkpoint-inspect: error: nothing in step 1 of " + store.directory() +
                          " matches 'model.weights'; nearest: model.weight, model.bias, model.tied\n");
}

TEST(Tensors, GivesEveryFieldAsJson) {
  TestStore store;
  store.Save({1});
  json document = TensorsJson(store, {"1", "model.bias", "--stats"});
  EXPECT_EQ(document["schema_version"], 2);
  EXPECT_EQ(document["store"]["directory"], store.directory());
  EXPECT_EQ(document["step"], 1);
  EXPECT_THAT(document["attempt"].get<std::string>(), SizeIs(32));
  ASSERT_THAT(document["entries"], SizeIs(1));
  json& entry = document["entries"][0];
  EXPECT_THAT(entry["digest"].get<std::string>(), SizeIs(32));
  for (const char* measured : {"digest", "stored_bytes"}) entry.erase(measured);
  EXPECT_EQ(entry, ParseJson(R"({"name": "model.bias", "kind": "tensor", "dtype": "float32", "shape": [3],
                                   "box": null, "bytes": 12, "reused_bytes": 0, "rank": 0, "tied_to": null,
                                   "statistics": {"numbers": 3, "min": 1.0, "max": 1.0, "mean": 1.0,
                                                  "standard_deviation": 0.0, "norm": 1.7320508075688772,
                                                  "zeros": 0, "nan": 0, "inf": 0}})"));
  EXPECT_FALSE(TensorsJson(store, {"1", "model.bias"})["entries"][0].contains("statistics"));
}

TEST(Tensors, KnowsTheStatisticsOfEveryKindOfEntry) {
  TestStore store;
  auto checkpointer = store.OpenCheckpointer();
  // Three chunks and a piece of one.
  std::vector<float> weight(3500);
  double squares = 0;
  for (size_t i = 0; i < weight.size(); ++i) {
    weight[i] = static_cast<float>(i) - 100;
    squares += double{weight[i]} * weight[i];
  }
  weight[7] = NAN;
  squares -= 93 * 93;
  std::vector<float> broken = {NAN, INFINITY};
  std::vector<int64_t> far = {(int64_t{1} << 62) + 1, -(int64_t{1} << 62) - 1};
  std::vector<float> empty;
  std::string text = "hello";
  bool ended = true;
  State state;
  state.AddTensor("weight", Dtype::kFloat32, {3500}, weight.data());
  state.AddTensor("broken", Dtype::kFloat32, {2}, broken.data());
  state.AddTensor("far", Dtype::kInt64, {2}, far.data());
  state.AddTensor("empty", Dtype::kFloat32, {0, 4}, weight.data());
  state.AddTensor("bits", Dtype::kBits8, {8}, far.data());
  state.AddValue("text", &text);
  state.AddValue("ended", &ended);
  ASSERT_TRUE(checkpointer->Save(1, state).ok());
  ASSERT_TRUE(checkpointer->Close().ok());
  const json document = TensorsJson(store, {"1", "--stats"});
  ASSERT_THAT(document["entries"], SizeIs(7));
  json statistics;
  for (const json& entry : document["entries"]) statistics[entry["name"].get<std::string>()] = entry["statistics"];
  EXPECT_EQ(statistics["weight"]["numbers"], 3500);
  EXPECT_EQ(statistics["weight"]["nan"], 1);
  EXPECT_EQ(statistics["weight"]["zeros"], 1);
  EXPECT_EQ(statistics["weight"]["max"], 3399.0);
  EXPECT_NEAR(statistics["weight"]["norm"].get<double>(), std::sqrt(squares), 1e-9);
  EXPECT_EQ(statistics["broken"], ParseJson(R"({"numbers": 2, "min": null, "max": null, "mean": null,
                                                  "standard_deviation": null, "norm": null, "zeros": 0, "nan": 1,
                                                  "inf": 1})"));
  EXPECT_EQ(statistics["far"]["max"], far[0]);
  EXPECT_EQ(statistics["far"]["min"], far[1]);
  EXPECT_EQ(statistics["empty"]["numbers"], 0);
  EXPECT_EQ(statistics["bits"], nullptr);
  EXPECT_EQ(statistics["text"], nullptr);
  EXPECT_EQ(statistics["ended"]["mean"], 1.0);
  const Finished table = ListTensors(store, {"1", "--stats", "[bf]*"});
  EXPECT_EQ(table.exit_code, 1) << "brackets stand for themselves";
  EXPECT_THAT(ListTensors(store, {"1", "--stats", "broken"}).out,
              EndsWith("\nbroken  float32  [2]      8 B     0    -    -     -    -     -      0    1    1\n"));
  EXPECT_THAT(ListTensors(store, {"1", "--stats", "far"}).out, HasSubstr("-4611686018427387905  4611686018427387905"));
}

TEST(Tensors, SumsUpATree) {
  TestStore store;
  store.Save({1});
  const Finished tree = ListTensors(store, {"1", "--tree", "model.*"});
  EXPECT_EQ(tree.exit_code, 0) << tree.err;
  EXPECT_EQ(tree.out,
            "NAME          TYPE     SHAPE      ENTRIES     BYTES\n"
            "(all)                                   4  39.1 KiB\n"
            "  model                                 4  39.1 KiB\n"
            "    weight    float32  [5000, 1]        1  19.5 KiB\n"
            "    bias      float32  [3]              1      12 B\n"
            "    tied      float32  [5000, 1]        1  19.5 KiB\n"
            "    tied_too  float32  [5000, 1]        1       0 B\n"
            "      tied to model.tied\n");
  const json document = TensorsJson(store, {"1", "--tree", "--stats", "--sort", "name"});
  EXPECT_FALSE(document.contains("entries"));
  const json& nodes = document["tree"];
  ASSERT_THAT(nodes, SizeIs(11));
  EXPECT_EQ(nodes[0]["path"], "");
  EXPECT_EQ(nodes[0]["entries"], 9);
  EXPECT_EQ(nodes[0]["entry"], nullptr);
  EXPECT_EQ(nodes[1]["path"], "blob");
  EXPECT_EQ(nodes[1]["statistics"], nullptr);
  EXPECT_EQ(nodes[4]["path"], "model");
  EXPECT_EQ(nodes[4]["statistics"]["numbers"], 10003);
  EXPECT_EQ(nodes[5]["path"], "model.bias");
  EXPECT_EQ(nodes[5]["depth"], 2);
  EXPECT_EQ(nodes[5]["bytes"], 12);
  EXPECT_EQ(nodes[5]["entry"]["dtype"], "float32");
  // One of the tied ones stands for both, whichever was asked for.
  EXPECT_EQ(TensorsJson(store, {"1", "--tree", "model.tied_too"})["tree"][0]["bytes"], 20000);
}

TEST(Tensors, SaysThatATensorIsDamaged) {
  TestStore store;
  store.Save({1});
  store.DamageChunk(1);
  EXPECT_EQ(ListTensors(store, {"1"}).exit_code, 0);
  const Finished tensors = ListTensors(store, {"1", "--stats"});
  EXPECT_EQ(tensors.exit_code, 13);
  EXPECT_EQ(tensors.out, "");
  EXPECT_THAT(tensors.err, AllOf(HasSubstr(store.ShardPath(1)), HasSubstr("model.weight"),
                                 EndsWith("; 'verify 1' lists what is damaged\n")));
}

TEST(Tensors, SaysWhyAStepHasNone) {
  TestStore store;
  store.Save({1, 2, 3});
  store.Delete(1, "not among the latest 2");
  store.SaveInVain(4);
  store.RemoveShard(3);
  const Finished deleted = ListTensors(store, {"1"});
  EXPECT_EQ(deleted.exit_code, 1);
  EXPECT_THAT(deleted.err, HasSubstr("step 1 was deleted: not among the latest 2"));
  const Finished failed = ListTensors(store, {"4"});
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_THAT(failed.err, HasSubstr("step 4 was never committed: "));
  EXPECT_EQ(ListTensors(store, {"3"}).exit_code, 13);
  const Finished absent = ListTensors(store, {"7"});
  EXPECT_EQ(absent.exit_code, 1);
  EXPECT_THAT(absent.err, HasSubstr("nearest: 3\n"));
  TestStore empty;
  empty.Save({});
  EXPECT_EQ(ListTensors(empty, {"latest"}).exit_code, 12);
}

TEST(Tensors, ShowsHowFarItIsOnATerminalAlone) {
  TestStore store;
  store.Save({1});
  const Finished piped = ListTensors(store, {"1", "--stats"});
  EXPECT_EQ(piped.err, "");
  const Finished terminal = RunInspect({"--store", store.directory(), "tensors", "1", "--stats"}, {.terminal = true});
  EXPECT_THAT(terminal.out, AllOf(HasSubstr("model.weight: "), HasSubstr("%), "), HasSubstr("/s, ")));
}

TEST(Tensors, ShowsHowFarItIsOnOneLineHoweverNarrowTheTerminal) {
  TestStore store;
  std::vector<float> weight(5000, 1);
  State state;
  state.AddTensor("transformer.layers.12.attention.query.weight", Dtype::kFloat32, {5000}, weight.data());
  const auto checkpointer = store.OpenCheckpointer();
  ASSERT_TRUE(checkpointer->Save(1, state).ok());
  ASSERT_TRUE(checkpointer->Close().ok());
  // A terminal that does not know how wide it is has 80 columns.
  for (const uint16_t columns : {40, 60, 0, 200}) {
    SCOPED_TRACE(columns);
    const Finished stats = RunInspect({"--store", store.directory(), "tensors", "1", "--stats"},
                                      {.terminal = true, .terminal_columns = columns});
    EXPECT_EQ(stats.exit_code, 0) << stats.out;
    std::string out = stats.out;
    std::replace(out.begin(), out.end(), '\n', '\r');
    std::istringstream written(out);
    size_t lines = 0;
    for (std::string line; std::getline(written, line, '\r');) {
      if (line.find(" left") == std::string::npos) continue;
      ++lines;
      EXPECT_LT(DisplayWidth(line), columns == 0 ? 80 : columns) << line;
      EXPECT_THAT(line, AllOf(HasSubstr("%"), HasSubstr("/s, ")));
    }
    EXPECT_GE(lines, 1) << stats.out;
  }
}

TEST(Tensors, ReadsTheSameOfAStoreThatIsNotTrusted) {
  if (storage::kAddressSanitizer) GTEST_SKIP() << storage::kNoSandbox;
  TestStore store;
  store.Save({1});
  EXPECT_EQ(TensorsJson(store, {"1", "--stats", "--untrusted"}), TensorsJson(store, {"1", "--stats"}));
}

}  // namespace
}  // namespace tidemark::inspect
