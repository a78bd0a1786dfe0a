#include <unistd.h>

#include <filesystem>
#include <random>
#include <string>

#include "gmock/gmock.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/store/test_store.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// Everything that was said, with "would x" and "xed" alike.
std::string InOneTense(std::string text) {
  const auto replace = [&](const std::string& from, const std::string& to) {
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
      text.replace(at, from.size(), to);
    }
  };
  replace("would be ", "");
  replace("would ", "");
  replace("moved ", "move ");
  replace("removed ", "remove ");
  replace("rebuilt ", "rebuild ");
  replace("after that, ", "");
  return text;
}

TEST(Repair, FindsNothingToDoInASoundStore) {
  TestStore store;
  store.Save({1, 2});
  const Finished run = RunInspect({"repair", "--store", store.directory()});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.out, "a restore takes step 2\n");
  EXPECT_THAT(run.err, HasSubstr("nothing to repair"));
}

TEST(Repair, FollowsALinkOnTheUsersOwnPath) {
  TestStore store;
  store.Save({1});
  const std::string link = store.directory() + "-link";
  std::filesystem::create_directory_symlink(store.directory(), link);
  for (const char* flag : {"--json", "--apply"}) {
    const Finished run = RunInspect({"repair", "--store", link, flag});
    EXPECT_EQ(run.exit_code, 0) << run.err;
  }
  std::filesystem::remove(link);
}

TEST(Repair, OffersAndCommitsAStepWhoseSaveWasCutShort) {
  TestStore store;
  store.Save({1, 2});
  {
    std::string warnings;
    const auto opened = storage::OpenSoundStore(store.directory(), &warnings);
    ASSERT_NE(opened, nullptr);
    storage::WriteAttempt(*opened, 3, 300);
  }
  const Finished plan = RunInspect({"repair", "--store", store.directory()});
  EXPECT_EQ(plan.exit_code, 3);
  EXPECT_THAT(plan.out, HasSubstr("step 3: its save was cut short, but all of its files are there; repair --adopt 3 "
                                  "commits it\nafter that, a restore takes step 2\n"));
  EXPECT_EQ(RunInspectJson({"repair", "--store", store.directory()}, 3)["changes"][0]["adoptable"], true);
  const Finished other = RunInspect({"repair", "--store", store.directory(), "--adopt", "9", "--apply"});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.err, HasSubstr("step 9 is not adopted"));
  EXPECT_EQ(RunInspect({"repair", "--store", store.directory(), "--adopt", "-1"}).exit_code, 2);
  const Finished run = RunInspect({"repair", "--store", store.directory(), "--adopt", "3", "--apply"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("committed the copy"), EndsWith("a restore takes step 3\n")));
  EXPECT_EQ(RunInspect({"verify", "3", "--store", store.directory()}).exit_code, 0);
}

TEST(Repair, SaysWhatItWouldDoAndChangesNotOneByte) {
  TestStore store;
  store.Save({1, 2, 3});
  store.DamageChunk(3);
  WriteWhole(store.directory() + "/store.json.tmp", "{");
  WriteWhole(store.directory() + "/notes.txt", "somebody's");
  const auto before = store.Listing();
  const Finished dry = RunInspect({"repair", "--store", store.directory()});
  EXPECT_EQ(store.Listing(), before);
  EXPECT_EQ(dry.exit_code, 3);
  EXPECT_THAT(dry.out, AllOf(HasSubstr("would move "), HasSubstr("/steps/0000000003-"), HasSubstr("to quarantine: "),
                             HasSubstr("entries affected: model.weight"), HasSubstr("would remove "),
                             HasSubstr("store.json.tmp"), HasSubstr("left alone: "), HasSubstr("notes.txt"),
                             HasSubstr("\nstep 3: would be lost\nafter that, a restore takes step 2\n"),
                             Not(HasSubstr(": lost"))));
  EXPECT_EQ(dry.out.find("entries affected"), dry.out.rfind("entries affected")) << "said twice";
  EXPECT_THAT(dry.err, HasSubstr("nothing was changed; --apply does it"));

  const Finished applied = RunInspect({"repair", "--apply", "--store", store.directory()});
  EXPECT_EQ(applied.exit_code, 3) << "a step was lost";
  EXPECT_EQ(InOneTense(applied.out), InOneTense(dry.out));
  const Finished again = RunInspect({"repair", "--apply", "--store", store.directory()});
  EXPECT_EQ(again.exit_code, 3) << "it still is";
  // What was lost earlier would not be lost by this.
  EXPECT_THAT(RunInspect({"repair", "--store", store.directory()}).out,
              HasSubstr("step 3: lost: damaged, and moved to quarantine"));
  EXPECT_THAT(again.out, AllOf(HasSubstr("left alone: "), HasSubstr("step 3: lost: damaged, and moved to quarantine"),
                               HasSubstr("a restore takes step 2")));
  EXPECT_THAT(again.err, HasSubstr("nothing to repair"));
  EXPECT_THAT(RunInspect({"ls", "--store", store.directory()}).out,
              AllOf(HasSubstr("lost"), HasSubstr("damaged, and moved to quarantine")));
  EXPECT_EQ(RunInspect({"verify", "--store", store.directory()}).exit_code, 3);
  store.Save({3});
  EXPECT_EQ(RunInspect({"repair", "--apply", "--store", store.directory()}).exit_code, 0) << "until it is saved again";
}

TEST(Repair, SaysOfALostStepThatSomebodyWantedToKeepIt) {
  TestStore store;
  store.Save({1, 2, 3, 4});
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--store", store.directory()});
    return RunInspect(arguments);
  };
  ASSERT_EQ(run({"pin", "2", "--note", "for the paper"}).exit_code, 0);
  ASSERT_EQ(run({"tag", "3", "v1"}).exit_code, 0);
  for (const int64_t step : {2, 3, 4}) store.DamageChunk(step);
  const std::string dry = run({"repair"}).out;
  EXPECT_THAT(dry, HasSubstr("\nstep 2: would be lost (pinned: for the paper)\n"
                             "step 3: would be lost (tagged v1)\n"
                             "step 4: would be lost\n"));
  EXPECT_EQ(InOneTense(run({"repair", "--apply"}).out), InOneTense(dry));
  EXPECT_THAT(run({"repair"}).out, AllOf(HasSubstr("step 2: lost (pinned: for the paper): damaged, and moved"),
                                         HasSubstr("step 4: lost: damaged, and moved")));
}

TEST(Repair, MakesTheJournalAnewAndTellsItAsJson) {
  TestStore store;
  store.Save({1, 2});
  store.DamageJournal();
  const auto plan = RunInspectJson({"repair", "--store", store.directory()}, 3);
  EXPECT_EQ(plan["schema_version"], 2);
  EXPECT_EQ(plan["applied"], false);
  ASSERT_EQ(plan["changes"].size(), 1u);
  EXPECT_EQ(plan["changes"][0]["action"], "rebuild_journal");
  EXPECT_EQ(plan["restore"], 2);
  auto applied = RunInspectJson({"repair", "--apply", "--store", store.directory()}, 0);
  EXPECT_EQ(applied["applied"], true);
  EXPECT_EQ(applied["changes"], plan["changes"]);
  EXPECT_EQ(applied["lost"].size(), 0u);
  EXPECT_EQ(RunInspect({"verify", "--store", store.directory()}).exit_code, 0);
}

TEST(Repair, NamesTheHealthyStepThatARestoreTakesInJsonAsVerifyDoes) {
  TestStore store;
  store.Save({1, 2, 3});
  store.Update(3, [](StepInfo& info) { info.evaluations = {{.evaluator = "v", .unhealthy = "diverged"}}; });
  const auto planned = RunInspectJson({"repair", "--store", store.directory()}, 0);
  EXPECT_EQ(planned["restore"], 3);
  EXPECT_EQ(planned["restore_healthy"], 2);
  const auto verified = RunInspectJson({"verify", "--store", store.directory()}, 0);
  EXPECT_EQ(verified["restore"]["step"], 3);
  EXPECT_EQ(verified["restore_healthy"], 2);
}

TEST(Repair, FailsWhereNoStepIsLeft) {
  TestStore store;
  store.Save({1});
  store.DamageChunk(1);
  const Finished run = RunInspect({"repair", "--store", store.directory()});
  EXPECT_EQ(run.exit_code, 13);
  EXPECT_THAT(run.out, HasSubstr("no step can be restored"));
  for (int time = 0; time < 2; ++time) {
    const auto applied = RunInspectJson({"repair", "--apply", "--store", store.directory()}, 13);
    EXPECT_EQ(applied["restore"], nullptr);
    ASSERT_EQ(applied["lost"].size(), 1u);
    EXPECT_EQ(applied["lost"][0]["step"], 1);
  }
  EXPECT_EQ(RunInspect({"verify", "--store", store.directory()}).exit_code, 13);
}

// What it wrote would be root's alone, and the trainer shut out.
TEST(Repair, IsForTheUserWhoseStoreItIs) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make a store of another user's";
  TestStore store;
  store.Save({1, 2});
  store.DamageChunk(2);
  constexpr uid_t kSomebody = 54321;
  const std::string& directory = store.directory();
  ASSERT_EQ(chown(directory.c_str(), kSomebody, kSomebody), 0);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    ASSERT_EQ(lchown(entry.path().c_str(), kSomebody, kSomebody), 0);
  }
  const auto before = store.Listing();
  const Finished applied = RunInspect({"repair", "--apply", "--store", directory});
  EXPECT_EQ(applied.exit_code, 1);
  EXPECT_THAT(applied.err, AllOf(HasSubstr(directory + " belongs to user 54321"), HasSubstr("root (user 0)"),
                                 HasSubstr("run this as its owner"), HasSubstr("sudo -u '#54321'")));
  EXPECT_EQ(applied.out, "");
  EXPECT_EQ(store.Listing(), before);
  EXPECT_EQ(RunInspect({"repair", "--store", directory}).exit_code, 3) << "who only looks writes nothing";
  EXPECT_EQ(store.Listing(), before);
}

TEST(Repair, NamesTheTrainerThatHoldsTheStore) {
  TestStore store;
  store.Save({1});
  const auto trainer = store.OpenCheckpointer();
  for (const bool apply : {false, true}) {
    std::vector<std::string> arguments = {"repair", "--store", store.directory()};
    if (apply) arguments.push_back("--apply");
    const Finished run = RunInspect(arguments);
    EXPECT_EQ(run.exit_code, 11);
    EXPECT_THAT(run.err, AllOf(HasSubstr("is open for writing elsewhere"), HasSubstr(std::to_string(getpid()))));
    EXPECT_EQ(run.out, "");
  }
}

TEST(Repair, SaysThatThereIsNoStoreOrANewerOne) {
  TestStore store;
  EXPECT_EQ(RunInspect({"repair", "--apply", "--store", store.directory()}).exit_code, 10);
  EXPECT_EQ(store.Listing().size(), 1u);
  EXPECT_EQ(RunInspect({"repair", "--apply", "--store", store.directory() + "/none"}).exit_code, 10);
  store.Save({1});
  store.MakeStoreNewer();
  const auto before = store.Listing();
  EXPECT_EQ(RunInspect({"repair", "--store", store.directory()}).exit_code, 14);
  EXPECT_EQ(store.Listing(), before);
}

TEST(Repair, FindsOutWhichStoreItIsWhereNoOtherCommandDoes) {
  TestStore store;
  store.Save({1, 2});
  ASSERT_TRUE(std::filesystem::remove(store.directory() + "/store.json"));
  for (const char* command : {"ls", "verify"}) {
    const Finished run = RunInspect({"--store", store.directory(), command});
    EXPECT_EQ(run.exit_code, 10);
    EXPECT_THAT(run.err, AllOf(HasSubstr("is not a Tidemark store"), HasSubstr("store.json"), HasSubstr("a repair")));
  }
  EXPECT_EQ(RunInspectJson({"--store", store.directory(), "repair"}, 3)["changes"][0]["action"], "write_identity");
  EXPECT_EQ(RunInspect({"--store", store.directory(), "repair", "--apply"}).exit_code, 0);
  EXPECT_EQ(RunInspect({"--store", store.directory(), "verify"}).exit_code, 0);
}

TEST(Repair, NeedsADirectoryThatCanBeWrittenOnlyToApply) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write anywhere";
  TestStore store;
  store.Save({1, 2});
  store.DamageChunk(2);
  namespace fs = std::filesystem;
  fs::permissions(store.directory() + "/steps", fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_EQ(RunInspect({"repair", "--store", store.directory()}).exit_code, 3);
  const Finished run = RunInspect({"repair", "--apply", "--store", store.directory()});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, HasSubstr("denied"));
  fs::permissions(store.directory() + "/steps", fs::perms::owner_all);
}

TEST(Repair, ShowsProgressOnATerminalOnly) {
  TestStore store;
  store.Save({1});
  const Finished shown = RunInspect({"repair", "--store", store.directory()}, {.terminal = true});
  EXPECT_THAT(shown.out, HasSubstr("step 1: "));
  EXPECT_THAT(RunInspect({"repair", "--store", store.directory()}).err, Not(HasSubstr("step 1: ")));
}

TEST(Repair, ExplainsItselfWithAnExample) {
  const Finished help = RunInspect({"repair", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("--apply"), HasSubstr("Example"), HasSubstr("quarantine")));
}

// A sample of what the library is tried with bit by bit.
TEST(Verify, FindsAnyByteThatChangedInAShard) {
  TestStore store;
  store.Save({1, 2}, {}, 200);
  const std::string path = store.ShardPath(2);
  const std::string good = ReadWhole(path);
  const auto seed = storage::SeedOfCases();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 20; ++i) {
    std::string bytes = good;
    const size_t at = random() % bytes.size();
    SCOPED_TRACE(testing::Message() << "byte " << at);
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
    if (i % 5 == 4) bytes.resize(at);
    WriteWhole(path, bytes);
    const Finished run = RunInspect({"verify", "--store", store.directory()});
    EXPECT_EQ(run.exit_code, 3);
    EXPECT_THAT(run.out, AllOf(HasSubstr("step 2: damaged"), HasSubstr("restore takes step 1")));
  }
}

}  // namespace
}  // namespace tidemark::inspect
