#include "snapshot/staging/staging_arena.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "fmt/format.h"
#include "storage/io/exception_status.h"

namespace tidemark {
namespace {

// A state whose values change their length, up and down, keeps its memory while it needs at least 4/5 of it.
constexpr size_t kSpareShare = 4;

uint64_t Product(uint64_t a, uint64_t b) {
  return b != 0 && a > std::numeric_limits<uint64_t>::max() / b ? std::numeric_limits<uint64_t>::max() : a * b;
}

}  // namespace

StagingArena::Block::Block(std::shared_ptr<StagingArena> arena, Mapping mapping)
    : arena_(std::move(arena)), mapping_(std::move(mapping)) {}

StagingArena::Block::~Block() { arena_->Return(std::move(mapping_)); }

StagingArena::StagingArena(uint64_t bytes_max, std::function<AvailableMemory()> available,
                           std::function<void(std::string_view)> warn)
    : available_(std::move(available)),
      warn_(std::move(warn)),
      bytes_max_(bytes_max),
      bytes_max_is_automatic_(bytes_max == 0) {}

std::shared_ptr<StagingArena> StagingArena::Create(uint64_t bytes_max, std::function<AvailableMemory()> available,
                                                   std::function<void(std::string_view)> warn) {
  return std::shared_ptr<StagingArena>(new StagingArena(bytes_max, std::move(available), std::move(warn)));
}

StagingArena::~StagingArena() = default;

void StagingArena::AddSnapshots(uint64_t snapshots) {
  absl::MutexLock lock(&mutex_);
  snapshots_ += std::min(snapshots, std::numeric_limits<uint64_t>::max() - snapshots_);
}

bool StagingArena::HasRoom(size_t bytes) const { return in_use_ + bytes <= bytes_max_; }

bool StagingArena::Fits(size_t idle_bytes, size_t bytes) {
  return idle_bytes >= bytes && idle_bytes - bytes <= bytes / kSpareShare;
}

// The smallest idle mapping that fits, or a null one that the caller must fill; idle ones that do not fit go if the
// budget needs it.
StagingArena::Mapping StagingArena::Take(size_t bytes) {
  auto found = idle_.end();
  for (auto idle = idle_.begin(); idle != idle_.end(); ++idle) {
    const bool fits = Fits(idle->bytes, bytes) && (idle->bytes == bytes || HasRoom(idle->bytes));
    if (fits && (found == idle_.end() || idle->bytes < found->bytes)) found = idle;
  }
  if (found != idle_.end()) {
    Mapping mapping = *std::move(found);
    idle_.erase(found);
    in_use_ += mapping.bytes;
    return mapping;
  }
  in_use_ += bytes;
  while (mapped_ + bytes > bytes_max_ && !idle_.empty()) {
    mapped_ -= idle_.back().bytes;
    idle_.pop_back();
  }
  mapped_ += bytes;
  return {.memory = {}, .bytes = bytes};
}

absl::StatusOr<std::unique_ptr<StagingArena::Block>> StagingArena::Acquire(uint64_t bytes, WhenFull when_full,
                                                                           const MemorySource& source) {
  const size_t rounded = RoundUpToPages(bytes);
  for (;;) {
    const uint64_t seen = changes();
    auto block = AcquireNow(rounded, when_full, source);
    if (!absl::IsResourceExhausted(block.status())) return block;
    if (!MayComeBack(rounded)) {
      // A block that has come back since is idle now, and needs no more of the system's memory.
      if (changes() != seen) continue;
      return block;
    }
    if (when_full != WhenFull::kBlock) return nullptr;
    AwaitChange(seen);
  }
}

absl::StatusOr<std::unique_ptr<StagingArena::Block>> StagingArena::AcquireNow(size_t rounded, WhenFull when_full,
                                                                              const MemorySource& source) {
  uint64_t bytes_max_before = 0, bytes_max_raised = 0;
  Mapping mapping;
  {
    absl::MutexLock lock(&mutex_);
    bytes_max_before = bytes_max_;
    if (bytes_max_is_automatic_) bytes_max_ = std::max(bytes_max_, Product(snapshots_, rounded));
    bytes_max_raised = bytes_max_;
    if (rounded > bytes_max_) {
      return absl::ResourceExhaustedError(
          fmt::format("the state needs {} bytes of staging memory; staging_bytes_max is {}", rounded, bytes_max_));
    }
    if (when_full != WhenFull::kBlock && !HasRoom(rounded)) return nullptr;
    const auto has_room = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return HasRoom(rounded); };
    mutex_.Await(absl::Condition(&has_room));
    mapping = Take(rounded);
  }
  absl::StatusOr<std::unique_ptr<Block>> block = Fill(std::move(mapping), source);
  if (!block.ok()) {
    // A state that there is no memory for says nothing of how much the others may take.
    absl::MutexLock lock(&mutex_);
    if (bytes_max_ == bytes_max_raised) bytes_max_ = bytes_max_before;
  }
  return block;
}

absl::StatusOr<std::unique_ptr<StagingArena::Block>> StagingArena::AcquireBeyondBudget(uint64_t bytes,
                                                                                       const MemorySource& source) {
  Mapping mapping;
  {
    absl::MutexLock lock(&mutex_);
    mapping = Take(RoundUpToPages(bytes));
  }
  return Fill(std::move(mapping), source);
}

absl::StatusOr<std::unique_ptr<StagingArena::Block>> StagingArena::Fill(Mapping mapping, const MemorySource& source) {
  const size_t bytes = mapping.bytes;
  absl::Status failure;
  try {
    if (mapping.memory.data == nullptr) {
      absl::StatusOr<StagingMemory> memory = GetMemory(bytes, source);
      failure = memory.status();
      if (memory.ok()) mapping.memory = *std::move(memory);
    }
    if (failure.ok()) return std::make_unique<Block>(shared_from_this(), std::move(mapping));
  } catch (...) {
    failure = storage::ExceptionStatus("take staging memory");
  }
  absl::MutexLock lock(&mutex_);
  in_use_ -= bytes;
  mapped_ -= bytes;
  return failure;
}

absl::StatusOr<StagingMemory> StagingArena::GetMemory(size_t bytes, const MemorySource& source) {
  absl::Status available = CheckAvailable(bytes);
  if (!available.ok()) {
    // A block of this size may have come back since it was asked for. It needs no more of the system's memory.
    absl::MutexLock lock(&mutex_);
    const auto same =
        std::find_if(idle_.begin(), idle_.end(), [&](const Mapping& idle) { return idle.bytes == bytes; });
    if (same != idle_.end()) {
      StagingMemory memory = std::move(same->memory);
      idle_.erase(same);
      mapped_ -= bytes;  // it is counted for the block that it now becomes, too
      return memory;
    }
  }
  if (!available.ok() && DropIdle()) available = CheckAvailable(bytes);
  if (!available.ok()) return available;
  return source(bytes);
}

absl::Status StagingArena::CheckAvailable(size_t bytes) const {
  if (available_ == nullptr) return absl::OkStatus();
  const AvailableMemory available = available_();
  if (bytes <= available.bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      fmt::format("the state needs {} more bytes of staging memory, and {} are available ({})", bytes, available.bytes,
                  available.limit));
}

bool StagingArena::DropIdle() {
  std::vector<Mapping> dropped;
  absl::MutexLock lock(&mutex_);
  dropped.swap(idle_);
  for (const Mapping& idle : dropped) mapped_ -= idle.bytes;
  return !dropped.empty();
}

bool StagingArena::MayComeBack(size_t bytes) {
  const absl::Status refusal = CheckAvailable(bytes);
  if (refusal.ok()) return false;
  const uint64_t available = available_().bytes;
  {
    absl::MutexLock lock(&mutex_);
    if (in_use_ == 0 || bytes > available + mapped_) return false;
    if (bytes_max_is_automatic_) bytes_max_ = mapped_;
    if (std::exchange(warned_, true)) return true;
  }
  if (warn_) warn_(std::string(refusal.message()));
  return true;
}

void StagingArena::Return(Mapping mapping) {
  absl::MutexLock lock(&mutex_);
  in_use_ -= mapping.bytes;
  const size_t bytes = mapping.bytes;
  try {
    idle_.push_back(std::move(mapping));
  } catch (...) {
    mapped_ -= bytes;  // there is no memory to remember it by, so it goes back to the system
  }
  ++changes_;
  changed_.NotifyAll();
}

uint64_t StagingArena::changes() const {
  absl::MutexLock lock(&mutex_);
  return changes_;
}

bool StagingArena::AwaitChange(uint64_t seen, const Deadline& deadline) const {
  absl::MutexLock lock(&mutex_);
  const auto changed = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return changes_ != seen; };
  return changed_.Await(&mutex_, changed, deadline);
}

void StagingArena::NoteReleased() {
  absl::MutexLock lock(&mutex_);
  ++changes_;
  changed_.NotifyAll();
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
