// Reads a journal's files into a JournalView.

#ifndef TIDEMARK_STORAGE_JOURNAL_JOURNAL_READER_H_
#define TIDEMARK_STORAGE_JOURNAL_JOURNAL_READER_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/journal/journal_files.h"
#include "storage/journal/journal_view.h"

namespace tidemark::storage {

// Errors of both: those of FileSystem and of JournalView::Learn; kDataLoss and kUnimplemented name entry and folder.

// Reads the entries from view.established() + 1 to `highest` into the view, a folder's at a time. Calls `learned`
// whenever the view has learned some; it may drop what is established. After an error the view has what was learned.
absl::Status ReadEntries(const JournalFiles& files, EntryNumber highest, JournalView& view,
                         absl::FunctionRef<void()> learned);

// The files from view.established() + 1 to `highest`, as JournalView::Learn takes them. The view learns from segments
// meanwhile.
absl::StatusOr<std::vector<std::optional<std::string>>> ReadFiles(const JournalFiles& files, EntryNumber highest,
                                                                  JournalView& view);

// The entry of that number as its file has it; no value if there is none. A carried copy may outrank it.
absl::StatusOr<std::optional<DigestedEntry>> ReadEntry(const JournalFiles& files, EntryNumber number);

// Whether the journal has the entry of that place: its file has the digest, or the entry after it was written after an
// entry with that digest. Ok for the place of an empty journal. Errors: those of FileSystem, and
// - kOutOfRange: it has no such entry, or another one.
// - kDataLoss: it cannot be told, because one of the two files is damaged.
// - kUnimplemented: an entry was written by a newer version.
absl::Status FindPlace(const JournalFiles& files, const JournalPlace& place);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_JOURNAL_JOURNAL_READER_H_
