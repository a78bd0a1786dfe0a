// TorchDeviceImage: copies of tensors on the devices where they are, to be drained to the host later.
//
// The copies of one device lie in one allocation of LibTorch's own allocator. It is made on the copy stream of the
// device's DeviceReader, which is the same for every image, so that the allocator can give the memory of one image to
// the next; and drained on a stream of the image's own, so that the next image's copies do not wait for it.

#ifndef TIDEMARK_SNAPSHOT_TORCH_TORCH_DEVICE_IMAGE_H_
#define TIDEMARK_SNAPSHOT_TORCH_TORCH_DEVICE_IMAGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "c10/core/Device.h"
#include "c10/core/Event.h"
#include "c10/core/Stream.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "snapshot/torch/torch_copy.h"
#include "tidemark/state.h"

namespace tidemark {

// Thread-compatible; knows nothing of the State that made it.
class TorchDeviceImage final : public State::DeviceImage {
 public:
  struct Source {
    size_t entry;
    at::Tensor tensor;
    at::ScalarType type;   // of the copy: the tensor's own, or another floating-point type if it is one
    DeviceReader* reader;  // of the tensor's device, marked; null for a tensor in host memory
  };

  // Enqueues the copies, each behind its reader's mark, and makes the current stream of each device wait for them. They
  // lie in the order of `sources`. Null if they take more than `bytes_max` bytes (0: any number) or more than a device
  // has; nothing is kept then. Throws what LibTorch throws where a copy cannot be enqueued.
  static std::unique_ptr<TorchDeviceImage> Make(std::span<const Source> sources, uint64_t bytes_max);

  uint64_t bytes() const override;

  // The copies go to the host in the order of `requests`, neighbours in one; all have been done on return, also where
  // it fails. kInternal: a request for an entry that is not in the image, or a failure of the device.
  absl::Status CopyToHost(std::span<const State::CopyRequest> requests) override;

 private:
  // What is on one device.
  struct Part {
    explicit Part(c10::Device device) : device(device), backend(device.type()), copied(device.type()) {}

    const c10::Device device;
    const c10::impl::VirtualGuardImpl backend;
    DeviceReader* reader = nullptr;  // valid only in Make
    uint64_t bytes = 0;
    at::Tensor memory;
    c10::Event copied;
    std::optional<c10::Stream> drain;
  };
  struct Place {
    size_t part;
    uint64_t offset;
    uint64_t bytes;
  };
  // Neighbouring copies that go to neighbouring destinations.
  struct Run {
    Place place;
    std::byte* destination;
  };

  TorchDeviceImage() = default;
  Place PlaceFor(const Source& source);
  // False if a device has no room.
  bool Allocate();
  void CopyAll(std::span<const Source> sources, std::span<const Place> places);
  // Makes the current streams wait for the copies.
  void Join();
  std::vector<Run> Runs(std::span<const State::CopyRequest> requests) const;
  void Drain(const Run& run);

  std::vector<std::unique_ptr<Part>> parts_;
  absl::flat_hash_map<size_t, Place> places_;  // by entry
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_TORCH_TORCH_DEVICE_IMAGE_H_
