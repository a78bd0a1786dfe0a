// Encodes chunks on threads of its own and hands them out in the order in which they were given.

#ifndef TIDEMARK_STORAGE_SHARD_WRITE_ENCODE_PIPELINE_H_
#define TIDEMARK_STORAGE_SHARD_WRITE_ENCODE_PIPELINE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "storage/shard/format/chunk_codec.h"
#include "storage/shard/write/busy_spans.h"
#include "storage/shard/write/compression_governor.h"
#include "storage/shard/write/tiles.h"

namespace tidemark::storage {

// Owned by one thread. Threads take and return chunks in batches, so that thousands of small ones cost no more than a
// large one. Its memory is bounded by bytes, see ShapeOf; buffers are reused for the next run.
class EncodePipeline {
 public:
  struct Task {
    std::span<const std::byte> raw;   // the chunk, or the box of `tile`; must not change until the run is stopped
    const TileBytes* tile = nullptr;  // whose bytes [tile_begin, tile_end) are the chunk, or null; stays like `raw`
    uint64_t tile_begin = 0;
    uint64_t tile_end = 0;
    uint8_t float_bytes = 0;
    size_t entry = 0;                       // what wait_until_ready is asked for: the entry,
    uint64_t end = 0;                       // and where in it the chunk ends
    const ChunkRecord* reusable = nullptr;  // of a chunk elsewhere that may have the same bytes; stays like `raw`
    ChunkRecord* record = nullptr;          // filled in, but for file and offset, unless the chunk is reused

    uint64_t bytes() const { return tile == nullptr ? raw.size() : tile_end - tile_begin; }
  };
  // See ShardContents::wait_until_ready; may be null.
  using WaitUntilReady = std::function<absl::Status(size_t entry, uint64_t end)>;
  // See ShardContents::compress_all; may be null.
  using CompressAll = std::function<bool()>;

  struct Encoded {
    const Task* task = nullptr;
    bool reused = false;  // the bytes are those of Task::reusable, and nothing is stored
    // Task::raw itself where the codec is Codec::kRaw. Then it is empty for a chunk of a tile, whose bytes lie in runs.
    std::span<const std::byte> stored;
  };

  // What is kept in memory: each thread has a buffer of one chunk for the byte planes, each slot one for an encoded
  // batch that waits for its turn. A thread that has encoded a tile has another one, of a batch.
  struct Shape {
    size_t threads = 1;
    size_t slots = 1;
  };

  // Chunks that follow each other and have at most this many bytes together are one batch.
  static constexpr size_t kBatchBytes = 256 << 10;
  // And at most this many chunks, however small.
  static constexpr size_t kBatchChunksMax = 1024;

  // kWindowPerThread slots for each thread, or fewer, and in the end fewer threads, where the buffers of both would be
  // more than max(2 * chunk_bytes, kBufferBytesMax). CodecPolicy::kNone has no buffers, hence no limit.
  static Shape ShapeOf(CodecPolicy policy, uint32_t chunk_bytes, int threads);

  // Starts up to `threads` threads, which inherit the calling thread's priority. kResourceExhausted: the system gives
  // no thread, or no memory for each thread's own buffers. No task may be longer than `chunk_bytes`. `governor` decides
  // under CodecPolicy::kThroughput and kAuto, and is told of chunks that are encoded and handed out. It is not owned,
  // and may be null under other policies. Preconditions: `threads` >= 1, IsValidChunkBytes(chunk_bytes).
  static absl::StatusOr<std::unique_ptr<EncodePipeline>> Create(CodecPolicy policy, uint32_t chunk_bytes, int threads,
                                                                CompressionGovernor* governor = nullptr);

  EncodePipeline(const EncodePipeline&) = delete;
  EncodePipeline& operator=(const EncodePipeline&) = delete;
  ~EncodePipeline();  // stops the run, if there is one, and joins the threads

  // Begins a run. Precondition: there is none.
  void Start(std::vector<Task> tasks, WaitUntilReady wait_until_ready = nullptr, CompressAll compress_all = nullptr);

  // Waits for the next batch; it stays until the next call. Empty: all chunks were handed out. An error is the last
  // answer of the run. It is an error of wait_until_ready or of ChunkCheck, or kResourceExhausted: no memory for an
  // encoded chunk. Precondition: a run.
  absl::StatusOr<std::span<const Encoded>> Next();

  // Whether Next would not wait.
  bool HasNext();

  // Ends the run, finished or not. No thread looks at the tasks' bytes after that, nor is inside wait_until_ready, the
  // end of which it awaits.
  void Stop();

  // Of each thread, when it encoded in the last run, and how many bytes as they were before. Not during a run.
  std::span<const BusySpans> busy() const { return busy_; }

 private:
  static constexpr size_t kWindowPerThread = 3;
  // Chunks of the usual 1 MiB are encoded by 16 threads with all their slots, and by up to 32 threads.
  static constexpr size_t kBufferBytesMax = 64 << 20;

  struct Run {
    std::vector<Task> tasks;
    std::vector<size_t> batch_ends;  // in `tasks`
    WaitUntilReady wait_until_ready;
    CompressAll compress_all;
  };
  struct Slot {
    std::vector<Encoded> batch;
    std::vector<std::byte> buffer;
    size_t used = 0;  // of the buffer, by a batch of several chunks
  };
  struct Worker;

  EncodePipeline(CodecPolicy policy, const Shape& shape, CompressionGovernor* governor);

  void Work(Worker* worker);
  absl::Status EncodeBatch(const Run& run, size_t batch, Worker* worker, Slot* slot) const;
  static void Gather(std::span<const Task> tasks, size_t bytes_max, Worker* worker);
  static std::span<const std::byte> EncodeChunk(const Task& task, std::span<const std::byte> raw, bool compress,
                                                Worker* worker, Slot* slot);
  bool MayWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  bool IsDecided() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  bool NobodyWorks() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return working_ == 0; }

  const CodecPolicy policy_;
  CompressionGovernor* const governor_;  // null unless the policy is kThroughput or kAuto

  // Batch i is in slot i % slots_.size(). A slot is touched by the thread that took its batch, until ready_ is set, and
  // from then by the owner, until returned_ passes it.
  std::vector<Slot> slots_;

  // By thread. Each is touched by its thread while that is inside a batch, and by the owner between runs.
  std::vector<BusySpans> busy_;

  // One for each thread; no other thread uses it.
  std::vector<std::unique_ptr<Worker>> workers_;

  absl::Mutex mutex_;
  std::vector<bool> ready_ ABSL_GUARDED_BY(mutex_);  // by slot
  // Null between runs. It does not change while threads work, who read it without the lock.
  std::unique_ptr<const Run> run_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  size_t taken_ ABSL_GUARDED_BY(mutex_) = 0;      // batches that a thread has begun
  size_t returned_ ABSL_GUARDED_BY(mutex_) = 0;   // batches that the owner has done with
  bool holding_ ABSL_GUARDED_BY(mutex_) = false;  // the owner has batch returned_ at hand
  size_t working_ ABSL_GUARDED_BY(mutex_) = 0;    // threads that are inside a batch
  bool quit_ ABSL_GUARDED_BY(mutex_) = false;

  std::vector<std::thread> threads_;  // last: they use all of the above
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_WRITE_ENCODE_PIPELINE_H_
