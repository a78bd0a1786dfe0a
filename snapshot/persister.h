// Persister: the consumer of the snapshot stream that makes steps survive power loss.

#ifndef TIDEMARK_SNAPSHOT_PERSISTER_H_
#define TIDEMARK_SNAPSHOT_PERSISTER_H_

#include <functional>
#include <memory>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "snapshot/snapshot_stream.h"
#include "storage/manifest/store.h"
#include "storage/shard/shard_writer.h"
#include "tidemark/future.h"

namespace tidemark {

// Expect is thread-safe; Consume runs on the persister's thread, which owns the writer and its ring.
class Persister final : public SnapshotConsumer {
 public:
  // `store` is not owned and outlives the persister.
  Persister(storage::FileSystem& files, storage::Store& store, const storage::ShardWriterOptions& options,
            std::function<void(std::string_view)> warn);

  // Before the snapshot is published: what to resolve when it is committed, or has failed.
  void Expect(const StagedSnapshot* snapshot, Promise committed);

  void Consume(const std::shared_ptr<const StagedSnapshot>& snapshot) override;

 private:
  absl::Status Persist(const StagedSnapshot& snapshot);
  absl::Status PersistOnce(const StagedSnapshot& snapshot);

  storage::FileSystem& files_;
  storage::Store& store_;
  const storage::ShardWriterOptions options_;
  const std::function<void(std::string_view)> warn_;
  std::unique_ptr<storage::ShardWriter> writer_;  // made on the persister's thread

  absl::Mutex mutex_;
  absl::flat_hash_map<const StagedSnapshot*, Promise> promises_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_PERSISTER_H_
