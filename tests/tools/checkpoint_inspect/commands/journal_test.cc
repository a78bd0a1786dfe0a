#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class JournalTest : public testing::Test {
 protected:
  JournalTest() { store_.Save({7}, {.metrics = {{"loss", 0.5}}}, 5000, absl::FromUnixSeconds(1'700'000'000)); }

  Finished Dump(std::vector<std::string> arguments = {}) {
    arguments.insert(arguments.begin(), {"--store", store_.directory(), "journal"});
    return RunInspect(arguments);
  }

  // The lines of JSON.
  std::vector<json> DumpJson(std::vector<std::string> arguments = {}) {
    arguments.insert(arguments.begin(), "--json");
    const std::string out = Dump(std::move(arguments)).out;
    std::vector<json> lines;
    for (size_t begin = 0; begin < out.size();) {
      const size_t end = out.find('\n', begin);
      lines.push_back(ParseJson(out.substr(begin, end - begin), nullptr, /*allow_exceptions=*/false));
      begin = end + 1;
    }
    return lines;
  }

  // The facts of this name in the lines.
  static std::vector<json> FactsOf(const std::vector<json>& lines, const std::string& name) {
    std::vector<json> found;
    for (size_t i = 1; i < lines.size(); ++i) {
      for (const json& fact : lines[i]["facts"]) {
        if (fact["fact"] == name) found.push_back(fact);
      }
    }
    return found;
  }

  TestStore store_;
};

TEST_F(JournalTest, PrintsEveryEntryAndItsFactsFieldByField) {
  const Finished dump = Dump();
  EXPECT_EQ(dump.exit_code, 0);
  EXPECT_EQ(dump.err, "");
  EXPECT_THAT(dump.out, StartsWith("entry 1, epoch 1, which begins here\n"));
  EXPECT_THAT(dump.out, ContainsRegex("\nentry 2, epoch 1\n  step of step 7\n    attempt: \"[0-9a-f]{32}\"\n"
                                      "    state: \"committed\"\n    sequence: 1\n"
                                      "    created: \"2023-11-14T22:13:20Z\"\n    metrics: \\{\"loss\":0\\.5\\}\n"));
  EXPECT_THAT(dump.out, ContainsRegex("\n    shards_digest: \"[0-9a-f]{32}\"\n"));
  EXPECT_THAT(dump.out, HasSubstr("\n  phases of step 7\n"));
}

TEST_F(JournalTest, PrintsALineOfJsonForEachEntry) {
  const std::vector<json> lines = DumpJson();
  ASSERT_EQ(lines.size(), 1 + store_.LastEntry());
  EXPECT_EQ(lines[0]["schema_version"], 2);
  EXPECT_EQ(lines[0]["store"]["directory"], store_.directory());
  EXPECT_EQ(lines[1]["entry"], 1);
  EXPECT_EQ(lines[1]["epoch"], 1);
  EXPECT_EQ(lines[1]["begins_epoch"], true);
  ASSERT_EQ(lines[1]["facts"].size(), 1u);
  EXPECT_EQ(lines[1]["facts"][0]["fact"], "store");
  EXPECT_EQ(lines[1]["facts"][0]["store"], lines[0]["store"]["id"]);
  EXPECT_EQ(lines[2]["begins_epoch"], false);
  EXPECT_EQ(lines[2]["counts"], true);
  EXPECT_EQ(lines[2]["facts"][0]["fact"], "step");
  EXPECT_EQ(lines[2]["facts"][0]["record"]["metrics"]["loss"], 0.5);
  EXPECT_EQ(lines[2]["facts"][0]["attempt"], store_.Info(7).attempt);
}

TEST_F(JournalTest, ShowsWhatWorkersAndCommandsHaveAppended) {
  store_.Deliver(7, {.evaluator = "validation", .worker = "pid 7 on node-3", .metrics = {{"loss", 0.25}}});
  ASSERT_EQ(RunInspect({"--store", store_.directory(), "tag", "7", "paper"}).exit_code, 0);
  store_.RecordBestModes({{"loss", BestMode::kLowest}});
  store_.Save({8, 9});
  store_.Delete(8, "by hand");
  const std::vector<json> lines = DumpJson();
  const json evaluation = FactsOf(lines, "evaluation").at(0);
  EXPECT_EQ(evaluation["step"], 7);
  EXPECT_EQ(evaluation["evaluation"]["worker"], "pid 7 on node-3");
  const json pin = FactsOf(lines, "pin").at(0);
  EXPECT_EQ(pin["pinned"], true);
  EXPECT_EQ(pin["tags"], json::array({"paper"}));
  EXPECT_EQ(FactsOf(lines, "best_modes").at(0)["modes"], json({{"loss", "lowest"}}));
  const json state = FactsOf(lines, "state").at(0);
  EXPECT_EQ(state["state"], "deleted");
  EXPECT_EQ(state["reason"], "by hand");
  EXPECT_THAT(Dump().out, HasSubstr(", a worker or a command\n  evaluation of step 7\n"));
}

TEST_F(JournalTest, PrintsOnlyWhatIsAskedFor) {
  store_.Save({8});
  const std::string last = std::to_string(store_.LastEntry());
  EXPECT_THAT(Dump({"--from", last}).out, StartsWith("entry " + last + ","));
  for (const json& fact : FactsOf(DumpJson({"--step", "8"}), "step")) EXPECT_EQ(fact["step"], 8);
  EXPECT_THAT(Dump({"--step", "8"}).out, AllOf(HasSubstr("step of step 8\n"), Not(HasSubstr("of step 7"))));
  const Finished nothing = Dump({"--step", "9"});
  EXPECT_EQ(nothing.exit_code, 1);
  EXPECT_EQ(nothing.out, "");
  EXPECT_EQ(nothing.err, "checkpoint-inspect: error: no entry has a fact of step 9\n");
  EXPECT_EQ(Dump({"--from", "1000"}).err, "checkpoint-inspect: error: there is no entry from 1000 on\n");
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"--step", "-1"}, {"--step", "x"}, {"--from", "0"}}) {
    EXPECT_EQ(Dump(wrong).exit_code, 2) << wrong[0] << " " << wrong[1];
  }
}

TEST_F(JournalTest, ShowsTheBytesOfWhatCannotBeDecoded) {
  store_.AppendFact("\x01\x01\x1b");
  const Finished dump = Dump({"--from", std::to_string(store_.LastEntry())});
  EXPECT_EQ(dump.exit_code, 3);
  EXPECT_THAT(dump.out, ContainsRegex("\n  cannot be decoded: [^\n]+\n    bytes: 01011b\n"));
  EXPECT_THAT(dump.err, HasSubstr("1 fact cannot be decoded\n"));
  const std::vector<json> lines = DumpJson();
  EXPECT_EQ(lines.back()["facts"][0]["fact"], nullptr);
  EXPECT_EQ(lines.back()["facts"][0]["bytes"], "01011b");
  EXPECT_EQ(lines[2]["facts"][0]["fact"], "step") << "one does not hide the others";
  EXPECT_THAT(Dump({"--step", "7"}).out, HasSubstr("bytes: 01011b\n")) << "it may be of that step";
}

TEST_F(JournalTest, PrintsWhatStandsBeforeAnEntryThatIsDamaged) {
  store_.Save({8, 9, 10});
  const uint64_t damaged = store_.LastEntry();
  std::string bytes = ReadWhole(store_.EntryPath(damaged));
  bytes[bytes.size() / 2] ^= 1;
  WriteWhole(store_.EntryPath(damaged), bytes);
  const Finished dump = Dump();
  EXPECT_EQ(dump.exit_code, 13);
  EXPECT_THAT(dump.out, AllOf(HasSubstr("step of step 7\n"), HasSubstr("step of step 8\n")));
  EXPECT_THAT(dump.err, AllOf(HasSubstr("warning: the journal cannot be read"),
                              HasSubstr("journal entry " + std::to_string(damaged))));
}

TEST_F(JournalTest, ChangesNothing) {
  const auto before = store_.Listing();
  EXPECT_EQ(Dump().exit_code, 0);
  EXPECT_EQ(store_.Listing(), before);
}

TEST_F(JournalTest, StandsBesideALiveTrainer) {
  const auto checkpointer = store_.OpenCheckpointer();
  TestState state(5000);
  ASSERT_TRUE(checkpointer->Save(8, state).ok());
  ASSERT_TRUE(checkpointer->WaitUntilCommitted().ok());
  EXPECT_THAT(Dump({"--step", "8"}).out, HasSubstr("\n  step of step 8\n"));
}

TEST_F(JournalTest, IsReadInTheSandboxAsWell) {
  if (storage::kAddressSanitizer) GTEST_SKIP() << storage::kNoSandbox;
  const Finished trusted = Dump();
  const Finished untrusted = Dump({"--untrusted"});
  EXPECT_EQ(untrusted.exit_code, 0) << untrusted.err;
  EXPECT_EQ(untrusted.out, trusted.out);
}

TEST_F(JournalTest, IsNamedByTheErrorOfItsOldName) {
  const Finished before = RunInspect({"--store", store_.directory(), "manifest", "dump"});
  EXPECT_EQ(before.exit_code, 2);
  EXPECT_THAT(before.err, HasSubstr("unknown command 'manifest'; did you mean 'journal'?"));
}

TEST_F(JournalTest, SaysWhyThereIsNothingToPrint) {
  store_.MakeJournalNewer();
  EXPECT_EQ(Dump().exit_code, 14);
  TestStore none;
  const Finished no_store = RunInspect({"--store", none.directory(), "journal"});
  EXPECT_EQ(no_store.exit_code, 10);
  EXPECT_THAT(no_store.err, HasSubstr("is not a Tidemark store"));
}

}  // namespace
}  // namespace tidemark::inspect
