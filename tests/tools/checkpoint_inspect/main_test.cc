#include <csignal>

#include "gmock/gmock.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;

TEST(CheckpointInspect, RejectsWrongUsage) {
  TestStore store;
  store.Save({1});
  const std::vector<std::vector<std::string>> wrong = {{},
                                                       {"erase"},
                                                       {"--untrusted", "repair"},
                                                       {"ls", "1"},
                                                       {"ls", "--unknown"},
                                                       {"ls", "--store"},
                                                       {"ls", "--store", ""},
                                                       {"show"},
                                                       {"show", ""},
                                                       {"show", "newest"},
                                                       {"show", "1x"},
                                                       {"show", "-1"},
                                                       {"show", "1", "2"},
                                                       {"show", "9223372036854775808"},
                                                       {"tensors"},
                                                       {"tensors", "1", "*", "2"},
                                                       {"tensors", "1", "--sort", "bytes"},
                                                       {"diff"},
                                                       {"diff", "1"},
                                                       {"diff", "1", "2", "*", "3"},
                                                       {"verify", "newest"},
                                                       {"verify", "best:"},
                                                       {"verify", ""},
                                                       {"verify", "1.0"},
                                                       {"ls", "show", "1"}};
  for (const std::vector<std::string>& arguments : wrong) {
    SCOPED_TRACE(testing::PrintToString(arguments));
    const Finished run = RunInspect(arguments, {.directory = store.directory()});
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_EQ(run.out, "");
    EXPECT_NE(run.err, "");
  }
}

TEST(CheckpointInspect, SaysWhatIsWrongAboutACommandLine) {
  const auto error_of = [](const std::vector<std::string>& arguments) {
    const Finished run = RunInspect(arguments);
    EXPECT_EQ(run.exit_code, 2);
    return run.err;
  };
  EXPECT_EQ(error_of({}), "checkpoint-inspect: error: no command is given; see 'checkpoint-inspect --help'\n");
  const std::string unknown = error_of({"--json", "verfy", "100"});
  EXPECT_THAT(unknown, StartsWith("checkpoint-inspect: error: unknown command 'verfy'; nearest: verify, "));
  EXPECT_THAT(unknown, EndsWith("; see 'checkpoint-inspect --help'\n"));
  EXPECT_THAT(unknown, Not(HasSubstr("required")));
  EXPECT_EQ(error_of({"show"}), "checkpoint-inspect: error: STEP is required; see 'checkpoint-inspect show --help'\n");
  EXPECT_THAT(error_of({"journal", "--unknown"}),
              AllOf(StartsWith("checkpoint-inspect: error: "), HasSubstr("--unknown"),
                    EndsWith("; see 'checkpoint-inspect journal --help'\n")));
}

TEST(CheckpointInspect, NamesAMisspeltOptionAndNotItsValue) {
  const auto error_of = [](const std::vector<std::string>& arguments) {
    const Finished run = RunInspect(arguments);
    EXPECT_EQ(run.exit_code, 2);
    return run.err;
  };
  const auto names = [](const std::string& option, const std::string& nearest, const std::string& command) {
    return AllOf(StartsWith("checkpoint-inspect: error: unknown option '" + option + "'; nearest: " + nearest + ", "),
                 EndsWith("; see 'checkpoint-inspect " + command + "--help'\n"));
  };
  EXPECT_THAT(error_of({"ls", "--sorrt", "step"}), names("--sorrt", "--sort", "ls "));
  EXPECT_THAT(error_of({"ls", "--sorrt=step"}), names("--sorrt", "--sort", "ls "));
  EXPECT_THAT(error_of({"ls", "--stroe", "run"}), names("--stroe", "--store", "ls "));
  EXPECT_THAT(error_of({"--stroe", "run"}), names("--stroe", "--store", ""));
  EXPECT_THAT(error_of({"--sorrt", "step", "ls"}), names("--sorrt", "--sort", "ls "));
  EXPECT_THAT(error_of({"journal", "--frm", "2"}), names("--frm", "--from", "journal "));
  // Its value is no step, and none is given.
  EXPECT_THAT(error_of({"tensors", "--sorrt", "size"}), names("--sorrt", "--sort", "tensors "));
  EXPECT_THAT(error_of({"show", "--jsn"}), names("--jsn", "--json", "show "));
  EXPECT_EQ(error_of({"ls", "-x"}),
            "checkpoint-inspect: error: unknown option '-x'; see 'checkpoint-inspect ls --help'\n");
  // A command that comes before it is what is wrong first.
  EXPECT_THAT(error_of({"verfy", "--sorrt"}), HasSubstr("unknown command 'verfy'"));
}

TEST(CheckpointInspect, SaysInAFewWordsWhatACountMayBe) {
  struct Case {
    std::vector<std::string> command;
    std::string option;
  };
  for (const Case& count : {Case{{"ls"}, "--last"},
                            {{"trace", "-o", "a.json"}, "--last"},
                            {{"report", "-o", "a.html"}, "--last"},
                            {{"prune"}, "--keep-latest"},
                            {{"prune"}, "--keep-every"}}) {
    const auto error_of = [&count](const std::string& value) {
      std::vector<std::string> arguments = count.command;
      arguments.insert(arguments.end(), {count.option, value});
      const Finished run = RunInspect(arguments);
      EXPECT_EQ(run.exit_code, 2);
      return run.err;
    };
    const std::string begin = "checkpoint-inspect: error: " + count.option + ": ";
    const std::string end = "; see 'checkpoint-inspect " + count.command.front() + " --help'\n";
    for (const std::string wrong : {"0", "-1"}) {
      EXPECT_EQ(error_of(wrong), begin + "must be at least 1, not " + wrong + end);
    }
    for (const std::string wrong : {"many", "1.5", "2x"}) {
      EXPECT_EQ(error_of(wrong), begin + "must be a whole number of at least 1, not '" + wrong + "'" + end);
    }
    EXPECT_EQ(error_of("9223372036854775808"), begin + "9223372036854775808 is out of range" + end);
  }
}

TEST(CheckpointInspect, SaysWhatIsOneTooMany) {
  TestStore store;
  store.Save({1});
  const auto error_of = [&](const std::vector<std::string>& arguments) {
    const Finished run = RunInspect(arguments, {.directory = store.directory()});
    EXPECT_EQ(run.exit_code, 2);
    return run.err;
  };
  EXPECT_EQ(error_of({"show", "1", "180"}),
            "checkpoint-inspect: error: '180' is one argument too many; see 'checkpoint-inspect show --help'\n");
  EXPECT_EQ(error_of({"prune", "--keep-latest", "1", "--keep-latest", "2"}),
            "checkpoint-inspect: error: --keep-latest may be given once; see 'checkpoint-inspect prune --help'\n");
}

TEST(CheckpointInspect, KnowsWhatOtherToolsCallItsCommands) {
  EXPECT_THAT(RunInspect({"log"}).err, HasSubstr("unknown command 'log'; did you mean 'history'?"));
  EXPECT_THAT(RunInspect({"completion"}).err, HasSubstr("unknown command 'completion'; did you mean 'completions'?"));
  EXPECT_THAT(RunInspect({"manpage"}).err, HasSubstr("nearest: man-page"));
}

TEST(CheckpointInspect, KeepsItsHelpFreeOfMachineNoise) {
  for (const char* command : {"ls", "prune", "report", "trace"}) {
    EXPECT_THAT(RunInspect({command, "--help"}).out,
                AllOf(Not(HasSubstr("Excludes:")), Not(HasSubstr("INT in [")), Not(HasSubstr(":POSITIVE"))))
        << command;
  }
  EXPECT_EQ(RunInspect({"ls", "--last", "0"}).exit_code, 2);
  EXPECT_EQ(RunInspect({"ls", "--follow", "--all"}).exit_code, 2);
}

TEST(CheckpointInspect, ExplainsItself) {
  const Finished help = RunInspect({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_EQ(help.err, "");
  EXPECT_THAT(help.out, AllOf(HasSubstr("--store"), HasSubstr("TIDEMARK_STORE"), HasSubstr("verify"),
                              HasSubstr("history"), HasSubstr("Examples:"), HasSubstr("13 integrity failure")));
  const Finished show_help = RunInspect({"show", "--help"});
  EXPECT_EQ(show_help.exit_code, 0);
  EXPECT_THAT(show_help.out, HasSubstr("best:METRIC"));
  const Finished version = RunInspect({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.out, MatchesRegex("checkpoint-inspect [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

TEST(CheckpointInspect, SaysThatThereIsNoStore) {
  TestStore empty;
  const std::string file = empty.directory() + "/file";
  WriteWhole(file, "text");
  for (const std::string& directory : {empty.directory(), empty.directory() + "/absent", file}) {
    SCOPED_TRACE(directory);
    for (const std::vector<std::string>& command : {std::vector<std::string>{"ls"},
                                                    {"show", "1"},
                                                    {"tensors", "1"},
                                                    {"verify"},
                                                    {"history"},
                                                    {"stats"},
                                                    {"trace", "1", "-o", empty.directory() + "/out"},
                                                    {"export", "1", "-o", empty.directory() + "/out"},
                                                    {"pin", "1"},
                                                    {"tag", "1", "v1"},
                                                    {"untag", "v1"},
                                                    {"prune", "--keep-latest", "1"}}) {
      std::vector<std::string> arguments = {"--store", directory};
      arguments.insert(arguments.end(), command.begin(), command.end());
      const Finished run = RunInspect(arguments);
      EXPECT_EQ(run.exit_code, 10);
      EXPECT_EQ(run.out, "");
      EXPECT_THAT(run.err, HasSubstr(directory));
    }
  }
  EXPECT_FALSE(std::filesystem::exists(empty.directory() + "/out"));
}

TEST(CheckpointInspect, SaysThatTheStoreIsOfANewerVersion) {
  TestStore store;
  store.Save({1});
  store.MakeStoreNewer();
  const std::string out = store.directory() + "/out";
  const auto before = store.Listing();
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"ls"}, {"verify"}, {"export", "1", "-o", out}, {"diff", "1", "latest"}}) {
    const Finished run = RunInspect(command, {.directory = store.directory()});
    EXPECT_EQ(run.exit_code, command[0] == "diff" ? 2 : 14) << command[0] << ", of which diff has codes of its own";
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(run.err, AllOf(HasSubstr("format 3"), HasSubstr("store.json"))) << command[0];
  }
  EXPECT_EQ(store.Listing(), before);
}

TEST(CheckpointInspect, SaysThatNoStepIsCommitted) {
  TestStore store;
  store.Save({});
  const std::string out = store.directory() + "/out";
  for (const std::vector<std::string>& command : {std::vector<std::string>{"show", "latest"},
                                                  {"tensors", "latest"},
                                                  {"verify"},
                                                  {"export", "latest", "-o", out},
                                                  {"pin", "latest"},
                                                  {"tag", "latest", "v1"}}) {
    const Finished run = RunInspect(command, {.directory = store.directory()});
    EXPECT_EQ(run.exit_code, 12) << command[0];
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(run.err, HasSubstr("no step is committed in "));
  }
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST(CheckpointInspect, SaysThatStoreJsonIsDamagedWhereNothingElseNamesTheStore) {
  TestStore store;
  store.Save({});
  WriteWhole(store.directory() + "/store.json", "{");
  const Finished ls = RunInspect({"--store", store.directory(), "ls"});
  EXPECT_EQ(ls.exit_code, 13);
  EXPECT_THAT(ls.err, HasSubstr("store.json"));
}

TEST(CheckpointInspect, TakesTheStoreFromTheEnvironmentOrTheCurrentDirectory) {
  TestStore store, other;
  store.Save({1});
  const auto finds = [](const Finished& run) {
    return run.exit_code == 0 && run.out.find(" committed ") != std::string::npos;
  };
  EXPECT_TRUE(finds(RunInspect({"ls"}, {.directory = store.directory()})));
  EXPECT_TRUE(finds(RunInspect({"ls"}, {.directory = store.directory(), .environment = {{"TIDEMARK_STORE", ""}}})));
  EXPECT_TRUE(finds(RunInspect({"ls"}, {.environment = {{"TIDEMARK_STORE", store.directory()}}})));
  // The option counts more.
  EXPECT_TRUE(finds(
      RunInspect({"ls", "--store", store.directory()}, {.environment = {{"TIDEMARK_STORE", other.directory()}}})));
}

TEST(CheckpointInspect, ChangesNothingInTheStore) {
  TestStore store;
  store.Save({1, 2, 3});
  store.DamageChunk(3);
  const auto before = store.Listing();
  for (const std::vector<std::string>& command : {std::vector<std::string>{"ls"},
                                                  {"show", "2"},
                                                  {"show", "latest"},
                                                  {"tensors", "2", "--stats"},
                                                  {"diff", "1", "2"},
                                                  {"verify"},
                                                  {"verify", "3"}}) {
    RunInspect(command, {.directory = store.directory()});
    EXPECT_EQ(store.Listing(), before) << command[0];
  }
  store.DamageJournal();
  const auto broken = store.Listing();
  EXPECT_EQ(RunInspect({"verify"}, {.directory = store.directory()}).exit_code, 3);
  EXPECT_EQ(store.Listing(), broken);
}

TEST(CheckpointInspect, ColoursATerminalThatWantsIt) {
  TestStore store;
  store.Save({1});
  const std::vector<std::string> ls = {"--store", store.directory(), "ls"};
  EXPECT_THAT(RunInspect(ls, {.terminal = true}).out, HasSubstr("\x1b[32mcommitted\x1b[0m"));
  const auto plain = Not(HasSubstr("\x1b"));
  EXPECT_THAT(RunInspect(ls).out, plain);
  EXPECT_THAT(RunInspect(ls, {.environment = {{"NO_COLOR", "1"}}, .terminal = true}).out, plain);
  EXPECT_THAT(RunInspect(ls, {.environment = {{"TERM", "dumb"}}, .terminal = true}).out, plain);
  const std::vector<std::string> verify = {"--store", store.directory(), "verify"};
  EXPECT_THAT(RunInspect(verify, {.environment = {{"NO_COLOR", "1"}}, .terminal = true}).out, plain);
  EXPECT_THAT(RunInspect(ls, {.environment = {{"NO_COLOR", ""}}, .terminal = true}).out, HasSubstr("\x1b[32m"));
}

TEST(CheckpointInspect, EscapesControlCharactersInNames) {
  TestStore store;
  auto checkpointer = store.OpenCheckpointer();
  State state;
  std::string value = "x";
  state.AddValue("evil\x1b[2Jname\n", &value);
  ASSERT_TRUE(checkpointer->Save(1, state, {.metrics = {{"\x1b]0;m\x07", 1}}}).ok());
  ASSERT_TRUE(checkpointer->Close().ok());
  WriteWhole(store.ShardPath(1), ReadWhole(store.ShardPath(1)).replace(4096, 1, "y"));
  std::string all;
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"ls"}, {"show", "1"}, {"tensors", "1"}, {"verify"}}) {
    const Finished run = RunInspect(command, {.directory = store.directory()});
    all += run.out + run.err;
  }
  EXPECT_THAT(all, Not(HasSubstr("\x1b")));
  EXPECT_THAT(all, AllOf(HasSubstr("\\x1b]0;m\\x07=1"), HasSubstr("\nevil\\x1b[2Jname\\n  string"),
                         HasSubstr("entries affected: evil\\x1b[2Jname\\n\n")));
}

TEST(CheckpointInspect, EndsQuietlyWhereNobodyReads) {
  TestStore store;
  store.Save({1, 2}, {.metrics = {{"loss", 0.5}}});
  for (const std::vector<std::string>& command : {std::vector<std::string>{"ls"},
                                                  {"show", "1"},
                                                  {"verify"},
                                                  {"tensors", "1"},
                                                  {"tensors", "1", "--stats"},
                                                  {"diff", "1", "2"},
                                                  {"history", "loss"},
                                                  {"history", "--plot"},
                                                  {"stats"},
                                                  {"prune", "--keep-latest", "1"},
                                                  {"repair"},
                                                  {"journal"},
                                                  {"--json", "history", "loss"},
                                                  {"man-page"},
                                                  {"--help"}}) {
    const Finished run = RunInspect(command, {.directory = store.directory(), .out_closed_pipe = true});
    EXPECT_EQ(run.signal, SIGPIPE) << command[0];
    EXPECT_EQ(run.err, "") << command[0];
  }
}

// What they do is whole by the time that they say so.
TEST(CheckpointInspect, HasDoneItsWorkWhereNobodyReadsThatItHas) {
  TestStore store;
  store.Save({1, 2, 3});
  const std::string file = store.directory() + "/1.safetensors";
  const auto run = [&](const std::vector<std::string>& command) {
    SCOPED_TRACE(testing::PrintToString(command));
    const Finished finished = RunInspect(command, {.directory = store.directory(), .out_closed_pipe = true});
    EXPECT_EQ(finished.signal, SIGPIPE) << finished.exit_code << finished.err;
  };
  run({"export", "1", "-o", file});
  run({"import", file, "--step", "9"});
  EXPECT_EQ(store.Info(9).state, StepState::kCommitted);
  run({"pin", "1"});
  EXPECT_TRUE(store.Info(1).pinned);
  run({"unpin", "1"});
  EXPECT_FALSE(store.Info(1).pinned);
  run({"tag", "2", "paper"});
  EXPECT_THAT(store.Info(2).tags, testing::ElementsAre("paper"));
  run({"untag", "paper"});
  EXPECT_THAT(store.Info(2).tags, testing::IsEmpty());
  run({"unpin", "2"});
  run({"prune", "--keep-latest", "1", "--apply"});
  EXPECT_EQ(store.Info(1).state, StepState::kDeleted);
  EXPECT_EQ(store.Info(3).state, StepState::kDeleted);
  store.DamageChunk(9);
  run({"repair", "--apply"});
  EXPECT_EQ(store.Info(9).state, StepState::kLost);
}

TEST(CheckpointInspect, FailsWhereItsOutputCannotBeWritten) {
  TestStore store;
  store.Save({1, 2});
  store.Update(1, [](StepInfo& info) { info.state = StepState::kDeleted; });
  // Those in the second line also have something to note, before the end.
  const std::vector<std::vector<std::string>> commands = {
      {"ls", "--all"}, {"show", "2"}, {"--help"}, {"ls", "--help"},
      {"--version"},   {"man-page"},  {"ls"},     {"prune", "--keep-latest", "1"},
      {"repair"}};
  for (const std::vector<std::string>& command : commands) {
    const Finished run = RunInspect(command, {.directory = store.directory(), .out_path = "/dev/full"});
    EXPECT_EQ(run.exit_code, 1) << testing::PrintToString(command);
    EXPECT_THAT(run.err, HasSubstr("standard output: No space left on device")) << testing::PrintToString(command);
  }
}

// What it opens first gets their numbers then.
TEST(CheckpointInspect, WritesNothingElseIntoItsFilesWhereItHasNoStandardStreams) {
  TestStore store;
  store.Save({1, 2});
  const std::string trace = store.directory() + "/trace.json";
  for (const std::vector<int>& closed : {std::vector<int>{2}, {1, 2}, {0, 1, 2}}) {
    SCOPED_TRACE(testing::PrintToString(closed));
    const RunOptions options = {.directory = store.directory(), .closed = closed};
    EXPECT_EQ(RunInspect({"trace", "latest", "-o", trace, "--force"}, options).exit_code, 0);
    EXPECT_FALSE(ParseJson(ReadWhole(trace), nullptr, /*allow_exceptions=*/false).is_discarded());
  }
  EXPECT_EQ(RunInspect({"ls"}, {.directory = store.directory(), .closed = {1}}).exit_code, 1);
}

TEST(CheckpointInspect, SaysWhyAStepIsLost) {
  TestStore store;
  store.Save({1, 2});
  store.RemoveStep(1);
  store.Update(1, [](StepInfo& info) {
    info.state = StepState::kLost;
    info.reason = "damaged, and moved to quarantine";
  });
  const Finished tensors = RunInspect({"--store", store.directory(), "tensors", "1"});
  EXPECT_EQ(tensors.exit_code, 13);
  EXPECT_EQ(tensors.err, "checkpoint-inspect: error: step 1 is lost: damaged, and moved to quarantine\n");
}

TEST(CheckpointInspect, KeepsStandardOutputEmptyWhereJsonCannotBeGiven) {
  TestStore store;
  store.Save({1});
  const Finished show = RunInspect({"--store", store.directory(), "--json", "show", "9"});
  EXPECT_EQ(show.exit_code, 1);
  EXPECT_EQ(show.out, "");
  EXPECT_THAT(show.err, HasSubstr("step 9 is not in"));
}

}  // namespace
}  // namespace tidemark::inspect
