// LastCommitted: the shard of the last committed step, whose chunks the next save need not write again.

#ifndef TIDEMARK_SNAPSHOT_LAST_COMMITTED_H_
#define TIDEMARK_SNAPSHOT_LAST_COMMITTED_H_

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "storage/manifest/store.h"
#include "storage/shard/shard_writer.h"

namespace tidemark {

// Thread-safe.
class LastCommitted {
 public:
  // Neither is owned.
  LastCommitted(storage::FileSystem& files, const storage::Store& store) : files_(files), store_(store) {}

  // Null if there is none that can be built upon. The first call reads its index from the store.
  std::shared_ptr<const storage::ReusableShard> Get();

  void Set(std::shared_ptr<const storage::ReusableShard> shard);

  // Something that was committed turned out damaged. How far the damage goes is not known, so nothing that is on disk
  // now is built upon.
  void Forget() { Set(nullptr); }

 private:
  std::shared_ptr<const storage::ReusableShard> Read() const;

  storage::FileSystem& files_;
  const storage::Store& store_;

  absl::Mutex mutex_;
  bool known_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const storage::ReusableShard> shard_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_LAST_COMMITTED_H_
