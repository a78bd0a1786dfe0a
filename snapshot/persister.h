// Persister: the consumer of the snapshot stream that makes steps survive power loss.

#ifndef TIDEMARK_SNAPSHOT_PERSISTER_H_
#define TIDEMARK_SNAPSHOT_PERSISTER_H_

#include <functional>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "snapshot/snapshot_stream.h"
#include "storage/manifest/store.h"
#include "storage/shard/shard_writer.h"

namespace tidemark {

// Owned by the thread that calls Consume, and with it the writer and its ring.
class Persister final : public SnapshotConsumer {
 public:
  // `store` is not owned and outlives the persister.
  Persister(storage::FileSystem& files, storage::Store& store, const storage::ShardWriterOptions& options,
            std::function<void(std::string_view)> warn);

  void Consume(std::shared_ptr<const StagedSnapshot> snapshot) override;

 private:
  absl::Status Persist(const StagedSnapshot& snapshot);
  absl::Status PersistOnce(const StagedSnapshot& snapshot);

  storage::FileSystem& files_;
  storage::Store& store_;
  const storage::ShardWriterOptions options_;
  const std::function<void(std::string_view)> warn_;
  std::unique_ptr<storage::ShardWriter> writer_;  // made on the persister's thread
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_PERSISTER_H_
