// A store of the first format, which has a manifest and no journal.

#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class FirstFormatTest : public testing::Test {
 protected:
  // With a manifest that is empty, so that all that is known of the steps is in the shards.
  FirstFormatTest() {
    store_.Save({1, 2});
    fs::remove_all(store_.directory() + "/journal");
    store_.RemoveIndex();
    fs::create_directory(store_.directory() + "/manifest");
    std::string identity = ReadWhole(store_.directory() + "/store.json");
    const size_t format = identity.find("\"format\":");
    identity.replace(format, 10, "\"format\":1");
    WriteWhole(store_.directory() + "/store.json", identity);
  }

  Finished Run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"--store", store_.directory()});
    return RunInspect(arguments);
  }

  const TestStore store_;
};

TEST_F(FirstFormatTest, EveryCommandThatReadsItSaysWhatToDo) {
  const auto before = store_.Listing();
  for (const std::vector<std::string>& command : {std::vector<std::string>{"ls"},
                                                  {"ls", "--follow"},
                                                  {"show", "1"},
                                                  {"tensors", "1"},
                                                  {"history"},
                                                  {"stats"},
                                                  {"verify"},
                                                  {"journal"},
                                                  {"pin", "1"},
                                                  {"tag", "1", "paper"},
                                                  {"prune", "--keep-latest", "1", "--apply"},
                                                  {"export", "1", "-o", store_.directory() + "/out"},
                                                  {"report", "-o", store_.directory() + "/out"}}) {
    const Finished run = Run(command);
    EXPECT_EQ(run.exit_code, 14) << command[0];
    EXPECT_EQ(run.out, "") << command[0];
    EXPECT_THAT(run.err, AllOf(HasSubstr("an older version of Tidemark wrote the store " + store_.directory()),
                               HasSubstr("repair --apply")))
        << command[0];
  }
  EXPECT_EQ(Run({"diff", "1", "2"}).exit_code, 2);
  EXPECT_EQ(store_.Listing(), before);
}

TEST_F(FirstFormatTest, IsConvertedByARepair) {
  const auto before = store_.Listing();
  const auto plan = RunInspectJson({"--store", store_.directory(), "repair"}, 3);
  EXPECT_EQ(store_.Listing(), before);
  EXPECT_EQ(plan["changes"][0]["action"], "convert");
  EXPECT_EQ(plan["restore"], 2);
  const Finished repaired = Run({"repair", "--apply"});
  EXPECT_EQ(repaired.exit_code, 0) << repaired.err;
  EXPECT_THAT(repaired.out, HasSubstr("to the format of this version"));
  EXPECT_EQ(RunInspectJson({"--store", store_.directory(), "ls"})["steps"].size(), 2u);
  EXPECT_EQ(Run({"verify"}).exit_code, 0);
}

TEST_F(FirstFormatTest, IsReadFromItsShardsIfItIsUntrusted) {
  if (storage::kAddressSanitizer) GTEST_SKIP() << storage::kNoSandbox;
  const Finished ls = Run({"--untrusted", "ls"});
  EXPECT_EQ(ls.exit_code, 0) << ls.err;
  EXPECT_EQ(Occurrences(ls.out, " committed "), 2u);
  const Finished verify = Run({"--untrusted", "verify"});
  EXPECT_EQ(verify.exit_code, 0) << verify.err;
  EXPECT_THAT(verify.out, HasSubstr("2 of 2 steps sound; a restore takes step 2\n"));
}

}  // namespace
}  // namespace tidemark::inspect
