// The memory that a queue was told of beforehand, and for how long that is true.

#ifndef TIDEMARK_STORAGE_IO_REGISTERED_MEMORY_H_
#define TIDEMARK_STORAGE_IO_REGISTERED_MEMORY_H_

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "storage/io/file_system.h"

namespace tidemark::storage {

// Owned by the queue's thread. Registering looks up every page, which pays for memory that is used again; so it stays
// registered from one shard to the next, until its owner has let go of it.
class RegisteredMemory {
 public:
  // `queue` is not owned.
  explicit RegisteredMemory(IoQueue* queue) : queue_(queue) {}

  // Unregisters what is gone, and registers `memory` if it is not: see IoQueue::RegisterMemory. `lifetime` expires
  // before `memory` is unmapped. Precondition: nothing is in flight.
  absl::Status Use(std::span<const std::byte> memory, const std::weak_ptr<const void>& lifetime) {
    std::erase_if(known_, [&](const Known& known) {
      if (!known.lifetime.expired()) return false;
      queue_->UnregisterMemory(known.memory);
      return true;
    });
    if (memory.empty() || lifetime.expired()) return absl::OkStatus();
    const auto is_memory = [&](const Known& known) {
      return known.memory.data() == memory.data() && known.memory.size() == memory.size();
    };
    if (std::any_of(known_.begin(), known_.end(), is_memory)) return absl::OkStatus();
    known_.reserve(known_.size() + 1);  // before registering: else a failure here would leave memory registered and unknown
    absl::Status status = queue_->RegisterMemory(memory);
    if (status.ok()) known_.push_back({memory, lifetime});
    return status;
  }

 private:
  struct Known {
    std::span<const std::byte> memory;
    std::weak_ptr<const void> lifetime;
  };

  IoQueue* const queue_;
  std::vector<Known> known_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_REGISTERED_MEMORY_H_
