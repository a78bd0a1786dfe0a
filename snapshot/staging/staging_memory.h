// The memory that staging arenas are made of: taken from the system and touched once, so that copying into it is a
// copy and nothing else (a page that is touched for the first time copies 25 to 40 times slower than a warm one).

#ifndef TIDEMARK_SNAPSHOT_STAGING_STAGING_MEMORY_H_
#define TIDEMARK_SNAPSHOT_STAGING_STAGING_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "snapshot/staging/copy_pool.h"

namespace tidemark {

struct StagingMemory {
  std::shared_ptr<std::byte> data;  // aligned to 4096 bytes
  std::string kind;                 // "locked", "not locked: REASON" or "pinned": what the driver of a device gave
};

// What mappings are rounded up to: huge pages from their size on, else pages.
size_t RoundUpToPages(size_t bytes);

// Anonymous memory, in huge pages where the system has them, every page present, locked where that is allowed. The
// threads of `pool` share the touching. kResourceExhausted: the system has not as much. Precondition: `bytes` is a
// result of RoundUpToPages.
absl::StatusOr<StagingMemory> MapStagingMemory(size_t bytes, CopyPool& pool);

// The same, without touching it: a PageToucher makes its pages present.
absl::StatusOr<StagingMemory> MapUntouchedMemory(size_t bytes);

// Makes the pages of `data`, which MapUntouchedMemory gave, present. Thread-compatible; its own
// thread uses nothing but the memory.
class PageToucher {
 public:
  PageToucher(std::shared_ptr<std::byte> data, size_t bytes);
  // Leaves the rest untouched.
  ~PageToucher();

  // Has a thread of its own touch them. Where the system gives no thread, Finish does it all.
  void Begin();
  // Touches the rest together with the threads of `pool`. kResourceExhausted: the system has too little memory.
  absl::Status Finish(CopyPool& pool);

  size_t bytes() const { return bytes_; }

 private:
  void TouchPieces();

  const std::shared_ptr<std::byte> data_;
  const size_t bytes_;
  std::atomic<size_t> next_ = 0;  // where the next piece begins
  std::atomic<int> error_ = 0;    // the errno of a piece that could not be touched
  std::thread thread_;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_STAGING_STAGING_MEMORY_H_
