// What checkpoint-inspect --untrusted makes of hostile files, in little time and memory: its commands over a store that
// is made of a shard, or has the file at its place beside a sound shard, and its readers of other tools' files. Records
// of steps and files of the first format are not here, which no command reads from a stranger. What the library says to
// them is in hostile_reader_test.cc.

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
#include "storage/io/file_system.h"
#include "storage/io/printable_text.h"
#include "storage/journal/journal_files.h"
#include "storage/store/lease.h"
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

  // Puts the file where the store would have it, by its ending. False: there is no such place.
  bool Place(const HostileCase& hostile) const {
    const storage::JournalFiles journal(storage::PosixFileSystem(), layout_.journal());
    HostileCase file = hostile;
    std::string path;
    if (hostile.file.ends_with(".identity")) path = layout_.identity();
    if (hostile.file.ends_with(".lease")) {
      path = layout_.leases() + "/" + storage::LeaseFileName(identity_.attempt, "e");
    }
    if (const auto number = NumberOf(hostile)) path = journal.PathOf(*number);
    if (hostile.file.ends_with(".fact")) {
      path = journal.PathOf(1);
      file.bytes = EntryFileWith(hostile.bytes);
    }
    if (path.empty()) return false;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    return WriteHostileFile(file, path);
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
    const InspectedStore store(sound);
    if (!store.Place(hostile)) continue;
    ++placed[hostile.file.substr(hostile.file.rfind('.'))];
    EXPECT_EQ(InMeasuredChild([&] { return store.InspectAll(LookingCommands()); }), "");
  }
  EXPECT_THAT(placed, testing::UnorderedElementsAre(Key(".identity"), Key(".lease"), Key(".entry"), Key(".far-entry"),
                                                    Key(".segment"), Key(".fact")));
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
