#include "tools/checkpoint_inspect/tensors/entry_selection.h"

#include <regex>

#include "gmock/gmock.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"

namespace tidemark::inspect {
namespace {

using testing::ElementsAre;

std::vector<StoredEntry> Entries(const std::vector<std::string>& names) {
  std::vector<StoredEntry> entries(names.size());
  for (size_t i = 0; i < names.size(); ++i) entries[i].spec.name = names[i];
  return entries;
}

TEST(SelectEntries, TakesThoseThatMatchInTheirOrder) {
  const auto entries = Entries({"model.b.weight", "epoch", "model.a.weight", "model.a.bias"});
  EXPECT_THAT(SelectEntries(entries, "model.*.weight", "here").value(), ElementsAre(0, 2));
  EXPECT_THAT(SelectEntries(entries, "epo?h", "here").value(), ElementsAre(1));
  EXPECT_THAT(SelectEntries(entries, "", "here").value(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(SelectEntries({}, "", "here").value(), ElementsAre());
}

TEST(CheckGlob, RefusesAnEmptyPatternOfEveryCommandThatTakesOne) {
  EXPECT_EQ(CheckGlob("*"), "");
  struct Case {
    std::vector<std::string> command;
    std::string option = "GLOB";
  };
  for (const Case& wrong : {Case{{"tensors", "1", ""}},
                            {{"diff", "1", "2", ""}},
                            {{"export", "1", "", "-o", "out"}},
                            {{"export", "1", "model.*", "", "-o", "out"}},
                            {{"export", "1", "-o", "out", "--include", ""}, "--include"},
                            {{"export", "1", "-o", "out", "--exclude", "*", "--exclude", ""}, "--exclude"}}) {
    SCOPED_TRACE(testing::PrintToString(wrong.command));
    const Finished run = RunInspect(wrong.command);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_EQ(run.err, "checkpoint-inspect: error: " + wrong.option +
                           ": an empty pattern matches no entry; see 'checkpoint-inspect " + wrong.command[0] +
                           " --help'\n");
  }
}

TEST(SelectEntries, NamesTheNearestWhereNothingMatches) {
  const auto entries = Entries({"optimizer.step", "model.layers.0.weight", "model.layers.1.weight",
                                "model.layers.1.weight", "model.layers.0.bias", "epoch"});
  EXPECT_EQ(SelectEntries(entries, "model.layer.*.weights", "step 1 of run").status(),
            absl::NotFoundError("nothing in step 1 of run matches 'model.layer.*.weights'; nearest: "
                                "model.layers.0.weight, model.layers.1.weight, model.layers.0.bias"));
  EXPECT_EQ(SelectEntries({}, "x", "step 1 of run").status(),
            absl::NotFoundError("nothing in step 1 of run matches 'x'; it has no entries"));
}

TEST(NothingMatches, SaysWhichWiderPatternWould) {
  const std::vector<std::string> names = {"model.layers.0.weight", "model.layers.1.weight", "model.layers.1.weight",
                                          "epoch"};
  const auto said = [&](std::string_view glob) { return NothingMatches(glob, names, "step 1"); };
  const std::string whole = "; a GLOB must match the whole name: ";
  EXPECT_EQ(said("layers"), absl::NotFoundError("nothing in step 1 matches 'layers'" + whole + "'*layers*' matches 2"));
  EXPECT_EQ(said("model"), absl::NotFoundError("nothing in step 1 matches 'model'" + whole + "'model.*' matches 2"));
  EXPECT_EQ(said("*.weigh"),
            absl::NotFoundError("nothing in step 1 matches '*.weigh'" + whole + "'*.weigh*' matches 2"));
  EXPECT_EQ(said("layers.?.w*"),
            absl::NotFoundError("nothing in step 1 matches 'layers.?.w*'" + whole + "'*layers.?.w*' matches 2"));
  EXPECT_EQ(said("poch"), absl::NotFoundError("nothing in step 1 matches 'poch'" + whole + "'*poch*' matches 1"));
  EXPECT_EQ(said("epohc"), absl::NotFoundError("nothing in step 1 matches 'epohc'; nearest: epoch, "
                                               "model.layers.0.weight, model.layers.1.weight"));
}

TEST(SelectEntries, IsExplainedWhereverAPatternMayStand) {
  const std::regex gap("\\s+");  // lines are broken where they are full
  for (const auto& [command, places] : {std::pair("tensors", 1), {"diff", 1}, {"export", 3}}) {
    const std::string help = std::regex_replace(RunInspect({command, "--help"}).out, gap, " ");
    EXPECT_EQ(
        Occurrences(help, "matched against the whole name: '*' matches any characters, also dots, '?' matches one"),
        static_cast<size_t>(places))
        << help;
  }
}

TEST(DistanceFromGlob, CountsWhatMustChange) {
  EXPECT_EQ(DistanceFromGlob("weight", "weight"), 0u);
  EXPECT_EQ(DistanceFromGlob("weights", "weight"), 1u);
  EXPECT_EQ(DistanceFromGlob("wieght", "weight"), 2u);
  EXPECT_EQ(DistanceFromGlob("", "abc"), 3u);
  EXPECT_EQ(DistanceFromGlob("abc", ""), 3u);
  EXPECT_EQ(DistanceFromGlob("*", "anything"), 0u);
  EXPECT_EQ(DistanceFromGlob("a*c", "abbbc"), 0u);
  EXPECT_EQ(DistanceFromGlob("a*d", "abbbc"), 1u);
  EXPECT_EQ(DistanceFromGlob("a?c", "abc"), 0u);
  EXPECT_EQ(DistanceFromGlob("a?c", "ac"), 1u);
  EXPECT_EQ(DistanceFromGlob("*.weight", "model.0.bias"), DistanceFromGlob("weight", "bias"));
}

TEST(NearestNames, TakesAFewAndEachOnce) {
  EXPECT_THAT(NearestNames("verfy", std::vector<std::string>{"show", "verify", "vary", "verify", "very", "repair"}),
              ElementsAre("verify", "very", "vary"));
  EXPECT_THAT(NearestNames("x", {}), ElementsAre());
}

TEST(NothingMatches, StaysQuickForLongNames) {
  const std::vector<std::string> names(1000, std::string(4096, 'a'));
  const absl::Status status = NothingMatches(std::string(4096, 'b'), names, "here");
  EXPECT_TRUE(absl::IsNotFound(status));
}

}  // namespace
}  // namespace tidemark::inspect
