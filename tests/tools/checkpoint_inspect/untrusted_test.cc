#include <sys/stat.h>
#include <sys/syscall.h>

#include <filesystem>

#include "gmock/gmock.h"
#include "tests/storage/index/index_threads.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"
#include "tidemark/store_reader.h"

namespace tidemark::inspect {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::Not;

class Untrusted : public testing::Test {
 protected:
  void SetUp() override {
    if (storage::kAddressSanitizer) GTEST_SKIP() << storage::kNoSandbox;
  }
};

// What the sandbox denies, libraries may complain of: Abseil's locks do, where threads wait for one.
const auto kNothingOfItsOwn =
    testing::AnyOf("", MatchesRegex("checkpoint-inspect: warning: this kernel has no [^\n]*\n"));

// What opening RocksDB would stumble over: its folder is a fifo.
void TakeIndex(const TestStore& store) {
  std::filesystem::remove_all(store.directory() + "/index");
  ASSERT_EQ(mkfifo((store.directory() + "/index").c_str(), 0600), 0);
}

TEST_F(Untrusted, EveryCommandSaysTheSameWithoutTheIndex) {
  TestStore store;
  store.Save({1, 2}, {.metrics = {{"loss", 0.5}}, .user_metadata = R"({"run": "a"})"});
  store.Deliver(2, {.evaluator = "validation", .worker = "w", .metrics = {{"loss", 0.25}}});
  const std::vector<std::string> base = {"--store", store.directory()};
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), base.begin(), base.end());
    return RunInspectJson(arguments);
  };
  const std::vector<std::vector<std::string>> commands = {
      {"ls", "--json"},
      {"ls", "--all", "--last", "1", "--json"},
      {"verify"},
      {"verify", "latest", "--read-data=50%", "--seed", "1", "--json"},
      {"history", "--json"},
      {"history", "validation/loss", "loss", "--json"},
      {"history", "--plot"},
      {"tensors", "latest", "--json"},
      {"tensors", "1", "--stats", "--sort", "size", "--json"},
      {"tensors", "latest", "*", "--tree", "--stats", "--json"},
      {"diff", "1", "latest", "--json"},
      {"diff", "1", "latest", "--structure-only"},
  };
  std::vector<Finished> trusted;
  for (std::vector<std::string> command : commands) {
    command.insert(command.begin(), base.begin(), base.end());
    trusted.push_back(RunInspect(command));
    EXPECT_NE(trusted.back().out, "") << trusted.back().err;
  }
  const json stats = run({"stats"});
  const json show = run({"show", "latest"});
  EXPECT_THAT(show["phases"], Not(IsEmpty()));
  TakeIndex(store);
  for (size_t i = 0; i < commands.size(); ++i) {
    std::vector<std::string> command = commands[i];
    SCOPED_TRACE(testing::PrintToString(command));
    command.insert(command.begin(), base.begin(), base.end());
    command.push_back("--untrusted");
    const Finished finished = RunInspect(command);
    EXPECT_EQ(finished.exit_code, trusted[i].exit_code) << finished.err;
    EXPECT_EQ(finished.out, trusted[i].out);
    EXPECT_THAT(finished.err, kNothingOfItsOwn);
  }
  EXPECT_EQ(run({"--untrusted", "show", "latest"}), show);
  const json untrusted_stats = run({"--untrusted", "stats"});
  for (const char* field : {"states", "growth"}) EXPECT_EQ(untrusted_stats[field], stats[field]) << field;
  EXPECT_EQ(run({"--untrusted", "verify"})["index"], nullptr);
}

TEST_F(Untrusted, ReadsTheShardsIfTheJournalIsDamaged) {
  TestStore store;
  store.Save({1, 2});
  store.DamageJournal();
  const Finished ls = RunInspect({"--store", store.directory(), "--untrusted", "ls"});
  EXPECT_EQ(ls.exit_code, 3);
  EXPECT_THAT(ls.out, HasSubstr(" committed "));
  EXPECT_THAT(ls.err, HasSubstr("the journal cannot be read"));
}

TEST_F(Untrusted, SaysNothingOfItsOwnWhereTheKernelHasAllOfIt) {
  TestStore store;
  store.Save({1});
  const Finished ls = RunInspect({"--store", store.directory(), "ls", "--untrusted"});
  EXPECT_EQ(ls.exit_code, 0);
  EXPECT_THAT(ls.out, HasSubstr(" committed "));
  EXPECT_THAT(ls.err, kNothingOfItsOwn);
}

TEST_F(Untrusted, SaysInOneLineWhatTheKernelLacks) {
  TestStore store;
  store.Save({1});
  storage::EndIndexThreads();
  const std::string said = storage::InChild([&]() -> std::string {
    if (!storage::DenySystemCalls({444}, ENOSYS)) return "SKIP";  // landlock_create_ruleset
    const Finished ls = RunInspect({"--store", store.directory(), "--untrusted", "ls"});
    return std::to_string(ls.exit_code) + " " + ls.err;
  });
  if (said == "SKIP") GTEST_SKIP() << "system calls cannot be denied here";
  EXPECT_EQ(said, "0 checkpoint-inspect: warning: this kernel has no Landlock, so the sandbox is weaker\n");
}

TEST_F(Untrusted, FindsDamage) {
  TestStore store;
  store.Save({1, 2});
  store.DamageChunk(2);
  const Finished verify = RunInspect({"--store", store.directory(), "--untrusted", "verify"});
  EXPECT_EQ(verify.exit_code, 3) << verify.err;
  EXPECT_THAT(verify.out, AllOf(HasSubstr("step 2: damaged"), HasSubstr("restore takes step 1")));
}

TEST_F(Untrusted, NamesTheStepsThatItCannotRead) {
  TestStore store;
  store.Save({1, 2});
  store.DamageIndex(2);
  store.DamageJournal();
  const Finished ls = RunInspect({"--store", store.directory(), "--untrusted", "ls"});
  EXPECT_THAT(ls.err, AllOf(HasSubstr("not listed, because it could not be read: 0000000002-"), HasSubstr("index")));
}

TEST_F(Untrusted, ReachesAStoreThroughALinkOfTheUsersOwnAndNoneOfTheStores) {
  TestStore store;
  store.Save({1});
  const std::string link = store.directory() + "-link";
  std::filesystem::create_directory_symlink(store.directory(), link);
  const Finished ls = RunInspect({"--store", link, "--untrusted", "ls"});
  EXPECT_EQ(ls.exit_code, 0) << ls.err;
  EXPECT_THAT(ls.out, HasSubstr(" committed "));
  ASSERT_EQ(RunInspect({"--store", store.directory(), "pin", "1"}).exit_code, 0);
  const Finished verify = RunInspect({"--store", link, "--untrusted", "verify"});
  EXPECT_EQ(verify.exit_code, 0) << verify.out << verify.err;
  std::filesystem::rename(store.directory() + "/steps", store.directory() + "/elsewhere");
  std::filesystem::create_directory_symlink("elsewhere", store.directory() + "/steps");
  const Finished through = RunInspect({"--store", link, "--untrusted", "verify", "1"});
  EXPECT_NE(through.exit_code, 0);
  EXPECT_THAT(through.out, HasSubstr("/steps is a link"));
  std::filesystem::rename(store.directory() + "/journal", store.directory() + "/another");
  std::filesystem::create_directory_symlink("another", store.directory() + "/journal");
  const Finished journal = RunInspect({"--store", link, "--untrusted", "journal"});
  EXPECT_NE(journal.exit_code, 0);
  EXPECT_EQ(journal.out, "");
  EXPECT_THAT(journal.err, HasSubstr("/steps is a link"));
  std::filesystem::remove(link);
}

TEST_F(Untrusted, SaysThatThereIsNoStore) {
  TestStore store;
  for (const std::string& directory : {store.directory(), store.directory() + "/absent"}) {
    const Finished ls = RunInspect({"--store", directory, "--untrusted", "ls"});
    EXPECT_EQ(ls.exit_code, 10);
    EXPECT_THAT(ls.err, AllOf(HasSubstr(directory), Not(HasSubstr("not permitted"))));
  }
}

TEST(OpenUntrusted, ReadsEntriesAsOpenDoes) {
  TestStore store;
  store.Save({1});
  const auto trusted = StoreReader::Open(store.directory());
  TakeIndex(store);
  const auto reader = StoreReader::OpenUntrusted(store.directory());
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_TRUE((*reader)->journal_problem().ok());
  EXPECT_EQ((*reader)->store_id(), (*trusted)->store_id());
  EXPECT_EQ((*reader)->ReadEntry(1, "model.weight").value(), (*trusted)->ReadEntry(1, "model.weight").value());
  EXPECT_TRUE((*reader)->Refresh().ok());
  EXPECT_EQ((*reader)->Steps().size(), 1u);
}

}  // namespace
}  // namespace tidemark::inspect
