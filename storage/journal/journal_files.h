// Names, folders and files of a journal.
//
//   journal/0000/00/0000000001   entry 1; 64 numbers in each lowest folder, 64 of these in each upper one
//   journal/0000/00/new-...      an entry that has no number yet, or what a killed process left of one
//   journal/0000/00/spare-...    a file that is ready for one (journal_spares.h)
//   journal/0000/00/room-...     an empty file whose long name makes the folder take a block from the start, so that
//                                a name for each of its 64 numbers fits when the disk is full
//
// The file of a number is an entry's own, or a segment (segment.h) that has it beside others. No name of an entry is
// ever removed.

#ifndef TIDEMARK_STORAGE_JOURNAL_JOURNAL_FILES_H_
#define TIDEMARK_STORAGE_JOURNAL_JOURNAL_FILES_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/journal/entry.h"

namespace tidemark::storage {

inline constexpr EntryNumber kFolderEntries = 64;
inline constexpr EntryNumber kSegmentEntries = 64 * kFolderEntries;  // those of an upper folder

inline constexpr std::string_view kNewPrefix = "new-";
inline constexpr std::string_view kSparePrefix = "spare-";

// The number of the last entry that is in the same lowest folder. `number` is 1 or more.
constexpr EntryNumber LastOfFolder(EntryNumber number) { return (number - 1) / kFolderEntries * kFolderEntries + 64; }

// Thread-compatible. Functions that are const may run beside each other. Errors are those of FileSystem.
class JournalFiles {
 public:
  // `files` is not owned. `directory`: the journal's, without a slash at its end.
  JournalFiles(FileSystem& files, std::string directory) : files_(files), directory_(std::move(directory)) {}

  FileSystem& file_system() const { return files_; }
  const std::string& directory() const { return directory_; }

  // Preconditions: `number` is 1 or more.
  std::string UpperFolderOf(EntryNumber number) const;
  std::string FolderOf(EntryNumber number) const;
  std::string PathOf(EntryNumber number) const;

  // The bytes of the file of that number; no value if there is none. kDataLoss if it is longer than any that a journal
  // has.
  absl::StatusOr<std::optional<std::string>> Read(EntryNumber number) const;

  // The same for a number below one that a listing has shown. Where the file is missing, and LooksPastCaches, the
  // folder may have been shown as it was: it is looked for again past the cache.
  absl::StatusOr<std::optional<std::string>> ReadListed(EntryNumber number) const;

  // Of a number whose file could not be opened: ok if no listing shows it, or the first folder of its path that cannot
  // be listed. kAborted: one does. A client of a file server may remember for a while that a name was missing, although
  // it lists it by now. Not noticed where listings do not have the types of names.
  absl::Status CheckIsMissing(EntryNumber number) const;

  // The last of the numbers whose folder, or the one above it, is missing together with that of `number`; `number` - 1
  // if its folder is there.
  absl::StatusOr<EntryNumber> LastWithoutFolder(EntryNumber number) const;

  // A client of a file server may show folders as they were; see storage/io/fresh_look.h. From now on that is not
  // believed of a number that must be there. Such a look makes and removes a file, so it is for who appends.
  void LookPastCaches() { looks_past_caches_ = true; }
  bool looks_past_caches() const { return looks_past_caches_; }

  // The next look at the number's folder, and for it, shows what is there. Best effort.
  void LookAfresh(EntryNumber number) const;

  // The highest number that listings show; 0 if there is none. kNotFound if there is no journal.
  absl::StatusOr<EntryNumber> Highest() const;
  // The same where all numbers up to `number` are known: lists the folder of the next number, and those after it until
  // one has none.
  absl::StatusOr<EntryNumber> HighestAfter(EntryNumber number) const;

  // Makes the folder of `number`, and makes its names up to the journal's survive power loss. Does nothing from the
  // second call for a folder on. After a failed sync the names are removed and made anew by a later call, because no
  // later sync answers for them; that cannot be done if another process has put an entry there meanwhile.
  absl::Status MakeFolder(EntryNumber number);

  // The path of a name that nothing has, in the folder of `number`.
  std::string NewPath(EntryNumber number, std::string_view prefix) const;

  // A new synced file with these bytes in the folder of `number`, which has been made; its path.
  absl::StatusOr<std::string> WriteNew(EntryNumber number, std::string_view prefix, std::string_view bytes) const;

  // Whether the file of that number is a segment. False if there is none.
  absl::StatusOr<bool> IsPacked(EntryNumber number) const;

 private:
  absl::StatusOr<EntryNumber> HighestInFolderOf(EntryNumber number) const;
  absl::Status MakeNames(EntryNumber number);
  absl::Status RemoveNames(EntryNumber number);

  FileSystem& files_;
  const std::string directory_;
  bool looks_past_caches_ = false;
  std::set<EntryNumber> made_;      // last numbers of folders whose names survive; the newest few
  std::set<EntryNumber> doubtful_;  // of those whose sync has failed
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_JOURNAL_JOURNAL_FILES_H_
