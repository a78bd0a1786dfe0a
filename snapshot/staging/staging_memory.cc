#include "snapshot/staging/staging_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <utility>

#include "fmt/format.h"

namespace tidemark {
namespace {

// x86-64 and arm64 with 4 KiB pages: mappings that begin and end here can be huge pages throughout.
constexpr size_t kHugePageBytes = 2 << 20;
constexpr size_t kPageBytes = 4096;
// What one thread touches at a time: enough that the system call costs nothing beside it.
constexpr size_t kTouchBytes = 16 << 20;

// At a multiple of the huge page size; null with errno set if there is none.
std::byte* Map(size_t bytes) {
  const size_t span = bytes + kHugePageBytes;
  void* mapped = mmap(nullptr, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t aligned = (begin + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  if (aligned > begin) munmap(mapped, aligned - begin);
  if (begin + span > aligned + bytes) munmap(reinterpret_cast<void*>(aligned + bytes), begin + span - aligned - bytes);
  auto* data = reinterpret_cast<std::byte*>(aligned);
  madvise(data, bytes, MADV_HUGEPAGE);  // a wish: systems without huge pages say no
  // Pages that the ring has pinned would be copied by a fork at once, and no child has any use for them.
  madvise(data, bytes, MADV_DONTFORK);
  return data;
}

// 0 or an errno.
int Touch(std::byte* data, size_t bytes) {
  // Linux 5.14 and later fault everything in at once; on older ones each page is touched. Neither reports that the
  // system has too little memory: the kernel kills a process then. So the arena asks before it grows.
  if (madvise(data, bytes, MADV_POPULATE_WRITE) == 0) return 0;
  if (errno != EINVAL) return errno;
  for (size_t i = 0; i < bytes; i += kPageBytes) data[i] = std::byte{0};
  return 0;
}

absl::Status NoMemory(size_t bytes, int error) {
  return absl::ResourceExhaustedError(
      fmt::format("the system has no {} bytes of memory for staging: {}", bytes, strerrordesc_np(error)));
}

}  // namespace

size_t RoundUpToPages(size_t bytes) {
  const size_t unit = bytes >= kHugePageBytes ? kHugePageBytes : kPageBytes;
  return std::max<size_t>(unit, (bytes + unit - 1) / unit * unit);
}

absl::StatusOr<StagingMemory> MapUntouchedMemory(size_t bytes) {
  std::byte* const mapped = Map(bytes);
  if (mapped == nullptr) return NoMemory(bytes, errno);
  StagingMemory memory{.data = {mapped, [bytes](std::byte* data) { munmap(data, bytes); }}, .kind = "locked"};
  // Locked pages are never swapped out under a copy. RLIMIT_MEMLOCK is often 8 MiB; unlocked memory is only slower when
  // the system is short. Each page is locked once it is touched.
  if (mlock2(mapped, bytes, MLOCK_ONFAULT) != 0) {
    memory.kind = fmt::format("not locked: {} bytes: {} (ulimit -l)", bytes, strerrordesc_np(errno));
  }
  return memory;
}

absl::StatusOr<StagingMemory> MapStagingMemory(size_t bytes, CopyPool& pool) {
  absl::StatusOr<StagingMemory> memory = MapUntouchedMemory(bytes);
  if (!memory.ok()) return memory;
  if (absl::Status touched = PageToucher(memory->data, bytes).Finish(pool); !touched.ok()) return touched;
  return memory;
}

PageToucher::PageToucher(std::shared_ptr<std::byte> data, size_t bytes) : data_(std::move(data)), bytes_(bytes) {}

PageToucher::~PageToucher() {
  next_ = bytes_;
  if (thread_.joinable()) thread_.join();
}

void PageToucher::TouchPieces() {
  while (error_ == 0) {
    const size_t begin = next_.fetch_add(kTouchBytes);
    if (begin >= bytes_) return;
    const int error = Touch(data_.get() + begin, std::min(kTouchBytes, bytes_ - begin));
    if (error != 0) error_ = error;
  }
}

void PageToucher::Begin() {
  try {
    thread_ = std::thread([this] { TouchPieces(); });
  } catch (const std::system_error&) {
  }
}

absl::Status PageToucher::Finish(CopyPool& pool) {
  pool.Run(static_cast<size_t>(pool.threads()), [this](size_t) { TouchPieces(); });
  if (thread_.joinable()) thread_.join();
  return error_ == 0 ? absl::OkStatus() : NoMemory(bytes_, error_);
}

}  // namespace tidemark
