// What a StepReader is made of; StoreReader makes it.

#ifndef TIDEMARK_SNAPSHOT_RESTORE_STEP_READER_IMPL_H_
#define TIDEMARK_SNAPSHOT_RESTORE_STEP_READER_IMPL_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "storage/io/file_system.h"
#include "storage/shard/shard_reader.h"
#include "tidemark/step_reader.h"

namespace tidemark {

struct StepReader::Impl {
  Impl(StepInfo info, std::vector<std::unique_ptr<storage::ShardReader>> shards, const storage::ShardReadOptions& read);

  std::shared_ptr<storage::FileSystem> files;  // of the shards; the StoreReader that made them may be gone
  std::vector<std::unique_ptr<storage::ShardReader>> shards;
  storage::ShardReadOptions read;
  StepContents contents;
  // Where each of contents.entries is: its shard, and its number there.
  std::vector<std::pair<size_t, size_t>> places;
  uint64_t chunk_bytes = 0;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_RESTORE_STEP_READER_IMPL_H_
