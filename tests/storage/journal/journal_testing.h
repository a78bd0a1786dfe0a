// Entries and journals for tests.

#ifndef TIDEMARK_TESTS_STORAGE_JOURNAL_JOURNAL_TESTING_H_
#define TIDEMARK_TESTS_STORAGE_JOURNAL_JOURNAL_TESTING_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "storage/journal/entry.h"
#include "storage/journal/journal.h"
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

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_JOURNAL_JOURNAL_TESTING_H_
