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

// Thread-compatible. Kept by the holder alone. Another holder may take a spare by renaming it: of two processes one has
// it then. A file that is open to be written over is locked, so it has one writer.
class JournalSpares {
 public:
  // Takes over the spares that another process left for the entries after `last`.
  void Adopt(const JournalFiles& files, EntryNumber last);

  // Numbers after `last` for which a spare is to be made, so that there are `count`.
  std::vector<EntryNumber> Missing(EntryNumber last, size_t count) const;

  // Makes one, and gives its path. The folder of `number` has been made.
  static absl::StatusOr<std::string> Make(const JournalFiles& files, EntryNumber number);
  void Add(EntryNumber number, std::string path) { spares_[LastOfFolder(number)].push_back(std::move(path)); }

  // Writes `bytes`, which are kSpareBytes, over a spare for that number, syncs it, and gives its path. No value if
  // there is none; one of the last kSparesMin is taken only if `frees_room`.
  absl::StatusOr<std::optional<std::string>> Write(const JournalFiles& files, EntryNumber number,
                                                   std::string_view bytes, bool frees_room);

 private:
  size_t size() const;

  std::map<EntryNumber, std::vector<std::string>> spares_;  // paths by the last number of their folder
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_JOURNAL_JOURNAL_SPARES_H_
