#include "snapshot/torch/torch_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "c10/core/InferenceMode.h"
#include "c10/core/StreamGuard.h"
#include "fmt/format.h"
#include "snapshot/torch/torch_dtypes.h"

namespace tidemark {
namespace {

constexpr uint64_t kPageBytes = 4096;

// Whether two indices may mean the same element, the repetitions of expanded dimensions aside. Says yes to a few exotic
// strides where none do.
bool ElementsMayOverlap(const at::Tensor& tensor) {
  std::vector<std::pair<int64_t, int64_t>> strides;  // {stride, size}
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.stride(d) != 0 && tensor.size(d) > 1) strides.emplace_back(tensor.stride(d), tensor.size(d));
  }
  std::sort(strides.begin(), strides.end());
  int64_t reach = 0;  // the largest offset that the dimensions so far get to
  for (const auto& [stride, size] : strides) {
    if (stride <= reach) return true;
    reach += stride * (size - 1);
  }
  return false;
}

at::Tensor HostTensor(const void* data, at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::from_blob(const_cast<void*>(data), sizes, at::TensorOptions().dtype(dtype).device(at::kCPU));
}

// Whether `bytes`, an array of this tensor's shape, repeats itself along `dimension`.
bool RepeatsAlong(const at::Tensor& tensor, int64_t dimension, std::span<const std::byte> bytes) {
  size_t inner = tensor.element_size();
  for (int64_t d = dimension + 1; d < tensor.dim(); ++d) inner *= static_cast<size_t>(tensor.size(d));
  const size_t block = inner * static_cast<size_t>(tensor.size(dimension));
  for (size_t begin = 0; begin + block <= bytes.size(); begin += block) {
    for (size_t at = begin + inner; at < begin + block; at += inner) {
      if (std::memcmp(&bytes[begin], &bytes[at], inner) != 0) return false;
    }
  }
  return true;
}

}  // namespace

absl::Status CheckStorable(const at::Tensor& tensor) {
  if (!tensor.defined()) return absl::InvalidArgumentError("the tensor is undefined");
  const auto refuse = [](std::string_view sort) {
    return absl::UnimplementedError(fmt::format("{} tensors cannot be stored", sort));
  };
  if (tensor.is_nested()) return refuse("nested");
  if (tensor.is_mkldnn()) return refuse("MKL-DNN");
  if (tensor.layout() != at::kStrided) return refuse("sparse");
  if (tensor.is_quantized()) return refuse("quantised");
  if (tensor.is_meta()) return refuse("meta");
  if (!tensor.has_storage() || tensor._is_zerotensor()) return refuse("storageless");
  if (!ToDtype(tensor.scalar_type())) return refuse(c10::toString(tensor.scalar_type()));
  if (!tensor.is_contiguous() && ElementsMayOverlap(tensor)) return refuse("self-overlapping");
  return absl::OkStatus();
}

at::Tensor AsBits(const at::Tensor& tensor) {
  switch (tensor.element_size()) {
    case 1:
      return tensor.view(at::kByte);
    case 2:
      return tensor.view(at::kShort);
    case 4:
      return tensor.view(at::kInt);
    case 8:
      return tensor.view(at::kLong);
    default:
      return tensor.view(at::kComplexDouble);
  }
}

std::byte* HostBytes(const at::Tensor& tensor) {
  if (!tensor.is_cpu() || !tensor.is_contiguous() || tensor.is_conj() || tensor.is_neg()) return nullptr;
  return static_cast<std::byte*>(tensor.data_ptr());
}

void EnqueueCopyToHost(const at::Tensor& tensor, at::ScalarType type, std::byte* destination) {
  if (tensor.numel() == 0) return;
  const c10::InferenceMode no_autograd;
  if (type != tensor.scalar_type()) {
    // A device converts in its own memory. That is released on the stream that reads it, behind the copy.
    const at::Tensor converted = tensor.is_cpu() ? tensor : tensor.to(type);
    HostTensor(destination, tensor.sizes(), type).copy_(converted, /*non_blocking=*/true);
    return;
  }
  const at::Tensor bits = AsBits(tensor.resolve_conj().resolve_neg());
  HostTensor(destination, bits.sizes(), bits.scalar_type()).copy_(bits, /*non_blocking=*/true);
}

absl::Status WriteTensor(std::string_view name, const at::Tensor& tensor, std::span<const std::byte> bytes) {
  if (bytes.size() != tensor.nbytes()) {
    return absl::InternalError(
        fmt::format("entry '{}': {} bytes arrived for a tensor of {}", name, bytes.size(), tensor.nbytes()));
  }
  if (bytes.empty()) return absl::OkStatus();
  // Inference mode takes writes to leaves that require a gradient and to inference tensors.
  const c10::InferenceMode no_autograd;
  at::Tensor target = tensor;
  at::Tensor source = HostTensor(bytes.data(), tensor.sizes(), tensor.scalar_type());
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.stride(d) != 0 || tensor.size(d) < 2) continue;
    if (!RepeatsAlong(tensor, d, bytes)) {
      return absl::FailedPreconditionError(fmt::format(
          "entry '{}': the tensor is expanded along dimension {}, and the checkpoint's differs along it", name, d));
    }
    target = target.narrow(d, 0, 1);
    source = source.narrow(d, 0, 1);
  }
  if (tensor.is_conj() || tensor.is_neg()) {
    target.copy_(source, /*non_blocking=*/true);
  } else {
    AsBits(target).copy_(AsBits(source), /*non_blocking=*/true);
  }
  return absl::OkStatus();
}

std::shared_ptr<std::byte> AllocatePageLocked(uint64_t bytes) {
  // More than asked for only where it turns out to lie badly: the allocators of page-locked memory round up to powers
  // of two, which whatever is added could double.
  for (const uint64_t room : {bytes, bytes + kPageBytes}) {
    at::Tensor memory;
    try {
      memory = at::empty({static_cast<int64_t>(room)}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
    } catch (const std::exception&) {
      return nullptr;
    }
    void* begin = memory.data_ptr();
    size_t left = room;
    if (std::align(kPageBytes, bytes, begin, left) == nullptr) continue;
    auto owner = std::make_shared<at::Tensor>(std::move(memory));
    return {std::move(owner), static_cast<std::byte*>(begin)};
  }
  return nullptr;
}

DeviceReader::DeviceReader(c10::Device device) : device_(device), backend_(device.type()), marked_(device.type()) {}

void DeviceReader::Mark() {
  marked_.record(backend_.getStream(device_));
  behind_mark_ = false;
}

c10::Stream DeviceReader::stream() {
  if (!stream_) stream_ = backend_.getStreamFromGlobalPool(device_);
  if (!behind_mark_) marked_.block(*stream_);
  behind_mark_ = true;
  return *stream_;
}

void DeviceReader::Enqueue(const at::Tensor& tensor, at::ScalarType type, std::byte* destination) {
  const c10::StreamGuard on_stream(stream());
  enqueued_ = true;
  EnqueueCopyToHost(tensor, type, destination);
}

void DeviceReader::Wait() {
  if (std::exchange(enqueued_, false)) backend_.synchronizeStream(*stream_);
}

}  // namespace tidemark
