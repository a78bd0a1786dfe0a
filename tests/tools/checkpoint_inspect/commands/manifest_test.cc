#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;

class ManifestTest : public testing::Test {
 protected:
  ManifestTest() { store_.Save({7}, {.metrics = {{"loss", 0.5}}}, 5000, absl::FromUnixSeconds(1'700'000'000)); }

  Finished Dump(std::vector<std::string> arguments = {}) {
    arguments.insert(arguments.begin(), {"--store", store_.directory(), "manifest", "dump"});
    return RunInspect(arguments);
  }

  TestStore store_;
};

TEST_F(ManifestTest, PrintsEveryRecordFieldByField) {
  const Finished dump = Dump();
  EXPECT_EQ(dump.exit_code, 0);
  EXPECT_EQ(dump.err, "");
  const std::string id = "\"[0-9a-f]{32}\"";
  EXPECT_THAT(dump.out,
              MatchesRegex("committed/7\n"
                           "metric/loss/0\\.5/7\n"
                           "phases/7\n  attempt: " +
                           id +
                           "\n  lanes: \\[[^\n]+\\]\n  version: 1\n"
                           "settled\n  changed_unix_ns: [0-9]+\n  files: \"[^\n]+\"\n  inode: [0-9]+\n  links: [0-9]+\n"
                           "  modified_unix_ns: [0-9]+\n  tags: true\n  version: 1\n"
                           "step/7\n  attempt: " +
                           id +
                           "\n  blocked_ns: [0-9]+\n  created_unix_ns: 1700000000000000000\n"
                           "  entry_count: 9\n  evaluations: \\[\\]\n  kept: \"\"\n  logical_bytes: 40036\n"
                           "  metrics: \\{\"loss\":0\\.5\\}\n  pin_note: \"\"\n  pinned: false\n  reason: \"\"\n"
                           "  references: \\[\\]\n  reused_bytes: 0\n  sequence: 1\n  shards: \\[[^\n]+\\]\n"
                           "  state: \"committed\"\n  step: 7\n  stored_bytes: [0-9]+\n  user_metadata: \"\\{\\}\"\n"
                           "  version: 2\n  world_size: 1\n"
                           "store\n  sequence: 1\n  store_id: " +
                           id + "\n  version: 3\n"));
}

TEST_F(ManifestTest, PrintsALineOfJsonForEachRecord) {
  const Finished dump = Dump({"--json"});
  EXPECT_EQ(dump.exit_code, 0);
  std::vector<json> lines;
  for (size_t begin = 0; begin < dump.out.size();) {
    const size_t end = dump.out.find('\n', begin);
    lines.push_back(ParseJson(dump.out.substr(begin, end - begin), nullptr, /*allow_exceptions=*/false));
    begin = end + 1;
  }
  ASSERT_EQ(lines.size(), 7u) << dump.out;
  EXPECT_EQ(lines[0]["schema_version"], 1);
  EXPECT_EQ(lines[0]["store"]["directory"], store_.directory());
  EXPECT_THAT(lines[0]["store"]["id"].get<std::string>(), MatchesRegex("[0-9a-f]{32}"));
  EXPECT_EQ(lines[1], ParseJson(R"({"key": "committed/7", "value": null, "problem": null, "bytes": null})"));
  EXPECT_EQ(lines[3]["key"], "phases/7");
  EXPECT_EQ(lines[5]["key"], "step/7");
  EXPECT_EQ(lines[5]["value"]["metrics"]["loss"], 0.5);
}

TEST_F(ManifestTest, PrintsOnlyWhatHasThePrefix) {
  EXPECT_EQ(Dump({"--prefix", "committed/"}).out, "committed/7\n");
  EXPECT_THAT(Dump({"--prefix", "st"}).out, AllOf(StartsWith("step/7\n"), HasSubstr("\nstore\n")));
  const Finished nothing = Dump({"--prefix", "step/8"});
  EXPECT_EQ(nothing.exit_code, 1);
  EXPECT_EQ(nothing.out, "");
  EXPECT_EQ(nothing.err, "checkpoint-inspect: error: no record's key begins with 'step/8'\n");
}

TEST_F(ManifestTest, ShowsTheBytesOfWhatCannotBeDecoded) {
  store_.PutRecord("zz\x1b", "no\nrecord\xff");
  const Finished dump = Dump({"--prefix", "z"});
  EXPECT_EQ(dump.exit_code, 3);
  EXPECT_EQ(dump.out,
            "zz\\x1b\n  cannot be decoded: a key of 3 bytes is not a key of the manifest\n  bytes: no\\nrecord\\xff\n");
  EXPECT_EQ(dump.err, "checkpoint-inspect: error: 1 of 1 records cannot be decoded\n");
  const Finished as_json = Dump({"--json", "--prefix", "z"});
  EXPECT_EQ(as_json.exit_code, 3);
  const json line = ParseJson(as_json.out.substr(as_json.out.find('\n') + 1), nullptr, /*allow_exceptions=*/false);
  EXPECT_EQ(line["value"], nullptr);
  EXPECT_EQ(line["bytes"], "6e6f0a7265636f7264ff");
  // One does not hide the others.
  EXPECT_THAT(Dump().out, AllOf(HasSubstr("step/7\n"), ContainsRegex("zz[^\n]+\n  cannot be decoded: ")));
}

// At a record of the type 5 RocksDB's reader beside a writer waits for ever.
TEST_F(ManifestTest, SaysThatALogEndsInDamage) {
  std::string log;
  for (const auto& entry : std::filesystem::directory_iterator(store_.directory() + "/manifest")) {
    if (entry.path().extension() == ".log") log = entry.path();
  }
  std::string bytes = ReadWhole(log);
  ASSERT_GT(bytes.size(), 7u);
  bytes[6] = 5;
  WriteWhole(log, bytes);
  const Finished dump = Dump();
  EXPECT_EQ(dump.exit_code, 13);
  EXPECT_THAT(dump.err, AllOf(HasSubstr(log), HasSubstr("damaged at byte 0: a record's type is 5")));
  const Finished list = RunInspect({"--store", store_.directory(), "ls"});
  EXPECT_EQ(list.exit_code, 3);
  EXPECT_THAT(list.out, HasSubstr("committed"));
  EXPECT_THAT(list.err, HasSubstr(log));
}

TEST_F(ManifestTest, ChangesNothing) {
  const auto before = store_.Listing();
  EXPECT_EQ(Dump().exit_code, 0);
  EXPECT_EQ(store_.Listing(), before);
}

TEST_F(ManifestTest, StandsBesideALiveTrainer) {
  const auto checkpointer = store_.OpenCheckpointer();
  TestState state(5000);
  ASSERT_TRUE(checkpointer->Save(8, state).ok());
  ASSERT_TRUE(checkpointer->WaitUntilCommitted().ok());
  EXPECT_EQ(Dump({"--prefix", "committed/"}).out, "committed/7\ncommitted/8\n");
}

TEST_F(ManifestTest, IsRefusedForAStoreThatMayMeanHarm) {
  const Finished dump = Dump({"--untrusted"});
  EXPECT_EQ(dump.exit_code, 2);
  EXPECT_EQ(dump.out, "");
  EXPECT_THAT(dump.err, HasSubstr("--untrusted"));
  EXPECT_EQ(RunInspect({"--store", store_.directory(), "manifest"}).exit_code, 2);
}

TEST_F(ManifestTest, SaysWhyThereIsNothingToPrint) {
  WriteWhole(store_.directory() + "/store.json", "{");
  EXPECT_THAT(Dump().err, AllOf(HasSubstr("warning: "), HasSubstr("store.json")));
  EXPECT_EQ(Dump().exit_code, 0);
  store_.MakeManifestNewer();
  EXPECT_EQ(Dump().exit_code, 14);
  store_.DamageManifest();
  const Finished damaged = Dump();
  EXPECT_EQ(damaged.exit_code, 13);
  EXPECT_THAT(damaged.err, HasSubstr("/manifest"));
  TestStore none;
  const Finished no_store = RunInspect({"--store", none.directory(), "manifest", "dump"});
  EXPECT_EQ(no_store.exit_code, 10);
  EXPECT_THAT(no_store.err, HasSubstr("is not a Tidemark store"));
}

}  // namespace
}  // namespace tidemark::inspect
