// The entries of a step as a restore reads them: wholes, however many ranks have saved the step, and in how many boxes.

#ifndef TIDEMARK_SNAPSHOT_RESTORE_SAVED_ENTRIES_H_
#define TIDEMARK_SNAPSHOT_RESTORE_SAVED_ENTRIES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "snapshot/restore/box_plan.h"
#include "snapshot/restore/destination_plan.h"
#include "storage/shard/format/shard_format.h"
#include "storage/shard/read/shard_reader.h"
#include "storage/store/attempt_reader.h"

namespace tidemark {

// Thread-safe once it has all boxes.
class SavedEntries : public SavedBytes {
 public:
  // What is saved: names and shapes of wholes, metrics, metadata and properties. If several ranks saved the step, or
  // one rank saved boxes of a tensor (HasParts), a tensor is made of all parts, and values, metrics and
  // metadata are the lowest rank's; no entry is tied, and each has one made-up chunk, whose digest is that of all of
  // its parts.
  virtual const storage::ShardIndex& index() const = 0;

  // Adds a box of the tensor as an entry of its own, behind the others, and returns its number. Its name is the
  // tensor's. Precondition: the box lies in the tensor.
  virtual size_t AddBox(size_t entry, const Box& box) = 0;

  virtual uint64_t RawBytes(size_t entry) const = 0;

  // Whether the entry, or the box of it, can be read, as far as the indices tell. Errors: those of CheckIsThere
  // (box_read.h).
  virtual absl::Status Check(size_t entry) const = 0;

  // As ShardReader::Read, and the errors of Check.
  virtual absl::Status Read(std::span<const storage::EntryRead> reads,
                            const std::function<void(uint64_t bytes)>& on_read) const = 0;
  absl::Status Read(std::span<const storage::EntryRead> reads) const final { return Read(reads, nullptr); }

  bool AreSame(size_t one, size_t other) const final;
};

std::unique_ptr<SavedEntries> EntriesOf(storage::Attempt attempt, const storage::ShardReadOptions& options);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_RESTORE_SAVED_ENTRIES_H_
