// Files that are ready for the next entries of a journal: 4,096 bytes that are written and synced, so that an append
// needs no room, and one flush less. They are in the folders of the numbers that they are for, because one sync covers
// what happens in one folder.

#ifndef TIDEMARK_STORAGE_JOURNAL_JOURNAL_SPARES_H_
#define TIDEMARK_STORAGE_JOURNAL_JOURNAL_SPARES_H_

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/journal/entry.h"
#include "storage/journal/journal_files.h"

namespace tidemark::storage {

inline constexpr size_t kSpareBytes = 4096;
inline constexpr size_t kSparesMin = 4;  // those that are left for entries that free room
inline constexpr size_t kSparesMax = 16;

// Thread-compatible. Kept by the holder alone.
//
// The spares of the holder before are left alone while there is room, and removed once there are new ones. That holder
// may have been stopped within a write over one of them, and go on at any time. A file that is open to be written over
// is locked, but its lock may not reach this machine, and what it writes must not land in an entry of ours.
class JournalSpares {
 public:
  // Finds the spares that another process left for the entries after `last`.
  void FindLeft(const JournalFiles& files, EntryNumber last);

  // Numbers after `last` for which a spare is to be made, so that there are `count`.
  std::vector<EntryNumber> Missing(EntryNumber last, size_t count) const;

  // Makes one, and gives its path. The folder of `number` has been made.
  static absl::StatusOr<std::string> Make(const JournalFiles& files, EntryNumber number);
  void Add(EntryNumber number, std::string path) { spares_[LastOfFolder(number)].push_back(std::move(path)); }

  // Writes `bytes`, which are kSpareBytes, over a spare for that number, syncs it, and gives its path. No value if
  // there is none; one of the last kSparesMin is taken only if `frees_room`.
  absl::StatusOr<std::optional<std::string>> Write(const JournalFiles& files, EntryNumber number,
                                                   std::string_view bytes, bool frees_room);

  // The same over one that another process left, for where there is no room for a new file.
  absl::StatusOr<std::optional<std::string>> WriteOverLeft(const JournalFiles& files, EntryNumber number,
                                                           std::string_view bytes, bool frees_room);

  // The paths of those that another process left, which are to be removed now.
  std::vector<std::string> TakeLeft();

 private:
  using Paths = std::map<EntryNumber, std::vector<std::string>>;  // by the last number of their folder

  static size_t CountOf(const Paths& paths);
  static absl::StatusOr<std::optional<std::string>> WriteOver(const JournalFiles& files, const std::string& path,
                                                              std::string_view bytes);

  Paths spares_;
  Paths left_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_JOURNAL_JOURNAL_SPARES_H_
