#include "storage/codec/byte_planes.h"

#include <cstdlib>

namespace tidemark::storage {

void SplitPlanes(std::span<const std::byte> raw, uint8_t float_bytes, std::span<std::byte> planes,
                 const CodecBackend& backend) {
  if (!CanSplitPlanes(raw.size(), float_bytes) || planes.size() != raw.size()) std::abort();
  const size_t count = raw.size() / float_bytes;
  std::byte* starts[8];
  for (size_t k = 0; k < float_bytes; ++k) starts[k] = planes.data() + k * count;
  backend.split[WidthIndex(float_bytes)](raw.data(), count, starts);
}

void JoinPlanes(std::span<const std::byte> planes, uint8_t float_bytes, std::span<std::byte> raw,
                const CodecBackend& backend) {
  if (!CanSplitPlanes(planes.size(), float_bytes) || raw.size() != planes.size()) std::abort();
  const size_t count = raw.size() / float_bytes;
  const std::byte* starts[8];
  for (size_t k = 0; k < float_bytes; ++k) starts[k] = planes.data() + k * count;
  backend.join[WidthIndex(float_bytes)](starts, count, raw.data());
}

std::string_view BytePlanesBackend() { return BestCodecBackend().name; }

}  // namespace tidemark::storage
