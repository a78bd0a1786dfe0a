#include "storage/journal/journal_packing.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/journal/journal.h"
#include "storage/journal/journal_reader.h"
#include "storage/journal/segment.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/journal/journal_testing.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::HasSubstr;

class JournalPackingTest : public testing::Test {
 protected:
  JournalPackingTest() : journal_(Journal::Open(files_, "/journal", {}, {.create = true}).value()) {}

  void Append(int count) {
    for (int i = 0; i < count; ++i) {
      facts_.push_back(fmt::format("fact {}", facts_.size() + 1));
      ASSERT_TRUE(AppendFact(*journal_, facts_.back()).ok());
    }
  }
  // Of a new handle, which settles what it finds.
  std::vector<std::string> Found() {
    const auto reader = Journal::Open(files_, "/journal", {}).value();
    EXPECT_TRUE(reader->Settle().ok());
    std::vector<std::string> facts = Facts(*reader);
    std::erase(facts, "(settles)");
    return facts;
  }
  absl::Status Pack(EntryNumber first, EntryNumber last) { return PackEntries(journal_files_, first, last); }

  SimulatedDisk disk_;
  FailingFileSystem files_{disk_};
  const JournalFiles journal_files_{files_, "/journal"};
  std::unique_ptr<Journal> journal_;
  std::vector<std::string> facts_;
};

TEST_F(JournalPackingTest, EntriesKeepTheirNamesAndReadAsBefore) {
  Append(140);
  const JournalPlace place = AppendFact(*journal_, "placed").place;
  facts_.push_back("placed");
  Append(5);
  ASSERT_THAT(Pack(1, 128), IsOk());
  EXPECT_EQ(*journal_files_.IsPacked(1), true);
  EXPECT_EQ(*journal_files_.IsPacked(128), true);
  EXPECT_EQ(*journal_files_.IsPacked(129), false);
  EXPECT_EQ(*disk_.Identify(journal_files_.PathOf(1)), *disk_.Identify(journal_files_.PathOf(128)));
  EXPECT_EQ(Found(), facts_);
  const auto left = disk_.ListDirectory("/journal/0000/00");
  ASSERT_THAT(left, IsOk());
  for (const DirectoryEntry& entry : *left) {
    EXPECT_FALSE(entry.name.starts_with(kNewPrefix)) << entry.name;
  }
  const auto later = Journal::Open(files_, "/journal", place).value();
  EXPECT_THAT(Facts(*later).front(), "fact 142");
  EXPECT_TRUE(AppendFact(*later, "after").ok());
  // From the middle of a segment.
  const auto first = ReadEntry(journal_files_, 50);
  const auto middle = Journal::Open(files_, "/journal", {.number = 50, .digest = (*first)->digest}).value();
  EXPECT_THAT(Facts(*middle).front(), "fact 51");
  EXPECT_THAT(Journal::Open(files_, "/journal", {.number = 50}).status(),
              StatusIs(StatusCode::kOutOfRange, HasSubstr("50")));
}

TEST_F(JournalPackingTest, AHandleGoesOnWhateverWasPackedMeanwhile) {
  Append(10);
  const auto reader = Journal::Open(files_, "/journal", {}).value();
  Facts(*reader);
  Append(60);
  ASSERT_THAT(Pack(1, 69), IsOk());
  const std::vector<std::string> facts = Facts(*reader);
  EXPECT_EQ(facts.front(), "fact 10");
  EXPECT_EQ(facts.size(), 61u);
  EXPECT_TRUE(AppendFact(*reader, "mine").ok());
  EXPECT_EQ(Facts(*journal_).back(), "mine?");
}

// Each call of it fails once: whatever is replaced by then, the journal reads as before, and packing goes on.
TEST_F(JournalPackingTest, AFailureLeavesEitherFormOfEachEntry) {
  Append(12);
  files_.Reset();
  ASSERT_THAT(Pack(1, 11), IsOk());
  const size_t calls = files_.calls().size();
  for (size_t call = 0; call < calls; ++call) {
    files_.Reset();
    files_.FailCall(call, absl::InternalError("EIO"));
    Pack(1, 11).IgnoreError();
    files_.SetRule(nullptr);
    const auto reader = Journal::Open(files_, "/journal", {}).value();
    EXPECT_EQ(Facts(*reader).size(), 12u) << call;
    EXPECT_EQ(reader->last().number, 12u);
  }
  EXPECT_THAT(Pack(1, 11), IsOk());
  EXPECT_EQ(Found(), facts_);
}

TEST_F(JournalPackingTest, AMissingEntryInAHalfPackedPartIsInTheSegment) {
  Append(12);
  ASSERT_THAT(Pack(1, 11), IsOk());
  ASSERT_THAT(disk_.RemoveFile(journal_files_.PathOf(1)), IsOk());
  ASSERT_THAT(disk_.RemoveFile(journal_files_.PathOf(5)), IsOk());
  EXPECT_EQ(Found(), facts_);
}

TEST_F(JournalPackingTest, ADamagedSegmentIsNamed) {
  Append(12);
  ASSERT_THAT(Pack(1, 11), IsOk());
  std::string bytes = *ReadSmallFile(disk_, journal_files_.PathOf(1), 100000);
  bytes[bytes.size() / 2] ^= 1;
  for (EntryNumber number = 1; number <= 11; ++number)
    ASSERT_THAT(disk_.RemoveFile(journal_files_.PathOf(number)), IsOk());
  auto file = disk_.Create(journal_files_.PathOf(1), /*direct=*/false);
  ASSERT_THAT((*file)->WriteAt(0, std::as_bytes(std::span(bytes))), IsOk());
  const auto reader = Journal::Open(files_, "/journal", {}).value();
  EXPECT_THAT(reader->Look([](const KnownEntry&, bool) { ADD_FAILURE() << "visited"; }),
              StatusIs(StatusCode::kDataLoss, AllOf(HasSubstr("/0000000001: the segment of journal entry 1: "),
                                                    HasSubstr("with the checksum"))));
}

TEST_F(JournalPackingTest, AnEntryThatCannotBeReadKeepsItsPartFromBeingPacked) {
  Append(12);
  ASSERT_THAT(disk_.RemoveFile(journal_files_.PathOf(5)), IsOk());
  EXPECT_THAT(Pack(1, 11), StatusIs(StatusCode::kDataLoss, HasSubstr("journal entry 5 cannot be read")));
  EXPECT_EQ(*journal_files_.IsPacked(1), false);
}

// Its writer's sync failed, so the entry after it carries it.
TEST_F(JournalPackingTest, AFirstEntryThatOnlyACopyHasIsPacked) {
  Append(4);
  files_.FailOperation("SyncDirectory", absl::InternalError("EIO"));
  Append(1);
  files_.Reset();
  Append(4);
  ASSERT_THAT(Pack(1, 4), IsOk());
  const DiskImage image = disk_.image();
  for (const bool is_another : {false, true}) {
    SimulatedDisk disk(image);
    const JournalFiles files(disk, "/journal");
    ASSERT_THAT(disk.RemoveFile(files.PathOf(5)), IsOk());
    if (is_another) {
      const JournalEntry entry{
          .number = 5, .id = TestEntryId(1), .durable = 4, .previous = {{7}}, .facts = {"another"}};
      auto file = disk.Create(files.PathOf(5), /*direct=*/false);
      ASSERT_THAT(file, IsOk());
      const std::string bytes = EncodeEntryFile({.entry = entry}).value();
      ASSERT_THAT((*file)->WriteAt(0, std::as_bytes(std::span(bytes))), IsOk());
    }
    ASSERT_THAT(PackEntries(files, 5, 8), IsOk()) << is_another;
    EXPECT_EQ(*files.IsPacked(5), true);
    std::vector<std::string> facts = Facts(*Journal::Open(disk, "/journal", {}).value());
    std::erase(facts, "(settles)");
    EXPECT_EQ(facts.size(), facts_.size());
    EXPECT_EQ(facts[4], "fact 5");
  }
}

// Every byte of a small journal is changed, every file cut or removed: what is visited are the facts, in their order,
// until an error names the file or the entry.
TEST_F(JournalPackingTest, DamageIsNamedAndNeverReadAsFacts) {
  Append(4);
  ASSERT_THAT(Pack(1, 3), IsOk());
  Append(2);
  // The last two were written by one that did not know the fifth to be durable.
  files_.FailOperation("SyncDirectory", absl::InternalError("EIO"));
  Append(1);
  files_.Reset();
  const DiskImage image = disk_.image();
  const EntryNumber last = journal_->last().number;
  size_t errors = 0;
  const auto check = [&](SimulatedDisk& disk, const std::string& path, const std::string& what) {
    SCOPED_TRACE(path + " " + what);
    std::vector<std::string> facts;
    const auto journal = Journal::Open(disk, "/journal", {});
    ASSERT_THAT(journal, IsOk());
    const absl::Status status = (*journal)->Look([&](const KnownEntry& known, bool) {
      if (!known.entry.facts.empty()) facts.push_back(known.entry.facts[0]);
    });
    ASSERT_LE(facts.size(), facts_.size());
    EXPECT_TRUE(std::equal(facts.begin(), facts.end(), facts_.begin()));
    if (status.ok()) {
      // The last entry alone can be missing without a trace.
      EXPECT_GE(facts.size(), facts_.size() - 1);
    } else {
      ++errors;
      EXPECT_TRUE(absl::IsDataLoss(status)) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("journal entry"));
    }
  };
  for (EntryNumber number = 1; number <= last; ++number) {
    const std::string path = journal_files_.PathOf(number);
    const std::string bytes = *ReadSmallFile(disk_, path, 100000);
    for (size_t i = 0; i < bytes.size() + 2; ++i) {
      SimulatedDisk disk(image);
      // A segment has the same bytes under each name: all of them are damaged then.
      std::vector<std::string> names = {path};
      if (number == 1) names = {path, journal_files_.PathOf(2), journal_files_.PathOf(3)};
      for (const std::string& name : names) {
        ASSERT_THAT(disk.RemoveFile(name), IsOk());
        if (i == bytes.size() + 1) continue;
        std::string changed = i < bytes.size() ? bytes : bytes.substr(0, bytes.size() / 2);
        if (i < bytes.size()) changed[i] = static_cast<char>(changed[i] ^ 0x21);
        auto file = disk.Create(name, /*direct=*/false);
        ASSERT_THAT((*file)->WriteAt(0, std::as_bytes(std::span(changed))), IsOk());
      }
      check(disk, path, fmt::format("byte {}", i));
    }
  }
  EXPECT_GT(errors, 500u);
}

TEST(JournalMaintenanceTest, TheHolderPacksASegmentOnceTheEntryAfterItIsThere) {
  SimulatedDisk disk;
  FailingFileSystem failing(disk);
  const JournalFiles files(disk, "/journal");
  auto journal = Journal::Open(failing, "/journal", {}, {.create = true, .holds = true}).value();
  for (EntryNumber i = 1; i <= kSegmentEntries; ++i) ASSERT_TRUE(AppendFact(*journal, fmt::format("{}", i)).ok());
  EXPECT_EQ(Facts(*journal).size(), kSegmentEntries);
  ASSERT_THAT(journal->Maintain(), IsOk());
  EXPECT_EQ(*files.IsPacked(kSegmentEntries), false);
  ASSERT_TRUE(AppendFact(*journal, "more").ok());
  // It is not tried in every call if it fails.
  failing.FailOperation("HardLink", absl::PermissionDeniedError("no links"));
  EXPECT_THAT(journal->Maintain(), StatusIs(StatusCode::kPermissionDenied, "no links"));
  EXPECT_THAT(journal->Maintain(), IsOk());
  failing.Reset();
  EXPECT_EQ(*files.IsPacked(1), false);
  journal = Journal::Open(failing, "/journal", {}, {.create = true, .holds = true}).value();
  ASSERT_THAT(journal->Maintain(), IsOk()) << "before it knows of any entry";
  EXPECT_EQ(Facts(*journal).size(), kSegmentEntries + 1);
  ASSERT_TRUE(AppendFact(*journal, "after that").ok());
  ASSERT_THAT(journal->Maintain(), IsOk());
  EXPECT_EQ(*files.IsPacked(1), true);
  EXPECT_EQ(*files.IsPacked(kSegmentEntries), true);
  EXPECT_EQ(*files.IsPacked(kSegmentEntries + 1), false);
  // The next holder finds it done.
  const auto ids = [&] {
    std::vector<FileId> found;
    const auto entries = disk.ListDirectory(files.FolderOf(1)).value();
    for (const DirectoryEntry& entry : entries) {
      found.push_back(*disk.Identify(files.FolderOf(1) + "/" + entry.name));
    }
    return found;
  };
  const std::vector<FileId> before = ids();
  journal = Journal::Open(disk, "/journal", {}, {.create = true, .holds = true}).value();
  ASSERT_THAT(journal->Maintain(), IsOk()) << "before it knows of any entry";
  EXPECT_EQ(Facts(*journal).size(), kSegmentEntries + 2);
  ASSERT_TRUE(AppendFact(*journal, "more").ok());
  ASSERT_THAT(journal->Maintain(), IsOk());
  EXPECT_EQ(ids(), before);
}

// On a real disk.
TEST(JournalPackingThreadsTest, ReadersMissNothingBesidePacking) {
  constexpr EntryNumber kEntries = 100;
  const TestDirectory directory;
  const std::string path = directory / "journal";
  const auto journal = Journal::Open(PosixFileSystem(), path, {}, {.create = true}).value();
  for (EntryNumber i = 1; i <= kEntries; ++i) ASSERT_TRUE(AppendFact(*journal, fmt::format("{}", i)).ok());
  std::atomic<bool> is_over = false;
  std::atomic<int> readings = 0;
  std::vector<std::thread> readers;
  for (int t = 0; t < 2; ++t) {
    readers.emplace_back([&] {
      do {
        const auto reader = Journal::Open(PosixFileSystem(), path, {}).value();
        EntryNumber next = 1;
        EXPECT_THAT(reader->Look([&](const KnownEntry& known, bool) {
          EXPECT_EQ(known.entry.facts, std::vector<std::string>{fmt::format("{}", next++)});
        }),
                    IsOk());
        EXPECT_EQ(next, kEntries + 1);
        ++readings;
      } while (!is_over);
    });
  }
  const JournalFiles files(PosixFileSystem(), path);
  while (readings < 20) EXPECT_THAT(PackEntries(files, 1, kEntries - 1), IsOk());
  is_over = true;
  for (std::thread& reader : readers) reader.join();
}

// 40 MB of facts in segments of 8 MB.
TEST(JournalStreamingTest, OfManyEntriesTakesTheMemoryOfAFew) {
  constexpr EntryNumber kEntries = 5 * kSegmentEntries;
  const TestDirectory directory;
  const JournalFiles files(PosixFileSystem(), directory / "journal");
  ASSERT_NO_FATAL_FAILURE(MakePackedJournal(files, kEntries, 2000));
  const auto journal = Journal::Open(PosixFileSystem(), files.directory(), {}).value();
  malloc_trim(0);
  const size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
  size_t most = before;
  EntryNumber visited = 0;
  EXPECT_THAT(journal->Look([&](const KnownEntry& known, bool is_established) {
    EXPECT_TRUE(is_established && known.counts);
    EXPECT_EQ(known.place.number, ++visited);
    if (visited % 100 == 0) most = std::max(most, mallinfo2().uordblks + mallinfo2().hblkhd);
  }),
              IsOk());
  EXPECT_EQ(visited, kEntries);
  EXPECT_LT(most - before, size_t{30} << 20);
}

}  // namespace
}  // namespace tidemark::storage
