// What one process knows of a store's journal: the entries that it has read, in order, and how far they are durable.
//
// A file of an entry is not the last word on that entry. After a power loss a number can be missing, and a process that
// had not seen the number in use can take it again. Then a later entry carries a copy of the entry that stood there,
// and that copy decides. The view puts the entries together from files and copies.
//
// Pure: no I/O, no clock, no thread.

#ifndef TIDEMARK_STORAGE_JOURNAL_JOURNAL_VIEW_H_
#define TIDEMARK_STORAGE_JOURNAL_JOURNAL_VIEW_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "storage/journal/entry.h"

namespace tidemark::storage {

// A place in a journal. Number and digest together tell one history from another one.
struct JournalPlace {
  EntryNumber number = 0;
  Digest128 digest;    // DigestOfEntry of that entry; zeros for number 0
  uint64_t epoch = 0;  // the newest epoch that has begun up to there; 0: none

  friend bool operator==(const JournalPlace&, const JournalPlace&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const JournalPlace& place) {
    return H::combine(std::move(h), place.number, place.digest.bytes, place.epoch);
  }
};

// An entry in its place.
struct KnownEntry {
  JournalEntry entry;
  JournalPlace place;
  // Whether the facts are to be applied. They are not if a newer epoch stands before the entry, nor if one of the
  // entries before it that were not dropped has the same id.
  bool counts = false;

  friend bool operator==(const KnownEntry&, const KnownEntry&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const KnownEntry& known) {
    return H::combine(std::move(h), known.entry, known.place, known.counts);
  }
};

// Value type: a test that explores what processes can do copies and compares it. Thread-compatible.
class JournalView {
 public:
  // Of an empty journal.
  JournalView() = default;
  // Of a journal whose entries up to `place` are durable and not needed again: an index has applied them.
  explicit JournalView(const JournalPlace& place) : dropped_(place), established_(place.number) {}

  // The place of the last entry that is known.
  const JournalPlace& last() const { return known_.empty() ? dropped_ : known_.back().place; }

  // The last entry that is not needed again. It is durable.
  const JournalPlace& dropped() const { return dropped_; }

  // All entries up to this one survive power loss, and will never be other ones. Entries after it may be shown, but
  // nothing that lasts may follow from them, except an entry that carries them.
  EntryNumber established() const { return established_; }

  // The entries that were not dropped, in order, up to last().
  const std::deque<KnownEntry>& entries() const { return known_; }

  // The entry of that id among entries(), or null. Valid until the next call that is not const.
  const KnownEntry* Find(const EntryId& id) const;

  // Learns from a reading of the journal: `files` are the files of the entries established() + 1, established() + 2 and
  // so on, up to the highest number that the listing showed; no value where there is no such file. A listing may be
  // old: what is known and missing in it stays known, unless it does not follow any more what now stands before it:
  // then the journal has lost it, and it is forgotten. Entries after established() may turn out to be other ones.
  // Errors, after which the view is as it was:
  // - kDataLoss: an entry is missing or damaged and no later one carries it, or an entry follows another one than the
  //   journal's. The message names the entry.
  // - kUnimplemented: an entry was written by a newer version.
  absl::Status Learn(std::span<const std::optional<std::string>> files);

  // Learns from a segment that has the entries established() + 1, established() + 2 and so on, at least one. Only
  // entries that are durable are packed, so all of these are. What was known after them is forgotten. kDataLoss, after
  // which the view is as it was: they do not follow the entry before them. Precondition: each follows the one before.
  absl::Status LearnPacked(std::vector<DigestedEntry> entries);

  // Learns that all entries up to `place` are durable: this process's own sync told so, or the statement of another
  // one. Ignored if the view has no such entry.
  void LearnDurable(const JournalPlace& place);

  // Frees the memory of entries up to `number`. Precondition: `number` <= established().
  void Drop(EntryNumber number);

  friend bool operator==(const JournalView&, const JournalView&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const JournalView& view) {
    return H::combine(std::move(h), view.dropped_, view.known_, view.established_);
  }

 private:
  absl::Status Follow(std::vector<DigestedEntry> entries, size_t in_files);
  const JournalPlace& PlaceBefore(EntryNumber number) const;

  JournalPlace dropped_;  // entries up to here are not in known_
  std::deque<KnownEntry> known_;
  EntryNumber established_ = 0;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_JOURNAL_JOURNAL_VIEW_H_
