#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "storage/io/file_system.h"
#include "storage/store/store_layout.h"
#include "tests/snapshot/observers.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"
#include "tidemark/store_reader.h"

namespace tidemark::inspect {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Finished Inspect(const TestStore& store, std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--store", store.directory()});
  return RunInspect(arguments);
}

TEST(Tag, NamesAStepAndPinsIt) {
  TestStore store;
  store.Save({1, 2});
  const Finished tagged = Inspect(store, {"tag", "1", "paper/figure-3"});
  EXPECT_EQ(tagged.exit_code, 0) << tagged.err;
  EXPECT_EQ(tagged.out, "step 1: tagged paper/figure-3\n");
  EXPECT_EQ(tagged.err, "");
  EXPECT_TRUE(store.Info(1).pinned);
  EXPECT_THAT(store.Info(1).tags, ElementsAre("paper/figure-3"));
  EXPECT_EQ(Inspect(store, {"tag", "tag:paper/figure-3", "v1"}).out, "step 1: tagged v1\n");
  EXPECT_EQ(Inspect(store, {"tag", "1", "v1"}).exit_code, 0) << "it is what was asked for";
  EXPECT_THAT(store.Info(1).tags, ElementsAre("paper/figure-3", "v1"));
  EXPECT_EQ(Inspect(store, {"repair"}).exit_code, 0);
}

TEST(Untag, TakesTheNameAndLeavesThePin) {
  TestStore store;
  store.Save({1});
  ASSERT_EQ(Inspect(store, {"tag", "1", "v1"}).exit_code, 0);
  const Finished untagged = Inspect(store, {"untag", "v1"});
  EXPECT_EQ(untagged.exit_code, 0) << untagged.err;
  EXPECT_EQ(untagged.out, "step 1: untagged v1\n");
  EXPECT_THAT(store.Info(1).tags, IsEmpty());
  EXPECT_TRUE(store.Info(1).pinned);
}

TEST(Unpin, TakesTheNamesToo) {
  TestStore store;
  store.Save({1});
  ASSERT_EQ(Inspect(store, {"tag", "1", "v1"}).exit_code, 0);
  ASSERT_EQ(Inspect(store, {"unpin", "tag:v1"}).exit_code, 0);
  EXPECT_FALSE(store.Info(1).pinned);
  EXPECT_THAT(store.Info(1).tags, IsEmpty());
}

TEST(Tag, LeavesANameWhereItIsUnlessToldToMoveIt) {
  TestStore store;
  store.Save({1, 2});
  ASSERT_EQ(Inspect(store, {"tag", "1", "v1"}).exit_code, 0);
  const auto before = store.Listing();
  const Finished refused = Inspect(store, {"tag", "2", "v1"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_EQ(refused.out, "");
  EXPECT_EQ(refused.err, "checkpoint-inspect: error: step 1 already has the tag 'v1'; --move takes it from there\n");
  EXPECT_EQ(store.Listing(), before);
  const Finished moved = Inspect(store, {"tag", "2", "v1", "--move"});
  EXPECT_EQ(moved.exit_code, 0) << moved.err;
  EXPECT_EQ(moved.out, "step 2: tagged v1\nstep 1: untagged v1\n");
  EXPECT_THAT(store.Info(1).tags, IsEmpty());
  EXPECT_TRUE(store.Info(1).pinned);
  EXPECT_THAT(store.Info(2).tags, ElementsAre("v1"));
}

// So no crash and no error leaves the name with both steps, or with none.
TEST(Tag, MovesANameInOneEntry) {
  TestStore store;
  store.Save({1, 2});
  ASSERT_EQ(Inspect(store, {"tag", "1", "v1"}).exit_code, 0);
  const uint64_t before = store.LastEntry();
  ASSERT_EQ(Inspect(store, {"tag", "2", "v1", "--move"}).exit_code, 0);
  EXPECT_EQ(store.LastEntry(), before + 1);
}

TEST(Tag, MovesANameThatNoStepHasOrThatTheStepHas) {
  TestStore store;
  store.Save({1});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Inspect(store, {"tag", "1", "v1", "--move"}).out, "step 1: tagged v1\n");
}

TEST(Tag, BringsANameThatTwoStepsHaveToOne) {
  TestStore store;
  store.Save({1, 2, 3});
  for (const int64_t step : {1, 2}) {
    store.Update(step, [](StepInfo& info) {
      info.pinned = true;
      info.tags = {"v1"};
    });
  }
  EXPECT_THAT(Inspect(store, {"tag", "3", "v1"}).err, HasSubstr("steps 1, 2 already have the tag 'v1'"));
  EXPECT_EQ(Inspect(store, {"tag", "2", "v1", "--move"}).out, "step 2: tagged v1\nstep 1: untagged v1\n");
  EXPECT_EQ(Inspect(store, {"untag", "v1"}).out, "step 2: untagged v1\n");
}

TEST(Tag, LeavesANameWhereItIsIfTheOtherStepMayHaveNoMore) {
  TestStore store;
  store.Save({1, 2});
  ASSERT_EQ(Inspect(store, {"tag", "1", "v1"}).exit_code, 0);
  store.Update(2, [](StepInfo& info) {
    info.pinned = true;
    for (int i = 10; i < 74; ++i) info.tags.push_back("t" + std::to_string(i));
  });
  const Finished run = Inspect(store, {"tag", "2", "v1", "--move"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_EQ(run.err, "checkpoint-inspect: error: step 2 has 64 tags, the maximum\n");
  EXPECT_THAT(store.Info(1).tags, ElementsAre("v1"));
  EXPECT_EQ(Inspect(store, {"tag", "2", "t10"}).exit_code, 0) << "it has that one";
}

TEST(Tag, CountsAtOnceForATrainerAndForEveryReader) {
  TestStore store;
  store.Save({1, 2});
  ASSERT_EQ(Inspect(store, {"tag", "1", "v1"}).exit_code, 0);
  const auto reader = StoreReader::Open(store.directory());
  ASSERT_TRUE(reader.ok()) << reader.status();
  const auto trainer = AsyncCheckpointer::Open({.directory = store.directory(), .observer = NoWarnings()});
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  const Finished moved = Inspect(store, {"tag", "2", "v1", "--move"});
  EXPECT_EQ(moved.exit_code, 0) << moved.err;
  EXPECT_EQ(moved.out, "step 2: tagged v1\nstep 1: untagged v1\n");
  EXPECT_EQ(moved.err, "") << "no process is asked";
  ASSERT_TRUE((*reader)->Refresh().ok());
  EXPECT_EQ((*reader)->FindStep(StepSelector::Tag("v1"))->step, 2);
  ASSERT_TRUE((*trainer)->Tidy().ok());
  const auto steps = (*trainer)->Steps();
  ASSERT_TRUE(steps.ok()) << steps.status();
  EXPECT_THAT((*steps)[0].tags, IsEmpty());
  EXPECT_THAT((*steps)[1].tags, ElementsAre("v1"));
  EXPECT_EQ(Inspect(store, {"untag", "v1"}).out, "step 2: untagged v1\n");
}

TEST(Tag, IsShownWhereverAPinIs) {
  TestStore store;
  store.Save({1, 2});
  ASSERT_EQ(Inspect(store, {"tag", "1", "paper"}).exit_code, 0);
  ASSERT_EQ(Inspect(store, {"tag", "1", "v1"}).exit_code, 0);
  EXPECT_THAT(Inspect(store, {"ls"}).out, HasSubstr("\n  tagged paper, v1\n"));
  EXPECT_THAT(Inspect(store, {"show", "1"}).out, testing::ContainsRegex("\n  pinned +yes\n  tags +paper, v1\n"));
  EXPECT_THAT(Inspect(store, {"prune", "--keep-latest", "1"}).out, HasSubstr("tagged paper, v1"));
  EXPECT_THAT(Inspect(store, {"journal", "--step", "1"}).out, HasSubstr("tags: [\"paper\",\"v1\"]"));
  ASSERT_EQ(Inspect(store, {"pin", "1", "--note", "figure 3"}).exit_code, 0);
  EXPECT_THAT(Inspect(store, {"ls"}).out, HasSubstr("\n  tagged paper, v1: figure 3\n"));
}

TEST(Tag, IsKnownAfterTheJournalWasMadeAnew) {
  TestStore store;
  store.Save({1, 2});
  ASSERT_EQ(Inspect(store, {"tag", "1", "v1"}).exit_code, 0);
  store.Save({3});  // the index has it
  store.DamageJournal();
  ASSERT_EQ(Inspect(store, {"repair", "--apply"}).exit_code, 0);
  EXPECT_THAT(store.Info(1).tags, ElementsAre("v1"));
}

TEST(Tag, PrintsItsRequestsAsJson) {
  TestStore store;
  store.Save({1, 2});
  ASSERT_EQ(Inspect(store, {"tag", "1", "v1"}).exit_code, 0);
  const auto json = RunInspectJson({"tag", "2", "v1", "--move", "--store", store.directory()});
  EXPECT_EQ(json["schema_version"], 2);
  EXPECT_EQ(json["tag"], "v1");
  ASSERT_EQ(json["requests"].size(), 2u);
  EXPECT_EQ(json["requests"][0]["request"], "tag");
  EXPECT_EQ(json["requests"][0]["step"], 2);
  EXPECT_EQ(json["requests"][0]["attempt"], store.Info(2).attempt);
  EXPECT_EQ(json["requests"][0]["outcome"], "done");
  EXPECT_EQ(json["requests"][1]["request"], "untag");
  EXPECT_EQ(json["requests"][1]["step"], 1);
  const auto untagged = RunInspectJson({"untag", "v1", "--store", store.directory()});
  EXPECT_EQ(untagged["tag"], "v1");
  EXPECT_EQ(untagged["requests"][0]["request"], "untag");
}

TEST(Untag, ListsTheTagsThatThereAre) {
  TestStore store;
  store.Save({1, 2});
  EXPECT_EQ(Inspect(store, {"untag", "v1"}).err,
            "checkpoint-inspect: error: no step has a tag 'v1'; there are no tags\n");
  ASSERT_EQ(Inspect(store, {"tag", "2", "v2"}).exit_code, 0);
  ASSERT_EQ(Inspect(store, {"tag", "1", "paper"}).exit_code, 0);
  const Finished unknown = Inspect(store, {"untag", "v1"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_EQ(unknown.err, "checkpoint-inspect: error: no step has a tag 'v1'; there are: paper, v2\n");
}

TEST(Tag, RefusesAStepThatIsNotCommitted) {
  TestStore store;
  store.Save({1, 2});
  store.Delete(1, "too old");
  const Finished gone = Inspect(store, {"tag", "1", "v1"});
  EXPECT_EQ(gone.exit_code, 1);
  EXPECT_THAT(gone.err, HasSubstr("step 1 is deleted: only a committed step can be tagged"));
  EXPECT_THAT(Inspect(store, {"tag", "7", "v1"}).err, HasSubstr("step 7 is not in"));
}

TEST(Tag, SaysWhyThereIsNoRoomForAnother) {
  TestStore store;
  store.Save({1});
  store.Update(1, [](StepInfo& info) {
    info.pinned = true;
    for (char c : std::string("0123456789abcdefghijklmnopqrstuvwxyz")) {
      for (const char* more : {"", "x"}) {
        if (info.tags.size() < 64) info.tags.push_back(c + std::string(more));
      }
    }
  });
  const Finished run = Inspect(store, {"tag", "1", "zz"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(run.err, "checkpoint-inspect: error: step 1 has 64 tags, the maximum\n");
}

TEST(Tag, NeedsAStepAndAName) {
  TestStore store;
  store.Save({1});
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"tag"},
                                                    {"tag", "1"},
                                                    {"tag", "newest", "v1"},
                                                    {"tag", "1", "the best"},
                                                    {"tag", "1", ""},
                                                    {"tag", "1", "-v1"},
                                                    {"tag", "1", std::string(129, 'a')},
                                                    {"tag", "1", "v1", "v2"},
                                                    {"untag"},
                                                    {"untag", "a:b"},
                                                    {"untag", "v1", "--move"}}) {
    EXPECT_EQ(Inspect(store, arguments).exit_code, 2) << arguments.back();
  }
  EXPECT_THAT(Inspect(store, {"tag", "1", "the best"}).err,
              HasSubstr("NAME: tag 'the best' has a character other than letters, digits, '.', '_', '/' and '-'"));
  EXPECT_FALSE(store.Info(1).pinned);
}

TEST(Tag, IsRefusedForAStrangersStore) {
  TestStore store;
  store.Save({1});
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"tag", "1", "v1", "--untrusted"}, {"untag", "v1", "--untrusted"}}) {
    const Finished run = Inspect(store, arguments);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_THAT(run.err, HasSubstr("--untrusted"));
  }
}

TEST(Tag, LeavesAStoreAloneWhoseJournalCannotBeRead) {
  TestStore store;
  store.Save({1});
  store.DamageJournal();
  const auto before = store.Listing();
  const Finished run = Inspect(store, {"tag", "1", "v1"});
  EXPECT_EQ(run.exit_code, 13);
  EXPECT_THAT(run.err, HasSubstr("run repair first"));
  EXPECT_EQ(store.Listing(), before);
}

TEST(Tag, ExplainsItselfWithAnExample) {
  for (const char* command : {"tag", "untag"}) {
    const Finished help = RunInspect({command, "--help"});
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_THAT(help.out, AllOf(HasSubstr("NAME"), HasSubstr("Example")));
  }
}

TEST(Tag, RefusesANameThatStandsForAStepAlready) {
  TestStore store;
  store.Save({1, 7});
  for (const char* name : {"latest", "latest-healthy", "7"}) {
    const Finished run = RunInspect({"tag", "1", name, "--store", store.directory()});
    EXPECT_EQ(run.exit_code, 2) << name;
    EXPECT_THAT(run.err, HasSubstr("already means a step")) << name;
  }
  EXPECT_EQ(RunInspect({"tag", "1", "best", "--store", store.directory()}).exit_code, 0);
}

}  // namespace
}  // namespace tidemark::inspect
