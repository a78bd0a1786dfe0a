// Encodes chunks on threads of its own and hands them out in the order in which they were given.

#ifndef TIDEMARK_STORAGE_SHARD_ENCODE_PIPELINE_H_
#define TIDEMARK_STORAGE_SHARD_ENCODE_PIPELINE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "storage/shard/chunk_codec.h"

namespace tidemark::storage {

// Owned by one thread. Its memory is bounded by bytes, see ShapeOf; buffers are reused for the next run.
class EncodePipeline {
 public:
  struct Task {
    std::span<const std::byte> raw;  // must not change until the run is stopped
    uint8_t float_bytes = 0;
  };
  struct Encoded {
    std::span<const std::byte> stored;
    ChunkRecord record;  // without file and offset
  };

  // What is kept in memory: each thread has a buffer of one chunk for the byte planes, each slot one for an encoded
  // chunk that waits for its turn.
  struct Shape {
    size_t threads = 1;
    size_t slots = 1;
  };

  // kWindowPerThread slots for each thread, or fewer, and in the end fewer threads, where the buffers of both would be
  // more than max(2 * chunk_bytes, kBufferBytesMax). CodecPolicy::kNone has no buffers, hence no limit.
  static Shape ShapeOf(CodecPolicy policy, uint32_t chunk_bytes, int threads);

  // Starts up to `threads` threads; kResourceExhausted if the system gives none. No task may be longer than
  // `chunk_bytes`. Preconditions: `threads` >= 1, IsValidChunkBytes(chunk_bytes).
  static absl::StatusOr<std::unique_ptr<EncodePipeline>> Create(CodecPolicy policy, uint32_t chunk_bytes, int threads);

  EncodePipeline(const EncodePipeline&) = delete;
  EncodePipeline& operator=(const EncodePipeline&) = delete;
  ~EncodePipeline();  // stops the run, if there is one, and joins the threads

  // Begins a run. Precondition: there is none.
  void Start(std::vector<Task> tasks);

  // Waits for the next chunk; it stays until the next call. Precondition: a run, with a chunk that was not yet
  // returned.
  const Encoded& Next();

  // Ends the run, finished or not. No thread looks at the tasks' bytes after that.
  void Stop();

 private:
  static constexpr size_t kWindowPerThread = 3;
  // Chunks of the usual 1 MiB are encoded by 16 threads with all their slots, and by up to 32 threads.
  static constexpr size_t kBufferBytesMax = 64 << 20;

  struct Slot {
    Encoded encoded;
    std::vector<std::byte> buffer;
  };

  EncodePipeline(CodecPolicy policy, size_t slots);

  void Work();
  bool MayWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  bool NextIsReady() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  bool NobodyWorks() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return working_ == 0; }

  const CodecPolicy policy_;

  // Chunk i is in slot i % slots_.size(). A slot is touched by the thread that took its chunk, until ready_ is set, and
  // from then by the owner, until returned_ passes it.
  std::vector<Slot> slots_;

  absl::Mutex mutex_;
  std::vector<bool> ready_ ABSL_GUARDED_BY(mutex_);  // by slot
  std::vector<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  size_t taken_ ABSL_GUARDED_BY(mutex_) = 0;      // chunks that a thread has begun
  size_t returned_ ABSL_GUARDED_BY(mutex_) = 0;   // chunks that the owner has done with
  bool holding_ ABSL_GUARDED_BY(mutex_) = false;  // the owner has chunk returned_ at hand
  size_t working_ ABSL_GUARDED_BY(mutex_) = 0;    // threads that are inside the codec
  bool quit_ ABSL_GUARDED_BY(mutex_) = false;

  std::vector<std::thread> threads_;  // last: they use all of the above
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_ENCODE_PIPELINE_H_
