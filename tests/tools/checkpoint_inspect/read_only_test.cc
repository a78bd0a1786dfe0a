// What only reads opens nothing for writing: it says of a store that is mounted for reading what it says of any other.

#include <sys/mount.h>

#include <filesystem>
#include <fstream>
#include <regex>

#include "gmock/gmock.h"
#include "tests/storage/index/index_threads.h"
#include "tests/storage/io/child_process.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

namespace fs = std::filesystem;

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

// Of each command that changes nothing in the store: what it prints, its exit code, and how large the file is that it
// writes to `out`.
std::string ReadEverything(const std::string& store, const std::string& out) {
  const std::vector<std::vector<std::string>> commands = {{"ls"},
                                                          {"ls", "--all"},
                                                          {"show", "2"},
                                                          {"show", "latest"},
                                                          {"tensors", "2"},
                                                          {"tensors", "2", "--stats"},
                                                          {"diff", "1", "2"},
                                                          {"verify"},
                                                          {"verify", "2", "--read-data=50%", "--seed", "7"},
                                                          {"stats"},
                                                          {"history"},
                                                          {"history", "loss"},
                                                          {"report", "-o", out},
                                                          {"trace", "all", "-o", out},
                                                          {"export", "2", "-o", out},
                                                          {"journal"},
                                                          {"prune", "--keep-latest", "1"},
                                                          {"repair"}};
  std::string said;
  for (std::vector<std::string> arguments : commands) {
    said += "$ " + testing::PrintToString(arguments) + "\n";
    arguments.insert(arguments.begin(), {"--store", store});
    const Finished finished = RunInspect(arguments);
    said += finished.out + finished.err + "(exit " + std::to_string(finished.exit_code) + ")\n";
    if (fs::exists(out)) said += std::to_string(fs::file_size(out)) + " bytes written\n";
    fs::remove(out);
  }
  // How much of the disk is free is a matter of everybody who writes to it.
  return std::regex_replace(said, std::regex("disk: .*"), "");
}

TEST(ReadOnlyStore, IsReadByEveryCommandThatChangesNothing) {
  TestStore store;
  const TestStore elsewhere;
  // So long ago that no age changes meanwhile.
  const absl::Time then = absl::Now() - absl::Hours(400 * 24 + 12);
  store.Save({1, 2}, {.metrics = {{"loss", 0.5}}}, 5000, then);
  store.Save({3}, {.metrics = {{"loss", 0.25}}}, 5000, then + absl::Minutes(9));
  const std::string out = elsewhere.directory() + "/out";
  const std::string before = ReadEverything(store.directory(), out);
  EXPECT_THAT(before, Not(ContainsRegex("exit [^0]")));
  EXPECT_THAT(before, HasSubstr("3 of 3 steps sound"));
  storage::EndIndexThreads();
  const std::string mounted = storage::InChild([&]() -> std::string {
    const std::string& place = store.directory();
    if (!storage::EnterMountNamespace()) return "SKIP";
    // For root too.
    if (mount(place.c_str(), place.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
        mount(nullptr, place.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) != 0) {
      return "cannot mount it";
    }
    if (std::ofstream(place + "/file").is_open()) return "it can be written";
    return ReadEverything(place, out);
  });
  if (mounted == "SKIP") GTEST_SKIP() << "mount namespaces are not allowed here";
  EXPECT_EQ(mounted, before);
}

}  // namespace
}  // namespace tidemark::inspect
