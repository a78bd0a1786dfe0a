// One entry of a store's journal, and its bytes.
//
// The journal is the list of a store's facts, one immutable file for each entry. It is the only commit point: a fact is
// true from its entry on. Entries are numbered from 1 without gaps, and several processes may append. Pure functions
// between structs and bytes; no I/O.

#ifndef TIDEMARK_STORAGE_JOURNAL_ENTRY_H_
#define TIDEMARK_STORAGE_JOURNAL_ENTRY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/bytes/ids.h"

namespace tidemark::storage {

using EntryNumber = uint64_t;  // 0: none
using EntryId = Bytes16<struct EntryIdTag>;

// The longest file of an entry. Far more than any record has; a longer file is refused before memory is taken for it.
inline constexpr size_t kEntryFileBytesMax = size_t{64} << 20;

// What one process states by one entry. All of it is in the entry's digest.
struct JournalEntry {
  EntryNumber number = 0;  // its place in the journal
  // Random, the same in each try to append the entry. It tells the writer whether a file is its own.
  EntryId id;
  // The writer's epoch: the number of its opening of the store for writing. An entry counts only while no newer epoch
  // stands before it. 0: written without an epoch, by a worker or a tool; it always counts.
  uint64_t epoch = 0;
  bool begins_epoch = false;  // this entry is the one that begins `epoch`
  // The writer knew that this entry and all before it survive power loss. < number.
  EntryNumber durable = 0;
  // DigestOfEntry of the entry before, as the writer knew it. All zeros in entry 1.
  Digest128 previous;
  // Encoded facts. None: the entry only carries others (it settles them).
  std::vector<std::string> facts;

  friend bool operator==(const JournalEntry&, const JournalEntry&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const JournalEntry& entry) {
    return H::combine(std::move(h), entry.number, entry.id.bytes, entry.epoch, entry.begins_epoch, entry.durable,
                      entry.previous.bytes, entry.facts);
  }
};

// The file of an entry.
struct EntryFile {
  JournalEntry entry;
  // Copies of all entries between entry.durable and entry.number: those that the writer had read and did not know to be
  // durable. So what the entry was checked against survives with it. Usually none.
  std::vector<JournalEntry> carried;

  friend bool operator==(const EntryFile&, const EntryFile&) = default;
};

// The entry's bytes, without what its file carries, and back. kDataLoss with `what`: not such bytes.
std::string EncodeEntry(const JournalEntry& entry);
absl::StatusOr<JournalEntry> DecodeEntry(std::string_view what, std::string_view bytes);
inline constexpr size_t kJournalEntryBytesMin = 8 + 16 + 8 + 1 + 8 + 16 + 4;  // of an entry without facts

// XXH3-128 of EncodeEntry.
Digest128 DigestOfEntry(const JournalEntry& entry);

struct DigestedEntry {
  JournalEntry entry;
  Digest128 digest;  // DigestOfEntry
};

// Errors:
// - kInvalidArgument: a number, `durable` or the list of carried entries is none that a reader takes.
// - kResourceExhausted: longer than kEntryFileBytesMax.
absl::StatusOr<std::string> EncodeEntryFile(const EntryFile& file);

// The same file with zeros before its checksum, so that it has `bytes_min` bytes at least: as one that is written over
// another one of that length.
std::string PadEntryFile(std::string bytes, size_t bytes_min);

// `number`: by the file's name. Takes no more memory than a small multiple of `bytes`. Errors, with "journal entry
// <number>":
// - kDataLoss: not such a file, not as it was written, or the file of another number.
// - kUnimplemented: written by a newer version.
absl::StatusOr<EntryFile> DecodeEntryFile(EntryNumber number, std::string_view bytes);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_JOURNAL_ENTRY_H_
