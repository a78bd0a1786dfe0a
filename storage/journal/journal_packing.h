// Packs a part of a journal into a segment.

#ifndef TIDEMARK_STORAGE_JOURNAL_JOURNAL_PACKING_H_
#define TIDEMARK_STORAGE_JOURNAL_JOURNAL_PACKING_H_

#include "absl/status/status.h"
#include "storage/journal/entry.h"
#include "storage/journal/journal_files.h"

namespace tidemark::storage {

// Writes the entries `first` to `last` of one upper folder to one file, syncs it, and replaces the file of each by a
// hard link to it. Preconditions: they are established, and so is the entry after `last`; the entry before `first`, if
// there is one, is packed. Readers and writers may be at work. A crash or an error leaves any of the files replaced,
// which reads the same; the next call goes on. Errors:
// - kDataLoss: an entry cannot be read. Nothing was changed.
// - kResourceExhausted: too long for a segment, or no room. The journal is read as before.
// - those of FileSystem::HardLink where there are no hard links.
absl::Status PackEntries(const JournalFiles& files, EntryNumber first, EntryNumber last);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_JOURNAL_JOURNAL_PACKING_H_
