// TensorFeed: tensors as a ShardWriter wants them, as spans of memory, though they are read when the writer comes to
// them and given back behind it.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_TENSOR_FEED_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_TENSOR_FEED_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "storage/shard/write/shard_writer.h"
#include "tools/checkpoint_inspect/tensors/tensor_source.h"

namespace tidemark::inspect {

// Thread-safe. Reserves addresses for all of the bytes and memory for none; what has been read and not been released is
// what the writer has in work, some tens of MiB.
class TensorFeed {
 public:
  // `sources` are not owned and outlive the feed. kResourceExhausted: the system does not give so many addresses.
  static absl::StatusOr<std::unique_ptr<TensorFeed>> Create(std::vector<const TensorSource*> sources);
  ~TensorFeed();
  TensorFeed(const TensorFeed&) = delete;
  TensorFeed& operator=(const TensorFeed&) = delete;

  // Sets entries, wait_until_ready and release. The feed outlives their use. An error of reading becomes the writer's.
  void Attach(storage::ShardContents* contents);

  uint64_t bytes_total() const { return bytes_total_; }
  uint64_t bytes_read() const { return bytes_read_.load(std::memory_order_relaxed); }

 private:
  struct Item {
    const TensorSource* source = nullptr;
    size_t entry = 0;    // of the source
    uint64_t begin = 0;  // of its bytes, in the addresses
    uint64_t bytes = 0;
  };

  explicit TensorFeed(std::vector<const TensorSource*> sources);
  absl::Status FillUpTo(size_t item, uint64_t end) ABSL_LOCKS_EXCLUDED(mutex_);
  void GiveBackUpTo(uint64_t end);

  // Constant after Create.
  std::vector<Item> items_;
  uint64_t bytes_total_ = 0;
  uint64_t address_bytes_ = 0;
  std::byte* addresses_ = nullptr;

  std::atomic<uint64_t> bytes_read_{0};
  uint64_t given_back_ = 0;  // the writer's thread's

  absl::Mutex mutex_;
  // The next bytes to read. Items are filled one after the other, as the writer wants them.
  size_t item_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t filled_ ABSL_GUARDED_BY(mutex_) = 0;  // of that item
};

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_TENSOR_FEED_H_
