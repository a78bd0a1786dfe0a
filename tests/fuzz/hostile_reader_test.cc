// Every hostile file of a store gets its error from the library, in little time and memory. What checkpoint-inspect
// makes of them is in hostile_case_test.cc.

#include <filesystem>
#include <set>
#include <string>

#include "fuzz/hostile_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/printable_text.h"
#include "storage/journal/journal_files.h"
#include "storage/journal/journal_reader.h"
#include "storage/records/fact.h"
#include "storage/records/manifest_records.h"
#include "storage/records/tag.h"
#include "storage/shard/format/bounded_shard_files.h"
#include "storage/shard/read/shard_reader.h"
#include "storage/shard/read/shard_verify.h"
#include "storage/store/first_format/folder_note.h"
#include "storage/store/first_format/report_files.h"
#include "storage/store/first_format/store_request.h"
#include "storage/store/lease.h"
#include "storage/store/store_identity.h"
#include "tests/fuzz/hostile_store.h"
#include "tests/fuzz/measured_child.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::fuzz {
namespace {

using testing::HasSubstr;

class ReadStore : public HostileStore {
 public:
  using HostileStore::HostileStore;

  absl::Status Read() const {
    storage::BoundedShardFiles files(storage::PosixFileSystemAt(directory_.path()));
    const auto reader = storage::ShardReader::Open(files, path(), layout_.steps());
    if (!reader.ok()) return reader.status();
    const auto verified =
        VerifyShard(files, path(), layout_.steps(), &identity_, {.io = storage::IoQueueKind::kThreads});
    if (!verified.ok()) return verified.status();
    if (verified->damage.empty()) return absl::OkStatus();
    return absl::DataLossError(verified->damage[0].what);
  }
};

// The error, or what is left of the note.
std::string ReadNote(const HostileCase& hostile) {
  const storage::TestDirectory directory;
  storage::WriteWhole(directory / "pin.json", hostile.bytes);
  const auto note = storage::ReadFolderNote(storage::PosixFileSystem(), directory / "pin.json");
  if (!note.ok()) return note.status().ToString();
  if (!note->has_value()) return "it is not there";
  if (!(*note)->problem.ok()) return (*note)->problem.ToString();
  if (absl::Status tags = storage::CheckTags((*note)->tags); !tags.ok()) return tags.ToString();
  return "OK: a note of " + std::to_string((*note)->text.size()) + " bytes, " + std::to_string((*note)->tags.size()) +
         " tags";
}

absl::Status Read(const HostileCase& hostile) {
  const std::string& name = hostile.file;
  if (name.ends_with(".tmk")) return ReadStore(hostile).Read();
  if (name.ends_with(".step")) return storage::DecodeStepRecord(hostile.bytes).status();
  if (name.ends_with(".request")) return storage::DecodeStoreRequest(hostile.bytes).status();
  if (name.ends_with(".lease")) return storage::DecodeLeaseNote(hostile.bytes).status();
  if (name.ends_with(".fact")) return storage::DecodeFact(hostile.bytes).status();
  const storage::TestDirectory directory;
  const storage::StoreLayout layout(directory.path());
  if (const auto number = NumberOf(hostile)) {
    const storage::JournalFiles files(storage::PosixFileSystem(), layout.journal());
    std::filesystem::create_directories(files.FolderOf(*number));
    EXPECT_TRUE(WriteHostileFile(hostile, files.PathOf(*number)));
    return ReadEntry(files, *number).status();
  }
  storage::WriteWhole(layout.identity(), hostile.bytes);
  if (name.ends_with(".identity")) return ReadStoreIdentity(storage::PosixFileSystem(), layout).status();
  if (name.ends_with(".report")) return storage::ReadReport(storage::PosixFileSystem(), layout.identity()).status();
  return absl::UnknownError("what is " + name + "?");
}

// The tool's own.
bool IsOfAStore(const HostileCase& hostile) {
  return !hostile.file.ends_with(".safetensors") && !hostile.file.ends_with(".index.json") &&
         !hostile.file.ends_with(".pt");
}

TEST(HostileFiles, AreThoseOfTheTable) {
  EXPECT_EQ(HostileTable(HostileCases()), storage::ReadWhole(HOSTILE_TABLE))
      << "write it anew with fuzz_make_hostile, and look at what has changed";
}

TEST(HostileFiles, AreManyAndOfEveryClass) {
  std::set<std::string> names;
  std::set<std::string> classes;
  for (const HostileCase& hostile : HostileCases()) {
    EXPECT_TRUE(names.insert(hostile.file).second) << hostile.file << " is there twice";
    EXPECT_FALSE(hostile.message.empty()) << hostile.file;
    classes.insert(hostile.file.substr(0, hostile.file.find('-')));
  }
  EXPECT_GE(names.size(), 200u);
  EXPECT_THAT(classes, testing::IsSupersetOf(
                           {"bomb", "count", "name", "nesting", "overflow", "overlap", "path", "truncation", "utf8"}));
}

TEST(HostileFiles, EachGetsItsErrorInLittleTimeAndMemory) {
  for (const HostileCase& hostile : HostileCases()) {
    if (!IsOfAStore(hostile)) continue;
    SCOPED_TRACE(hostile.file);
    const std::string answer =
        InMeasuredChild([&] { return hostile.file.ends_with(".note") ? ReadNote(hostile) : Read(hostile).ToString(); });
    EXPECT_THAT(answer, testing::StartsWith(absl::StatusCodeToString(hostile.code) + ": "));
    EXPECT_THAT(answer, HasSubstr(hostile.message));
    EXPECT_EQ(storage::PrintableText(answer), answer);
  }
}

}  // namespace
}  // namespace tidemark::fuzz
