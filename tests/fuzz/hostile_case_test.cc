// What checkpoint-inspect --untrusted makes of hostile files, in little time and memory: its commands over a store that
// is made of a shard, or has the file at its place beside a sound shard, and its readers of other tools' files. All
// files but records of steps are here, which no command reads from a stranger. What the library says to them is in
// hostile_reader_test.cc.

#include "fuzz/hostile_case.h"

#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "fuzz/inspect_commands.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/printable_text.h"
#include "storage/manifest/lease.h"
#include "storage/manifest/store_request.h"
#include "storage/records/metric_report.h"
#include "tests/fuzz/hostile_store.h"
#include "tests/fuzz/measured_child.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/shard/shard_testing.h"
#include "tools/checkpoint_inspect/commands/commands.h"
#include "tools/checkpoint_inspect/exchange/file_metadata.h"
#include "tools/checkpoint_inspect/exchange/safetensors.h"
#include "tools/checkpoint_inspect/exchange/torch_save.h"

namespace tidemark::fuzz {
namespace {

using testing::HasSubstr;
using testing::Key;

class InspectedStore : public HostileStore {
 public:
  using HostileStore::HostileStore;

  // Whether the commands call it sound, or print what a terminal should not get.
  std::string Inspect() const {
    const auto reader = StoreReader::OpenUntrusted(directory_.path());
    if (!reader.ok()) return reader.status().ToString();
    inspect::ExitCode verified = inspect::ExitCode::kOk;
    const std::string trouble = LookAtOutput([&](inspect::Console& console) {
      const inspect::Invocation invocation{
          console,           **reader,          directory_.path(),  /*json=*/false,
          absl::UnixEpoch(), directory_.path(), /*untrusted=*/true,
      };
      ListSteps(invocation, {.all = true});
      ShowStep(invocation, StepSelector::Latest());
      verified = VerifySteps(invocation, std::nullopt, {});
    });
    if (!trouble.empty()) return trouble;
    return verified == inspect::ExitCode::kOk ? "verify calls it sound" : "";
  }

  // Puts the file where the store would have it: in one place of several, by its ending. False: there is none.
  bool Place(const HostileCase& hostile, size_t place) const {
    const std::string folder = layout_.attempt(identity_.step, identity_.attempt);
    const std::string ending = hostile.file.substr(hostile.file.rfind('.'));
    std::vector<std::string> paths;
    if (ending == ".identity") paths = {layout_.identity()};
    if (ending == ".note") paths = {folder + "/pin.json", folder + "/deleted.json"};
    if (ending == ".lease") paths = {layout_.leases() + "/" + storage::LeaseFileName(identity_.attempt, "e")};
    if (ending == ".report") {
      paths = {folder + "/" + storage::MetricFileName("e"),
               layout_.inbox() + "/" + storage::InboxFileName(identity_.step, identity_.attempt, "e")};
    }
    if (ending == ".request")
      paths = {layout_.inbox() + "/" + storage::RequestFileName({identity_.step, identity_.attempt}, hostile.bytes)};
    if (place >= paths.size()) return false;
    std::filesystem::create_directories(std::filesystem::path(paths[place]).parent_path());
    storage::WriteWhole(paths[place], hostile.bytes);
    return true;
  }

  // Whether any of the commands prints what a terminal should not get. A store without a name that can be read is none.
  std::string InspectAll(const std::vector<InspectCommand>& commands) const {
    const absl::Status opened = StoreReader::OpenUntrusted(directory_.path()).status();
    if (!opened.ok()) return storage::PrintableText(opened.ToString()) == opened.ToString() ? "" : "the error";
    for (const InspectCommand& command : commands) {
      if (std::string trouble = Inspect(command); !trouble.empty()) return trouble;
    }
    return "";
  }

  // Whether the command prints what a terminal should not get.
  std::string Inspect(const InspectCommand& command) const {
    return LookAtOutput([&](inspect::Console& console) { Run(command, console, directory_.path(), /*json=*/false); });
  }

 private:
  static std::string LookAtOutput(const std::function<void(inspect::Console&)>& print) {
    char* text = nullptr;
    size_t size = 0;
    std::FILE* const stream = open_memstream(&text, &size);
    {
      inspect::Console console(stream, stream);
      print(console);
    }
    std::fclose(stream);
    std::string printed(text, size);
    std::free(text);
    std::erase(printed, '\n');
    return storage::PrintableText(printed) == printed ? "" : "an output has what a terminal should not get";
  }
};

absl::Status ReadFileOf(const HostileCase& hostile) {
  const std::string& name = hostile.file;
  const storage::TestDirectory directory;
  if (name.ends_with(".safetensors") || name.ends_with(".index.json")) {
    storage::WriteWhole(directory / name, hostile.bytes);
    inspect::FileMetadata metadata(/*with_step=*/true);
    const absl::Status opened = inspect::OpenSafetensors(directory / name, &metadata).status();
    return opened.ok() ? metadata.UserMetadata({name}).status() : opened;
  }
  if (name.ends_with(".pt")) {
    storage::WriteWhole(directory / name, hostile.bytes);
    inspect::FileMetadata metadata(/*with_step=*/true);
    return inspect::OpenTorchSave(directory / name, &metadata).status();
  }
  return absl::UnknownError("what is " + name + "?");
}

TEST(HostileFiles, AreInspectedWithoutHarm) {
  for (const HostileCase& hostile : HostileCases()) {
    if (!hostile.file.ends_with(".tmk")) continue;
    SCOPED_TRACE(hostile.file);
    const InspectedStore store(hostile);
    const storage::TestDirectory out;
    EXPECT_EQ(InMeasuredChild([&] { return store.Inspect(); }), "");
    for (const InspectCommand& command : TensorCommands("latest", out.path())) {
      SCOPED_TRACE(testing::PrintToString(command.words));
      EXPECT_EQ(InMeasuredChild([&] { return store.Inspect(command); }), "");
    }
  }
}

TEST(HostileFiles, BesideASoundShardAreInspectedWithoutHarm) {
  const storage::ShardHeader header{.identity = IdentityAt(kHostilePlace), .chunk_bytes = 4096};
  const HostileCase sound{.file = "sound.tmk", .bytes = AssembleShard(header, "", storage::EncodeShardIndex({}))};
  std::map<std::string, int> placed;  // by the ending
  for (const HostileCase& hostile : HostileCases()) {
    SCOPED_TRACE(hostile.file);
    for (size_t place = 0;; ++place) {
      const InspectedStore store(sound);
      if (!store.Place(hostile, place)) break;
      ++placed[hostile.file.substr(hostile.file.rfind('.'))];
      EXPECT_EQ(InMeasuredChild([&] { return store.InspectAll(LookingCommands()); }), "");
    }
  }
  EXPECT_THAT(placed, testing::UnorderedElementsAre(Key(".identity"), Key(".note"), Key(".lease"), Key(".report"),
                                                    Key(".request")));
}

TEST(HostileFiles, OfOtherToolsGetTheirErrorInLittleTimeAndMemory) {
  for (const HostileCase& hostile : HostileCases()) {
    const std::string& name = hostile.file;
    if (!name.ends_with(".safetensors") && !name.ends_with(".index.json") && !name.ends_with(".pt")) continue;
    SCOPED_TRACE(hostile.file);
    const std::string answer = InMeasuredChild([&] { return ReadFileOf(hostile).ToString(); });
    EXPECT_THAT(answer, testing::StartsWith(absl::StatusCodeToString(hostile.code) + ": "));
    EXPECT_THAT(answer, HasSubstr(hostile.message));
    EXPECT_EQ(storage::PrintableText(answer), answer);
  }
}

}  // namespace
}  // namespace tidemark::fuzz
