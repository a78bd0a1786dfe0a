// The bytes of a file that a DraftFileSystem keeps.

#ifndef TIDEMARK_STORAGE_IO_DRAFT_CONTENTS_H_
#define TIDEMARK_STORAGE_IO_DRAFT_CONTENTS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tidemark::storage {

// Thread-safe.
class DraftContents {
 public:
  explicit DraftContents(std::string bytes = "") : bytes_(std::move(bytes)) {}

  uint64_t Size() const {
    absl::MutexLock lock(&mutex_);
    return bytes_.size();
  }
  bool Read(uint64_t offset, std::span<std::byte> out) const {
    absl::MutexLock lock(&mutex_);
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset) return false;
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return true;
  }
  void Write(uint64_t offset, std::span<const std::byte> data) {
    absl::MutexLock lock(&mutex_);
    if (bytes_.size() < offset + data.size()) bytes_.resize(offset + data.size());
    if (!data.empty()) std::memcpy(bytes_.data() + offset, data.data(), data.size());
  }
  void Resize(uint64_t bytes) {
    absl::MutexLock lock(&mutex_);
    bytes_.resize(bytes);
  }
  void Grow(uint64_t bytes) {
    absl::MutexLock lock(&mutex_);
    if (bytes_.size() < bytes) bytes_.resize(bytes);
  }
  void Replace(std::string bytes) {
    absl::MutexLock lock(&mutex_);
    bytes_ = std::move(bytes);
  }
  std::string Copy() const {
    absl::MutexLock lock(&mutex_);
    return bytes_;
  }

 private:
  mutable absl::Mutex mutex_;
  std::string bytes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_DRAFT_CONTENTS_H_
