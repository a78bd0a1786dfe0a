// A store's journal made anew from what can be read: the index, entries that are not damaged, the shards. For a store
// whose journal is lost or damaged and whose index cannot prove what the journal said.

#ifndef TIDEMARK_STORAGE_STORE_REBUILD_H_
#define TIDEMARK_STORAGE_STORE_REBUILD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "storage/bytes/ids.h"
#include "storage/io/file_system.h"
#include "storage/journal/entry.h"
#include "storage/records/fact.h"
#include "storage/records/step_catalog.h"
#include "storage/shard/read/shard_reader.h"
#include "storage/store/memory_catalog.h"
#include "storage/store/store_layout.h"

namespace tidemark::storage {

// Everything that the catalog says, as facts that say it again.
absl::StatusOr<std::vector<Fact>> FactsOf(const StepCatalog& catalog);

// Whether these facts are the same.
absl::StatusOr<bool> SaysTheSame(const StepCatalog& a, const StepCatalog& b);

// Puts a journal of these facts into the place of the one that is there, which is kept beside it as
// journal.broken-<random>. Its first entry begins an epoch that is newer than `epoch`. When this returns ok, the new
// journal survives power loss. A crash leaves the old journal, none, or the new one.
absl::Status ReplaceJournal(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                            const std::vector<Fact>& facts, uint64_t epoch);

// Whether the path is that of a journal which ReplaceJournal has put aside.
bool IsBrokenJournal(const StoreLayout& layout, std::string_view path);

// What is known of a store whose journal is made anew.
struct KnownFacts {
  MemoryCatalog catalog;
  EntryNumber number = 0;          // the last entry that is known
  uint64_t epoch = 0;              // the newest epoch
  std::string source = "nothing";  // where the facts are from, for a message
  std::set<AttemptId> garbage;     // beside the catalog's: attempts that were deleted or replaced, or failed
  bool is_sound = false;           // no damage was found to what was recorded
};

// Adds the attempts in steps/ that are newer than the records of their steps, and whole: what is lost may have said
// that they are committed. Their bytes are verified. Attempts that are incomplete are moved to quarantine, unless a
// step refers to them; where `known.is_sound` only those whose bytes are damaged, since the others are saves that were
// cut short. `known.epoch` becomes the newest that an attempt has. Returns how many were added. kFailedPrecondition:
// nothing is recorded, no attempt is whole, and some belong to another store.
absl::StatusOr<size_t> AdoptAttempts(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                                     const ShardReadOptions& read, const std::function<void(std::string_view)>& warn,
                                     KnownFacts& known);

// Makes the journal anew. What is recorded comes from the entries before the damage, or, if it knows more, from the
// index and from the entries after the last one that it has applied. Then attempts are adopted (AdoptAttempts). What
// was deleted, pinned or reported in entries that are lost may be undone: the warnings say from where on. Precondition:
// the caller holds the store.
absl::Status RebuildJournal(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                            const ShardReadOptions& read, const std::function<void(std::string_view)>& warn);

// Finishes a ReplaceJournal that was cut short between its two renames, and removes what others have left, with a
// warning where that fails. To be called before anything asks whether there is a journal.
absl::Status FinishRebuild(FileSystem& files, const StoreLayout& layout,
                           const std::function<void(std::string_view)>& warn);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_REBUILD_H_
