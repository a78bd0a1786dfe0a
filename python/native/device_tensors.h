// Tensors of PyTorch that lie on devices: only PyTorch can copy them, so Python does (tidemark._state.devices).

#ifndef TIDEMARK_PYTHON_NATIVE_DEVICE_TENSORS_H_
#define TIDEMARK_PYTHON_NATIVE_DEVICE_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nanobind/nanobind.h"
#include "python/native/interpreter_lock.h"
#include "tidemark/state.h"

namespace tidemark::python {

// Those of one save or restore. Thread-compatible. Every function takes the interpreter's lock on a thread of its own:
// Python runs the handlers of signals on its main thread alone, so no KeyboardInterrupt can come between the beginning
// of a copy and the wait for its end. The caller must not hold the lock.
class DeviceTensors {
 public:
  struct Write {
    size_t entry;
    std::span<const std::byte> bytes;
  };
  struct Request {
    size_t entry;
    std::byte* destination;
    uint64_t bytes;
  };

  // A tidemark._state.devices.DeviceTensors. With the lock held.
  explicit DeviceTensors(nanobind::object object);

  // These return when all bytes are there; if they fail, when no copy is going on any more. Codes: kResourceExhausted
  // if a device has no memory, kInternal for every other failure of PyTorch, kCancelled if the interpreter has ended.
  absl::Status CopyToHost(std::span<const Request> requests);
  absl::Status WriteAll(std::span<const Write> writes);

  // Copies of tensors on their devices.
  class Image {
   public:
    explicit Image(nanobind::object object);
    uint64_t bytes() const { return bytes_; }
    absl::Status CopyToHost(std::span<const Request> requests);

   private:
    const std::shared_ptr<const SharedObject> object_;
    uint64_t bytes_ = 0;
  };
  // As State::CopyOnDevice; null where there is no room.
  absl::StatusOr<std::unique_ptr<Image>> CopyOnDevice(std::span<const size_t> entries, uint64_t bytes_max);

  // As State::AllocateStaging. The memory may be released on any thread, with any lock held.
  static std::shared_ptr<std::byte> AllocatePageLocked(uint64_t bytes);

 private:
  const std::shared_ptr<const SharedObject> object_;
};

}  // namespace tidemark::python

#endif  // TIDEMARK_PYTHON_NATIVE_DEVICE_TENSORS_H_
