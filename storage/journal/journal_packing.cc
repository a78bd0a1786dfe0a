#include "storage/journal/journal_packing.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "storage/io/check.h"
#include "storage/journal/journal_reader.h"
#include "storage/journal/journal_view.h"
#include "storage/journal/segment.h"

namespace tidemark::storage {
namespace {

// Gives the number to the segment. The names of a crash are in the way of none.
absl::Status Replace(const JournalFiles& files, const std::string& segment, EntryNumber number) {
  FileSystem& names = files.file_system();
  const std::string link = files.NewPath(number, kNewPrefix);
  if (absl::Status status = names.HardLink(segment, link); !status.ok()) return status;
  absl::Status status = names.Rename(link, files.PathOf(number));
  // A rename of a name onto another one of the same file does nothing, and both names stay.
  const absl::Status removed = names.RemoveFile(link);
  if (!absl::IsNotFound(removed)) status.Update(removed);
  return status;
}

// What processes have left in a folder that gets no further entry.
void RemoveLeftovers(const JournalFiles& files, const std::string& folder) {
  const auto entries = files.file_system().ListDirectory(folder);
  if (!entries.ok()) return;
  for (const DirectoryEntry& entry : *entries) {
    if (!entry.name.starts_with(kNewPrefix) && !entry.name.starts_with(kSparePrefix)) continue;
    files.file_system().RemoveFile(folder + "/" + entry.name).IgnoreError();
  }
}

// The entries first to last. The one after them was written after them and no others. The file of `first` may be
// missing or another entry's, so it does not say which entry stands before it.
absl::StatusOr<std::vector<DigestedEntry>> ReadRange(const JournalFiles& files, EntryNumber first, EntryNumber last) {
  JournalPlace before{.number = first - 1};
  if (first > 1) {
    const auto entry = ReadEntry(files, first - 1);
    if (!entry.ok()) return entry.status();
    if (!*entry) return absl::DataLossError(fmt::format("journal entry {} is missing", first - 1));
    before.digest = (*entry)->digest;
  }
  JournalView view(before);
  std::vector<DigestedEntry> entries;
  absl::Status status = ReadEntries(files, last + 1, view, [&] {
    for (const KnownEntry& known : view.entries()) {
      if (known.place.number > view.established()) break;
      if (known.place.number <= last) entries.push_back({.entry = known.entry, .digest = known.place.digest});
    }
    view.Drop(view.established());
  });
  if (!status.ok()) return status;
  for (const KnownEntry& known : view.entries()) {
    if (known.place.number <= last) entries.push_back({.entry = known.entry, .digest = known.place.digest});
  }
  Check(entries.size() == last - first + 1, "entries of a journal were read that are not those asked for");
  return entries;
}

}  // namespace

absl::Status PackEntries(const JournalFiles& files, EntryNumber first, EntryNumber last) {
  Check(files.UpperFolderOf(first) == files.UpperFolderOf(last), "a segment has entries of two folders");
  const auto entries = ReadRange(files, first, last);
  if (!entries.ok()) return entries.status();
  const auto bytes = EncodeSegment(*entries);
  if (!bytes.ok()) return bytes.status();
  const auto segment = files.WriteNew(first, kNewPrefix, *bytes);
  if (!segment.ok()) return segment.status();
  absl::Status status;
  for (EntryNumber number = first; number <= last && status.ok(); ++number) status = Replace(files, *segment, number);
  files.file_system().RemoveFile(*segment).IgnoreError();
  for (EntryNumber number = first; number <= last && status.ok(); number = LastOfFolder(number) + 1) {
    if (LastOfFolder(number) <= last) RemoveLeftovers(files, files.FolderOf(number));
  }
  return status;
}

}  // namespace tidemark::storage
