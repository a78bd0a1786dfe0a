// What checkpoint-inspect makes of hostile files, in little time and memory: its commands over a store that is made of
// a shard, and its readers of other tools' files. What the library says to them is in hostile_reader_test.cc.

#include "fuzz/hostile_case.h"

#include <cstdio>
#include <string>

#include "absl/time/time.h"
#include "fuzz/inspect_commands.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/printable_text.h"
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

class InspectedStore : public HostileStore {
 public:
  using HostileStore::HostileStore;

  // Whether the commands call it sound, or print what a terminal should not get.
  std::string Inspect() const {
    const auto reader = StoreReader::OpenUntrusted(directory_.path());
    if (!reader.ok()) return reader.status().ToString();
    inspect::ExitCode verified = inspect::ExitCode::kOk;
    const std::string trouble = LookAtOutput([&](inspect::Console& console) {
      const inspect::Invocation invocation{console,        **reader,          directory_.path(),
                                           /*json=*/false, absl::UnixEpoch(), directory_.path()};
      ListSteps(invocation, {.all = true});
      ShowStep(invocation, {});
      verified = VerifySteps(invocation, std::nullopt, {});
    });
    if (!trouble.empty()) return trouble;
    return verified == inspect::ExitCode::kOk ? "verify calls it sound" : "";
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
