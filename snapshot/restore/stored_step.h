// A step whose shards are open.

#ifndef TIDEMARK_SNAPSHOT_RESTORE_STORED_STEP_H_
#define TIDEMARK_SNAPSHOT_RESTORE_STORED_STEP_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "snapshot/restore/box_read.h"
#include "storage/io/file_system.h"
#include "storage/shard/read/shard_reader.h"
#include "tidemark/step_reader.h"

namespace tidemark {

// Whether entries may be parts of wholes: several ranks have saved the step, or one rank has saved boxes. A job of one
// process may save a tensor as one box, which is all of it. `shards`: all of the step's.
bool HasParts(std::span<const std::unique_ptr<storage::ShardReader>> shards);

// Immutable once it is made. Thread-safe.
struct StoredStep : WindowedStep {
  // `shards`: of all ranks, ascending.
  StoredStep(StepInfo info, std::vector<std::unique_ptr<storage::ShardReader>> shards,
             const storage::ShardReadOptions& read);

  const StepContents& Contents() const override { return contents; }
  uint64_t ChunkBytes(size_t entry) const override { return shards[places[entry].first]->header().chunk_bytes; }
  absl::Status Read(std::span<const StepReader::Window> windows) const override;

  std::shared_ptr<storage::FileSystem> files;  // of the shards; the StoreReader that made them may be gone
  std::vector<std::unique_ptr<storage::ShardReader>> shards;
  storage::ShardReadOptions read;
  StepContents contents;
  // Where each of contents.entries is: its shard, and its number there.
  std::vector<std::pair<size_t, size_t>> places;
  uint64_t chunk_bytes = 0;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_RESTORE_STORED_STEP_H_
