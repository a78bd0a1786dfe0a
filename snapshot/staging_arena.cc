#include "snapshot/staging_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "fmt/format.h"

namespace tidemark {
namespace {

// x86-64 and arm64 with 4 KiB pages: mappings that begin and end here can be huge pages throughout.
constexpr size_t kHugePageBytes = 2 << 20;
constexpr size_t kPageBytes = 4096;

size_t RoundUp(uint64_t bytes) {
  const size_t unit = bytes >= kHugePageBytes ? kHugePageBytes : kPageBytes;
  return std::max<size_t>(unit, (bytes + unit - 1) / unit * unit);
}

// Anonymous memory at a multiple of the huge page size, every page of it present; null with errno set if there is none.
std::byte* MapWarm(size_t bytes) {
  const size_t span = bytes + kHugePageBytes;
  void* mapped = mmap(nullptr, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t aligned = (begin + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  if (aligned > begin) munmap(mapped, aligned - begin);
  if (begin + span > aligned + bytes) munmap(reinterpret_cast<void*>(aligned + bytes), begin + span - aligned - bytes);
  auto* data = reinterpret_cast<std::byte*>(aligned);
  madvise(data, bytes, MADV_HUGEPAGE);  // a wish: systems without huge pages say no
  // Linux 5.14 and later fault everything in at once and say when there is not enough; before that, touching is all
  // there is.
  if (madvise(data, bytes, MADV_POPULATE_WRITE) != 0) {
    if (errno != EINVAL) {
      const int error = errno;
      munmap(data, bytes);
      errno = error;
      return nullptr;
    }
    for (size_t i = 0; i < bytes; i += kPageBytes) data[i] = std::byte{0};
  }
  // Locked pages are never swapped out under a copy. RLIMIT_MEMLOCK is often 8 MiB; unlocked memory is only slower when
  // the system is short.
  mlock(data, bytes);
  return data;
}

}  // namespace

StagingArena::Block::Block(std::shared_ptr<StagingArena> arena, std::byte* data, size_t bytes)
    : arena_(std::move(arena)), data_(data), bytes_(bytes) {}

StagingArena::Block::~Block() { arena_->Return({data_, bytes_}); }

StagingArena::StagingArena(uint64_t bytes_max) : bytes_max_(bytes_max), bytes_max_is_automatic_(bytes_max == 0) {}

std::shared_ptr<StagingArena> StagingArena::Create(uint64_t bytes_max) {
  return std::shared_ptr<StagingArena>(new StagingArena(bytes_max));
}

StagingArena::~StagingArena() {
  for (const Mapping& mapping : idle_) munmap(mapping.data, mapping.bytes);
}

bool StagingArena::HasRoom(size_t bytes) const { return in_use_ + bytes <= bytes_max_; }

// An idle mapping of this size, or a null one that the caller must fill; idle ones of other sizes go if the budget
// needs it.
StagingArena::Mapping StagingArena::Take(size_t bytes) {
  in_use_ += bytes;
  const auto found = std::find_if(idle_.begin(), idle_.end(), [&](const Mapping& idle) { return idle.bytes == bytes; });
  if (found != idle_.end()) {
    const Mapping mapping = *found;
    idle_.erase(found);
    return mapping;
  }
  while (mapped_ + bytes > bytes_max_ && !idle_.empty()) {
    munmap(idle_.back().data, idle_.back().bytes);
    mapped_ -= idle_.back().bytes;
    idle_.pop_back();
  }
  mapped_ += bytes;
  return {nullptr, bytes};
}

absl::StatusOr<std::unique_ptr<StagingArena::Block>> StagingArena::Acquire(uint64_t bytes, WhenFull when_full) {
  const size_t rounded = RoundUp(bytes);
  Mapping mapping;
  {
    absl::MutexLock lock(&mutex_);
    if (bytes_max_is_automatic_) bytes_max_ = std::max<uint64_t>(bytes_max_, 2 * static_cast<uint64_t>(rounded));
    if (rounded > bytes_max_) {
      return absl::ResourceExhaustedError(
          fmt::format("the state needs {} bytes of staging memory; staging_bytes_max is {}", rounded, bytes_max_));
    }
    const auto has_room = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return HasRoom(rounded); };
    if (when_full == WhenFull::kBlock) {
      mutex_.Await(absl::Condition(&has_room));
    } else if (!has_room()) {
      return nullptr;
    }
    mapping = Take(rounded);
  }
  if (mapping.data == nullptr) {
    mapping.data = MapWarm(rounded);
    if (mapping.data == nullptr) {
      const int error = errno;
      absl::MutexLock lock(&mutex_);
      in_use_ -= rounded;
      mapped_ -= rounded;
      return absl::ResourceExhaustedError(
          fmt::format("the system has no {} bytes of memory for staging: {}", rounded, strerrordesc_np(error)));
    }
  }
  return std::make_unique<Block>(shared_from_this(), mapping.data, rounded);
}

void StagingArena::Return(Mapping mapping) {
  absl::MutexLock lock(&mutex_);
  in_use_ -= mapping.bytes;
  idle_.push_back(mapping);
}

uint64_t StagingArena::bytes_in_use() const {
  absl::MutexLock lock(&mutex_);
  return in_use_;
}

uint64_t StagingArena::bytes_max() const {
  absl::MutexLock lock(&mutex_);
  return bytes_max_;
}

uint64_t StagingArena::bytes_mapped() const {
  absl::MutexLock lock(&mutex_);
  return mapped_;
}

}  // namespace tidemark
