// StagingArena: the host memory that snapshots live in, within a budget. Taken once and used again for every later
// snapshot.

#ifndef TIDEMARK_SNAPSHOT_STAGING_STAGING_ARENA_H_
#define TIDEMARK_SNAPSHOT_STAGING_STAGING_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "snapshot/deadline.h"
#include "snapshot/staging/available_memory.h"
#include "snapshot/staging/staging_memory.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {

// Thread-safe. Shared by the checkpointer and every block that is out.
class StagingArena : public std::enable_shared_from_this<StagingArena> {
 private:
  struct Mapping {
    StagingMemory memory;
    size_t bytes;
  };

 public:
  // A piece of the arena, aligned to 4096 bytes. Destroying it gives the memory back.
  class Block {
   public:
    Block(std::shared_ptr<StagingArena> arena, Mapping mapping);
    ~Block();
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    std::byte* data() const { return mapping_.memory.data.get(); }
    size_t bytes() const { return mapping_.bytes; }
    const StagingMemory& memory() const { return mapping_.memory; }
    const std::shared_ptr<StagingArena>& arena() const { return arena_; }

   private:
    const std::shared_ptr<StagingArena> arena_;
    Mapping mapping_;
  };

  // Where memory comes from: called with a result of RoundUpToPages, by the thread that calls Acquire.
  using MemorySource = std::function<absl::StatusOr<StagingMemory>(size_t bytes)>;

  // `bytes_max`: see CheckpointerOptions::staging_bytes_max.
  // `available`: the memory that the system can give; null: no limit. `warn` gets the limit, once, when this leaves
  // no room for another snapshot beside the one in use. It is called on any thread that acquires, and may be null.
  static std::shared_ptr<StagingArena> Create(uint64_t bytes_max, std::function<AvailableMemory()> available = nullptr,
                                              std::function<void(std::string_view)> warn = nullptr);
  ~StagingArena();

  // An automatic budget has room for so many more snapshots, from the next Acquire on; they add up.
  void AddSnapshots(uint64_t snapshots);

  // A block of at least `bytes`. An idle one is used if it fits with at most a quarter to spare; else `source` gives
  // one. While earlier snapshots leave no room, within the budget or in what the system can give, kBlock waits for
  // them, and kSkip and kFail return null.
  // kResourceExhausted under every policy: the state needs more than the whole budget, or more than the system can
  // give. Else the error of `source`.
  absl::StatusOr<std::unique_ptr<Block>> Acquire(uint64_t bytes, WhenFull when_full, const MemorySource& source);

  // The same beyond the budget, without regard to its holders; never null. For a save that is worth more than the
  // budget. Memory that the system cannot give is an error here, too.
  absl::StatusOr<std::unique_ptr<Block>> AcquireBeyondBudget(uint64_t bytes, const MemorySource& source);

  // Whether an idle block of that size is used for a snapshot: one that is much too large is not, since another state
  // may need it. Both are results of RoundUpToPages.
  static bool Fits(size_t idle_bytes, size_t bytes);

  // Gives back the memory that no snapshot uses. False: there is none.
  bool DropIdle();

  // For those who can do something about a lack of room: AwaitChange blocks until memory has come back, or one of a
  // snapshot's holders has let go of it (NoteReleased), since changes() was `seen`. False: not by the deadline.
  uint64_t changes() const;
  bool AwaitChange(uint64_t seen, const Deadline& deadline = Deadline::Never()) const;
  void NoteReleased();

  // Held by snapshots now, and taken from the system.
  uint64_t bytes_in_use() const;
  uint64_t bytes_max() const;
  uint64_t bytes_mapped() const;

 private:
  StagingArena(uint64_t bytes_max, std::function<AvailableMemory()> available,
               std::function<void(std::string_view)> warn);
  bool HasRoom(size_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Mapping Take(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::unique_ptr<Block>> Fill(Mapping mapping, const MemorySource& source);
  absl::StatusOr<StagingMemory> GetMemory(size_t bytes, const MemorySource& source);
  absl::StatusOr<std::unique_ptr<Block>> AcquireNow(size_t rounded, WhenFull when_full, const MemorySource& source);
  absl::Status CheckAvailable(size_t bytes) const;
  // Whether a state of this size, for which the system lacks memory, fits once earlier snapshots have been written.
  // Warns once.
  bool MayComeBack(size_t bytes);
  void Return(Mapping mapping);

  const std::function<AvailableMemory()> available_;
  const std::function<void(std::string_view)> warn_;
  mutable absl::Mutex mutex_;
  bool warned_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t bytes_max_ ABSL_GUARDED_BY(mutex_);
  const bool bytes_max_is_automatic_;
  uint64_t snapshots_ ABSL_GUARDED_BY(mutex_) = 2;  // that an automatic budget has room for
  uint64_t changes_ ABSL_GUARDED_BY(mutex_) = 0;
  mutable MonotonicCondVar changed_;
  std::vector<Mapping> idle_ ABSL_GUARDED_BY(mutex_);
  uint64_t in_use_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t mapped_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_STAGING_STAGING_ARENA_H_
