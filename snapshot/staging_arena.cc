#include "snapshot/staging_arena.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "fmt/format.h"

namespace tidemark {
namespace {

uint64_t Product(uint64_t a, uint64_t b) {
  return b != 0 && a > std::numeric_limits<uint64_t>::max() / b ? std::numeric_limits<uint64_t>::max() : a * b;
}

}  // namespace

StagingArena::Block::Block(std::shared_ptr<StagingArena> arena, Mapping mapping)
    : arena_(std::move(arena)), mapping_(std::move(mapping)) {}

StagingArena::Block::~Block() { arena_->Return(std::move(mapping_)); }

StagingArena::StagingArena(uint64_t bytes_max) : bytes_max_(bytes_max), bytes_max_is_automatic_(bytes_max == 0) {}

std::shared_ptr<StagingArena> StagingArena::Create(uint64_t bytes_max) {
  return std::shared_ptr<StagingArena>(new StagingArena(bytes_max));
}

StagingArena::~StagingArena() = default;

void StagingArena::AddSnapshots(uint64_t snapshots) {
  absl::MutexLock lock(&mutex_);
  snapshots_ += std::min(snapshots, std::numeric_limits<uint64_t>::max() - snapshots_);
}

bool StagingArena::HasRoom(size_t bytes) const { return in_use_ + bytes <= bytes_max_; }

// An idle mapping of this size, or a null one that the caller must fill; idle ones of other sizes go if the budget
// needs it.
StagingArena::Mapping StagingArena::Take(size_t bytes) {
  in_use_ += bytes;
  const auto found = std::find_if(idle_.begin(), idle_.end(), [&](const Mapping& idle) { return idle.bytes == bytes; });
  if (found != idle_.end()) {
    Mapping mapping = *std::move(found);
    idle_.erase(found);
    return mapping;
  }
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
  if (mapping.memory.data == nullptr) {
    absl::StatusOr<StagingMemory> memory = source(mapping.bytes);
    if (!memory.ok()) {
      absl::MutexLock lock(&mutex_);
      in_use_ -= mapping.bytes;
      mapped_ -= mapping.bytes;
      return memory.status();
    }
    mapping.memory = *std::move(memory);
  }
  return std::make_unique<Block>(shared_from_this(), std::move(mapping));
}

void StagingArena::Return(Mapping mapping) {
  absl::MutexLock lock(&mutex_);
  in_use_ -= mapping.bytes;
  idle_.push_back(std::move(mapping));
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

void StagingArena::NoteLetGo() {
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
