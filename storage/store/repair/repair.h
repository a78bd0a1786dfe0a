// Repair: brings a store that is not in use into order, or says what that would do. What opening does; then every entry
// of the journal and every byte of every committed step is read, what turns out damaged is put out of the way, and what
// dead processes have left is removed.

#ifndef TIDEMARK_STORAGE_STORE_REPAIR_REPAIR_H_
#define TIDEMARK_STORAGE_STORE_REPAIR_REPAIR_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/bytes/ids.h"
#include "storage/io/file_system.h"
#include "storage/shard/read/shard_reader.h"
#include "storage/store/repair/store_change.h"

namespace tidemark::storage {

struct RepairProgress {
  int64_t step = 0;
  uint64_t bytes_done = 0;
  uint64_t bytes_total = 0;
};

struct RepairOptions {
  std::string directory;
  // Steps that are committed although their saves were cut short, if every byte of them is there; see adoption.h. One
  // that is committed already is left alone.
  std::set<int64_t> adopt;
  ShardReadOptions read;
  // Called on the caller's thread while data is read. Null: nobody looks.
  std::function<void(const RepairProgress&)> progress;
  // Asked while steps are read or copied, on any thread, and before a step is put out of the way or back into service;
  // in the middle of that nobody is asked. Null: nobody cancels.
  std::function<bool()> cancelled;
};

// A step that was committed and cannot be restored.
struct LostStep {
  int64_t step = 0;
  std::string why;
  std::vector<std::string> entries;  // which lose data; empty: all, or nobody knows
  bool pinned = false;               // somebody wanted to keep it; known of those in RepairReport::lost
  std::string pin_note;
  std::vector<std::string> tags;
};

struct RepairReport {
  StoreId store;
  std::vector<StoreChange> changes;  // in their order; none is kLeftAlone
  // What is not Tidemark's, or is kept for a person, and damage in bytes that no restore reads.
  std::vector<StoreChange> left_alone;
  std::vector<LostStep> lost;  // ascending by step, those lost earlier included
  // Reading these failed, or they have a shard of another store or of a newer version: which says nothing about their
  // bytes. They stay as they are.
  std::vector<LostStep> unread;
  // The step that a restore of the latest then takes, as far as is known: none of those in `unread`.
  std::optional<int64_t> restores;
};

// What RepairStore would do. Writes nothing and keeps nobody from a lock: to find out whether somebody has one it is
// shared for a moment, which those who take it wait out (see FileSystem::TryLock). A store that somebody holds, or has
// opened meanwhile, is kUnavailable, with the holder's note. Errors: see RepairStore; those of writing do not show.
absl::StatusOr<RepairReport> PlanRepair(FileSystem& files, const RepairOptions& options);

// Holds the store's lock meanwhile. In this order: whatever opening the store does (see Store::Open), which may convert
// it from the first format; a journal with entries that are damaged and that only the index has is made anew, and so is
// an index that differs from the journal; a committed step whose data fails to verify is moved to quarantine/ and
// recorded as lost, with the reason, so that a restore knows that it was there, and that it is committed again if a
// person puts sound files back (the files that it refers to stay for that); where other, sound steps have chunks in its
// files, these stay, and it is marked damaged; one that was marked and verifies is committed again; the steps that
// the options name are adopted; temporary files, dead leases and a retired shard are removed. Nothing that is not
// Tidemark's is touched, and a journal that is replaced is kept beside the new one.
//
// If a repair is cut short, the next call goes on from there. An opening in between passes over what is damaged.
//
// kNotFound: no store is there. kInvalidArgument: a step that is to be adopted has no attempt, or the store is of the
// first format and steps are to be adopted. kUnavailable: another process holds the store. kUnimplemented: the store is
// newer. kDataLoss: an attempt that is to be adopted is damaged. kDataLoss, kFailedPrecondition: it cannot be found out
// which store it is. kCancelled: see RepairOptions. Any other error is the disk's; the store is then as after a crash.
absl::StatusOr<RepairReport> RepairStore(FileSystem& files, const RepairOptions& options);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_REPAIR_REPAIR_H_
