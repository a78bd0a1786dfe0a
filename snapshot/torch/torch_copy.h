// The bytes of LibTorch's tensors, to and from host memory. Functions throw what LibTorch throws.

#ifndef TIDEMARK_SNAPSHOT_TORCH_TORCH_COPY_H_
#define TIDEMARK_SNAPSHOT_TORCH_TORCH_COPY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "c10/core/Device.h"
#include "c10/core/Event.h"
#include "c10/core/Stream.h"
#include "c10/core/impl/VirtualGuardImpl.h"

namespace tidemark {

// Whether the tensor can be stored and written back: kInvalidArgument if undefined, kUnimplemented if it is of a sort
// that cannot.
absl::Status CheckStorable(const at::Tensor& tensor);

// The memory of a CPU tensor that holds its elements in order, as they are to be stored; null for every other.
std::byte* HostBytes(const at::Tensor& tensor);

// The same elements as integers of their width (or complex numbers, of 16 bytes), which keep every bit and which
// LibTorch can copy for every dtype. The tensor must have neither conjugate nor negative bit.
at::Tensor AsBits(const at::Tensor& tensor);

// Copies the elements in order to `destination`, which may be written until the device's current stream has got there.
// They become elements of `type`: the tensor's own, or another floating-point type if it is one.
void EnqueueCopyToHost(const at::Tensor& tensor, at::ScalarType type, std::byte* destination);

// Writes the elements, tensor.nbytes() in order, into the tensor: enqueued on the current stream of its device, which
// may read `bytes` until it has got there; at once if there is none. kFailedPrecondition if the tensor is expanded and
// `bytes` are not the same along the expanded dimension; it is then unchanged, but others may have been written.
absl::Status WriteTensor(std::string_view name, const at::Tensor& tensor, std::span<const std::byte> bytes);

// Host memory that LibTorch has page-locked for its accelerator, aligned to 4096 bytes. Null where it has no
// accelerator, or that has no such memory to give.
std::shared_ptr<std::byte> AllocatePageLocked(uint64_t bytes);

// Copies from one device, on a stream of its own: always the same, since LibTorch's allocators keep the memory of each
// stream apart. Thread-compatible: Mark on one thread, then the rest on another.
class DeviceReader {
 public:
  // Throws if the device's backend has no guard implementation.
  explicit DeviceReader(c10::Device device);

  // Notes the point in the current stream of this thread after which the tensors may be copied.
  void Mark();

  // The stream of the copies, which waits for the mark.
  c10::Stream stream();

  // Enqueues one copy behind the mark, as EnqueueCopyToHost. The tensor must live, and the destination be left alone,
  // until Wait.
  void Enqueue(const at::Tensor& tensor, at::ScalarType type, std::byte* destination);

  // Returns when every copy has been done. More may be enqueued afterwards, behind the same mark or another.
  void Wait();

 private:
  const c10::Device device_;
  const c10::impl::VirtualGuardImpl backend_;
  c10::Event marked_;
  std::optional<c10::Stream> stream_;
  bool behind_mark_ = false;  // the stream waits for the last mark
  bool enqueued_ = false;     // since the last Wait
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_TORCH_TORCH_COPY_H_
