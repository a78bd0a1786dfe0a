#include "snapshot/torch/torch_device_image.h"

#include <algorithm>
#include <utility>

#include "ATen/ATen.h"
#include "c10/core/InferenceMode.h"
#include "c10/core/StreamGuard.h"
#include "c10/util/Exception.h"
#include "c10/util/strides.h"
#include "fmt/format.h"
#include "snapshot/torch/torch_errors.h"

namespace tidemark {
namespace {

// As small entries lie in a snapshot, so that neighbours in one are neighbours in the other. A multiple of every
// element's size.
constexpr uint64_t kAlignment = 64;

}  // namespace

std::unique_ptr<TorchDeviceImage> TorchDeviceImage::Make(std::span<const Source> sources, uint64_t bytes_max) {
  std::unique_ptr<TorchDeviceImage> image(new TorchDeviceImage());
  std::vector<Place> places;
  places.reserve(sources.size());
  for (const Source& source : sources) places.push_back(image->PlaceFor(source));
  if (bytes_max > 0 && image->bytes() > bytes_max) return nullptr;
  // Nothing is copied before there is room for all.
  if (!image->Allocate()) return nullptr;
  for (size_t i = 0; i < sources.size(); ++i) image->places_.emplace(sources[i].entry, places[i]);
  try {
    image->CopyAll(sources, places);
  } catch (const c10::OutOfMemoryError&) {
    return nullptr;  // putting a tensor in order takes memory, too
  }
  image->Join();
  return image;
}

uint64_t TorchDeviceImage::bytes() const {
  uint64_t bytes = 0;
  for (const auto& part : parts_) bytes += part->bytes;
  return bytes;
}

TorchDeviceImage::Place TorchDeviceImage::PlaceFor(const Source& source) {
  const c10::Device device = source.tensor.device();
  auto found = std::find_if(parts_.begin(), parts_.end(), [&](const auto& part) { return part->device == device; });
  if (found == parts_.end()) {
    found = parts_.insert(parts_.end(), std::make_unique<Part>(device));
    (*found)->reader = source.reader;
  }
  Part& part = **found;
  const Place place{static_cast<size_t>(found - parts_.begin()), part.bytes,
                    static_cast<uint64_t>(source.tensor.numel()) * c10::elementSize(source.type)};
  part.bytes += (place.bytes + kAlignment - 1) / kAlignment * kAlignment;
  return place;
}

bool TorchDeviceImage::Allocate() {
  const c10::InferenceMode no_autograd;
  for (const auto& part : parts_) {
    c10::OptionalStreamGuard on_stream;
    try {
      if (part->reader != nullptr) on_stream.reset_stream(part->reader->stream());
      part->memory =
          at::empty({static_cast<int64_t>(part->bytes)}, at::TensorOptions().dtype(at::kByte).device(part->device));
    } catch (const c10::Error&) {
      return false;
    }
  }
  return true;
}

void TorchDeviceImage::CopyAll(std::span<const Source> sources, std::span<const Place> places) {
  const c10::InferenceMode no_autograd;
  c10::OptionalStreamGuard on_stream;
  const Part* current = nullptr;
  for (size_t i = 0; i < sources.size(); ++i) {
    const Part& part = *parts_[places[i].part];
    if (&part != current && part.reader != nullptr) on_stream.reset_stream(part.reader->stream());
    current = &part;
    if (places[i].bytes == 0) continue;
    const at::Tensor& tensor = sources[i].tensor;
    // Numbers of another dtype are converted as they are copied.
    const at::Tensor bits =
        sources[i].type == tensor.scalar_type() ? AsBits(tensor.resolve_conj().resolve_neg()) : tensor;
    const at::ScalarType type = sources[i].type == tensor.scalar_type() ? bits.scalar_type() : sources[i].type;
    const auto offset = static_cast<int64_t>(places[i].offset / c10::elementSize(type));
    part.memory.view(type)
        .as_strided(bits.sizes(), c10::contiguous_strides(bits.sizes()), offset)
        .copy_(bits, /*non_blocking=*/true);
    if (part.reader == nullptr) continue;
    // The trainer may give the tensor up at once; its memory must not go to another tensor before it has been read.
    part.backend.recordDataPtrOnStream(tensor.storage().data_ptr(), part.reader->stream());
  }
}

void TorchDeviceImage::Join() {
  for (const auto& part : parts_) {
    if (part->reader == nullptr) continue;
    part->copied.record(part->reader->stream());
    part->copied.block(part->backend.getStream(part->device));
    part->reader = nullptr;
  }
}

std::vector<TorchDeviceImage::Run> TorchDeviceImage::Runs(std::span<const State::CopyRequest> requests) const {
  std::vector<Run> runs;
  for (const State::CopyRequest& request : requests) {
    const Place& place = places_.at(request.entry);
    if (!runs.empty()) {
      Run& last = runs.back();
      if (last.place.part == place.part && last.place.offset + last.place.bytes == place.offset &&
          last.destination + last.place.bytes == request.destination) {
        last.place.bytes += place.bytes;
        continue;
      }
    }
    runs.push_back({place, request.destination});
  }
  return runs;
}

void TorchDeviceImage::Drain(const Run& run) {
  Part& part = *parts_[run.place.part];
  const c10::InferenceMode no_autograd;
  c10::OptionalStreamGuard on_stream;
  if (!part.device.is_cpu()) {
    if (!part.drain) {
      const c10::Stream stream = part.backend.getStreamFromGlobalPool(part.device);
      part.copied.block(stream);
      part.backend.recordDataPtrOnStream(part.memory.storage().data_ptr(), stream);
      part.drain = stream;
    }
    on_stream.reset_stream(*part.drain);
  }
  const at::Tensor bytes =
      part.memory.narrow(0, static_cast<int64_t>(run.place.offset), static_cast<int64_t>(run.place.bytes));
  EnqueueCopyToHost(bytes, bytes.scalar_type(), run.destination);
}

absl::Status TorchDeviceImage::CopyToHost(std::span<const State::CopyRequest> requests) {
  for (const State::CopyRequest& request : requests) {
    if (!places_.contains(request.entry)) {
      return absl::InternalError(fmt::format("entry {} is not in the copies on the device", request.entry));
    }
  }
  absl::Status status = CatchTorch("draining the copies on the device", [&] {
    for (const Run& run : Runs(requests)) Drain(run);
    return absl::OkStatus();
  });
  // Also after a failure: the destinations belong to the caller.
  for (const auto& part : parts_) {
    if (!part->drain) continue;
    status.Update(CatchTorch(fmt::format("draining the copies on {}", part->device.str()), [&] {
      part->backend.synchronizeStream(*part->drain);
      return absl::OkStatus();
    }));
  }
  return status;
}

}  // namespace tidemark
