// Memory that direct I/O takes.

#ifndef TIDEMARK_STORAGE_SHARD_FORMAT_ALIGNED_BUFFER_H_
#define TIDEMARK_STORAGE_SHARD_FORMAT_ALIGNED_BUFFER_H_

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

#include "storage/io/file_system.h"

namespace tidemark::storage {

constexpr uint64_t AlignDown(uint64_t value) { return value / kDirectAlignment * kDirectAlignment; }
// Precondition: `value` is less than 2^64 - kDirectAlignment.
constexpr uint64_t AlignUp(uint64_t value) { return AlignDown(value + kDirectAlignment - 1); }

// Owns its bytes, which are not initialised, and lie in huge pages where they fill some and the system has them: direct
// I/O looks up every page that it touches. Thread-compatible.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // `size` is rounded up to kDirectAlignment. Throws std::bad_alloc if the system has no memory.
  explicit AlignedBuffer(size_t size) : size_(AlignUp(size)) {
    const size_t alignment = size_ >= kHugePageBytes ? kHugePageBytes : kDirectAlignment;
    const size_t allocated = (size_ + alignment - 1) / alignment * alignment;
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, allocated)));
    if (data_ == nullptr && size_ > 0) throw std::bad_alloc();
    if (alignment == kHugePageBytes) madvise(data_.get(), allocated, MADV_HUGEPAGE);  // or ordinary ones
  }

  std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }
  std::span<std::byte> span() const { return {data_.get(), size_}; }

 private:
  static constexpr size_t kHugePageBytes = 2 << 20;

  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  size_t size_ = 0;
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_FORMAT_ALIGNED_BUFFER_H_
