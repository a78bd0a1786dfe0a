// LastCommitted: the shard of the last committed step, whose chunks the next save need not write again. In a job of
// several ranks it is the rank's last committed shard that refers to no other file. So a reader of all ranks' shards
// has two files of each rank open, and few attempts keep their files for a step.

#ifndef TIDEMARK_SNAPSHOT_HOUSEKEEPING_LAST_COMMITTED_H_
#define TIDEMARK_SNAPSHOT_HOUSEKEEPING_LAST_COMMITTED_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "storage/shard/format/reusable_shard.h"
#include "storage/store/store.h"

namespace tidemark {

// Thread-safe. Files are looked at, and warnings given, with no lock held.
class LastCommitted {
 public:
  // Neither is owned. `of_rank`: of a job of several. `warn`: any thread.
  LastCommitted(storage::FileSystem& files, const storage::Store& store, bool of_rank,
                std::function<void(std::string_view)> warn)
      : files_(files), store_(store), of_rank_(of_rank), warn_(std::move(warn)) {}

  // Null if there is none that can be built upon: nothing is committed; it, or a file that it refers to, is gone or is
  // recorded as damaged. Of a rank also where any step was found damaged since it was set, because that process may be
  // another one than this. The first call reads its index from the store, but not of a rank.
  std::shared_ptr<const storage::ReusableShard> Get();

  // What Get would begin with, without a look at files; null also before the first Get or Set.
  std::shared_ptr<const storage::ReusableShard> Known() const;

  // What is set while Get looks at files is what counts then. Nothing is set where something has been forgotten since
  // times_forgotten() gave that number: a save that had begun by then may have built upon it. Nor is a rank's shard
  // that refers to other files: the one before stays. Returns the shard that was set before, or `shard` itself if
  // nothing was set. The caller destroys it, at a time when nothing waits for the caller's thread: a large index takes
  // long to destroy.
  [[nodiscard]] std::shared_ptr<const storage::ReusableShard> Set(std::shared_ptr<const storage::ReusableShard> shard,
                                                                  uint64_t times_forgotten);
  uint64_t times_forgotten() const;

  // Something that was committed turned out damaged, and how far the damage goes is not known; or it is not known
  // whether a later step was committed. So nothing that is on disk now is built upon.
  void Forget();

 private:
  std::shared_ptr<const storage::ReusableShard> Read() const;
  absl::Status CheckFiles(const storage::ReusableShard& shard) const;
  absl::Status CheckFile(int64_t step, const storage::AttemptId& attempt, uint32_t rank, uint32_t world_size) const;

  storage::FileSystem& files_;
  const storage::Store& store_;
  const bool of_rank_;
  const std::function<void(std::string_view)> warn_;

  mutable absl::Mutex mutex_;
  uint64_t times_set_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t times_forgotten_ ABSL_GUARDED_BY(mutex_) = 0;
  bool known_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const storage::ReusableShard> shard_ ABSL_GUARDED_BY(mutex_);
  uint64_t times_damaged_ ABSL_GUARDED_BY(mutex_) = 0;  // of the store, when shard_ was set
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_HOUSEKEEPING_LAST_COMMITTED_H_
