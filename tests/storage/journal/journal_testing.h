// Entries and journals for tests.

#ifndef TIDEMARK_TESTS_STORAGE_JOURNAL_JOURNAL_TESTING_H_
#define TIDEMARK_TESTS_STORAGE_JOURNAL_JOURNAL_TESTING_H_

#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "storage/journal/entry.h"
#include "storage/journal/journal.h"
#include "storage/journal/journal_files.h"
#include "storage/journal/segment.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {

inline EntryId TestEntryId(uint8_t id) { return EntryId{{id}}; }

// The files of a journal, as several writers could have left them.
class MadeJournal {
 public:
  // The place of an entry that was written after `before` with this fact.
  JournalEntry After(const JournalEntry& before, uint8_t id, std::string fact) const {
    return {.number = before.number + 1,
            .id = TestEntryId(id),
            .durable = before.number,
            .previous = before.number == 0 ? Digest128{} : DigestOfEntry(before),
            .facts = {std::move(fact)}};
  }

  void Put(const EntryFile& file) { files_[file.entry.number] = EncodeEntryFile(file).value(); }
  void PutBytes(EntryNumber number, std::string bytes) { files_[number] = std::move(bytes); }
  void Remove(EntryNumber number) { files_.erase(number); }
  std::string& At(EntryNumber number) { return files_.at(number); }

  // As a listing and a reading give them.
  std::vector<std::optional<std::string>> From(EntryNumber first) const {
    std::vector<std::optional<std::string>> files;
    const EntryNumber last = files_.empty() ? 0 : files_.rbegin()->first;
    for (EntryNumber number = first; number <= last; ++number) {
      const auto file = files_.find(number);
      files.push_back(file == files_.end() ? std::nullopt : std::make_optional(file->second));
    }
    return files;
  }

 private:
  std::map<EntryNumber, std::string> files_;
};

inline absl::Status NoCheck(const JournalView&) { return absl::OkStatus(); }

inline Appended AppendFact(Journal& journal, std::string fact) {
  return journal.Append({.facts = {std::move(fact)}}, NoCheck);
}

// What a look visits, in order: the first fact of each entry that counts; with "?" where it is not established.
inline std::vector<std::string> Facts(Journal& journal) {
  std::vector<std::string> facts;
  EXPECT_THAT(journal.Look([&](const KnownEntry& known, bool is_established) {
    if (!known.counts) return;
    const std::string fact = known.entry.facts.empty() ? "(settles)" : known.entry.facts[0];
    facts.push_back(is_established ? fact : fact + "?");
  }),
              IsOk());
  return facts;
}

// A journal of so many entries, whole segments, with a fact of so many bytes each. Only the names of the first and the
// last entry of each segment are there, which a reader from the beginning looks for.
inline void MakePackedJournal(const JournalFiles& files, EntryNumber entries, size_t fact_bytes) {
  ASSERT_THAT(files.file_system().CreateDirectory(files.directory()), IsOk());
  JournalFiles maker = files;
  Digest128 digest;
  for (EntryNumber first = 1; first <= entries; first += kSegmentEntries) {
    std::vector<DigestedEntry> segment;
    for (EntryNumber number = first; number < first + kSegmentEntries; ++number) {
      JournalEntry entry{.number = number, .durable = number - 1, .previous = digest};
      std::memcpy(entry.id.bytes.data(), &number, sizeof(number));
      entry.facts = {std::string(fact_bytes, static_cast<char>('a' + number % 26))};
      digest = DigestOfEntry(entry);
      segment.push_back({.entry = std::move(entry), .digest = digest});
    }
    const EntryNumber last = first + kSegmentEntries - 1;
    for (const EntryNumber number : {first, last}) ASSERT_THAT(maker.MakeFolder(number), IsOk());
    const auto path = files.WriteNew(first, kNewPrefix, EncodeSegment(segment).value());
    ASSERT_THAT(path, IsOk());
    ASSERT_THAT(files.file_system().HardLink(*path, files.PathOf(last)), IsOk());
    ASSERT_THAT(files.file_system().RenameToNew(*path, files.PathOf(first)), IsOk());
  }
}

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_JOURNAL_JOURNAL_TESTING_H_
