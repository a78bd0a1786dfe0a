// An IoQueue on io_uring. Only this pair of files and uring_registration know liburing.

#ifndef TIDEMARK_STORAGE_IO_QUEUES_URING_QUEUE_H_
#define TIDEMARK_STORAGE_IO_QUEUES_URING_QUEUE_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "storage/io/file_system.h"

namespace tidemark::storage {

// Sets of IORING_SETUP_* flags, the best first. A kernel answers EINVAL to flags that it does not know.
std::span<const unsigned> UringSetups();

// Owned by the thread that submits first: the kernel binds the ring to it, and Create may run on another one. That
// thread destroys it too, unless nothing is in flight. Only files that were opened by PosixFileSystem() can be in its
// requests.
class UringQueue final : public IoQueue {
 public:
  // Creates the ring and makes sure that all that it will need is allowed and there; kUnavailable, with the kernel's
  // reason, if not. Takes the first of `setups` that the kernel knows.
  static absl::StatusOr<std::unique_ptr<IoQueue>> Create(size_t depth,
                                                         std::span<const unsigned> setups = UringSetups());

  ~UringQueue() override;

  std::string_view name() const override { return "io_uring"; }
  size_t depth() const override;
  size_t in_flight() const override;
  void Submit(const IoRequest& request) override;
  IoCompletion Wait() override;
  std::optional<IoCompletion> Poll() override;
  absl::Status RegisterMemory(std::span<const std::byte> memory) override;
  void UnregisterMemory(std::span<const std::byte> memory) override;
  absl::Status RegisterFile(File* file) override;
  void UnregisterFile() override;

 private:
  struct Ring;
  explicit UringQueue(std::unique_ptr<Ring> ring);

  const std::unique_ptr<Ring> ring_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_QUEUES_URING_QUEUE_H_
