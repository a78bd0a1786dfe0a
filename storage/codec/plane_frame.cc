#include "storage/codec/plane_frame.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "storage/codec/byte_planes.h"
#include "storage/codec/literals_block.h"

namespace tidemark::storage {
namespace {

constexpr size_t kBlock = kZstdBlockBytesMax;
constexpr size_t kBlockHeaderBytes = 3;
constexpr size_t kFrameHeaderBytes = 9;
enum class BlockType : uint32_t { kRaw = 0, kRle = 1, kCompressed = 2 };

// Runs at the same distance from each other, from the front of the chunk to its back.
constexpr size_t kSampleRuns = 32;
constexpr size_t kSampleRunNumbers = 128;

// A plane is coded if its sample has less entropy than this: a code saves 1/32 at least.
constexpr double kCodedBitsMax = 7.75;

// Near enough, and the same on every machine.
double Log2(uint32_t number) {
  const int whole = std::bit_width(number) - 1;
  const double rest = static_cast<double>(number) / static_cast<double>(uint32_t{1} << whole) - 1;
  return whole + rest + 0.344 * rest * (1 - rest);
}

size_t BlocksOf(size_t plane_bytes) { return (plane_bytes + kBlock - 1) / kBlock; }

void PutBlockHeader(BlockType type, size_t size, std::byte* out) {
  const uint32_t header = static_cast<uint32_t>(type) << 1 | static_cast<uint32_t>(size) << 3;
  for (size_t i = 0; i < kBlockHeaderBytes; ++i) out[i] = static_cast<std::byte>(header >> (8 * i));
}

// One segment, four bytes of content size, neither checksum nor dictionary.
void PutFrameHeader(size_t content_bytes, std::byte* out) {
  constexpr uint32_t kMagic = 0xfd2fb528;
  const auto size = static_cast<uint32_t>(content_bytes);
  std::memcpy(out, &kMagic, sizeof(kMagic));
  out[4] = std::byte{0xa0};
  std::memcpy(out + 5, &size, sizeof(size));
}

// Writes a block of a plane, behind its header, the shortest way. Returns its end.
std::byte* PutBlock(std::span<const std::byte> bytes, bool coded, const CodecBackend& backend, std::byte* out) {
  std::byte* const content = out + kBlockHeaderBytes;
  if (coded) {
    const ByteCounts counts = SampleCounts(bytes, backend);
    if (std::count(counts.begin(), counts.end(), 0u) == static_cast<ptrdiff_t>(counts.size()) - 1) {
      PutBlockHeader(BlockType::kRle, bytes.size(), out);
      *content = bytes.front();
      return content + 1;
    }
    const size_t size = WriteLiteralsBlock(bytes, counts, backend, {content, LiteralsBlockBytesMax(bytes.size())});
    if (size > 0) {
      PutBlockHeader(BlockType::kCompressed, size, out);
      return content + size;
    }
  }
  PutBlockHeader(BlockType::kRaw, bytes.size(), out);
  std::memcpy(content, bytes.data(), bytes.size());
  return content + bytes.size();
}

}  // namespace

PlaneOutlook SamplePlanes(std::span<const std::byte> raw, uint8_t float_bytes, const CodecBackend& backend) {
  const size_t count = raw.size() / float_bytes;
  std::array<std::byte, kSampleRuns * kSampleRunNumbers * 8> planes;
  std::byte* starts[8];
  for (size_t k = 0; k < float_bytes; ++k) starts[k] = planes.data() + k * kSampleRuns * kSampleRunNumbers;
  const size_t run = std::min(kSampleRunNumbers, count);
  for (size_t i = 0; i < kSampleRuns; ++i) {
    const size_t first = (count - run) * i / (kSampleRuns - 1);
    backend.split[WidthIndex(float_bytes)](raw.data() + first * float_bytes, run, starts);
    for (size_t k = 0; k < float_bytes; ++k) starts[k] += run;
  }
  const auto sampled = static_cast<uint32_t>(run * kSampleRuns);
  PlaneOutlook outlook;
  bool constant = true;
  outlook.mostly_repeats = true;
  for (size_t k = 0; k < float_bytes; ++k) {
    std::array<ByteCounts, 2> counts{};
    for (const std::byte* byte = starts[k] - run * kSampleRuns; byte < starts[k]; byte += 2) {
      ++counts[0][static_cast<uint8_t>(byte[0])];
      ++counts[1][static_cast<uint8_t>(byte[1])];
    }
    double weighted = 0;
    uint32_t most = 0;
    for (size_t value = 0; value < 256; ++value) {
      const uint32_t occurs = counts[0][value] + counts[1][value];
      most = std::max(most, occurs);
      if (occurs > 0) weighted += occurs * Log2(occurs);
    }
    if (Log2(sampled) - weighted / sampled < kCodedBitsMax) outlook.coded |= 1 << k;
    outlook.mostly_repeats &= most >= 0.875 * sampled;
    constant &= most == sampled;
  }
  outlook.mostly_repeats &= !constant;
  return outlook;
}

size_t PlaneFrameBytesMax(size_t raw_bytes, uint8_t float_bytes) {
  // A block may grow before it is found not to shrink and stored raw over what it grew to.
  const size_t plane_bytes = raw_bytes / float_bytes;
  const size_t block_bytes = std::min(plane_bytes, kBlock);
  return kFrameHeaderBytes + raw_bytes + float_bytes * BlocksOf(plane_bytes) * kBlockHeaderBytes +
         LiteralsBlockBytesMax(block_bytes) - block_bytes;
}

size_t WritePlaneFrame(std::span<const std::byte> raw, uint8_t float_bytes, uint8_t coded, const CodecBackend& backend,
                       std::vector<std::byte>* scratch, std::span<std::byte> out) {
  if (out.size() < PlaneFrameBytesMax(raw.size(), float_bytes)) std::abort();
  const size_t plane_bytes = raw.size() / float_bytes;
  const size_t blocks = BlocksOf(plane_bytes);
  // The planes before the first coded one have their place whatever the others come to.
  const size_t placed = std::min<size_t>(std::countr_zero(coded), float_bytes);
  const size_t placed_bytes = plane_bytes + blocks * kBlockHeaderBytes;
  if (scratch->size() < (float_bytes - placed) * plane_bytes) scratch->resize((float_bytes - placed) * plane_bytes);

  PutFrameHeader(raw.size(), out.data());
  std::byte* last_header = nullptr;
  for (size_t first = 0; first < plane_bytes; first += kBlock) {
    const size_t count = std::min(kBlock, plane_bytes - first);
    std::byte* planes[8];
    for (size_t k = 0; k < float_bytes; ++k) {
      if (k < placed) {
        last_header = out.data() + kFrameHeaderBytes + k * placed_bytes + first + first / kBlock * kBlockHeaderBytes;
        PutBlockHeader(BlockType::kRaw, count, last_header);
        planes[k] = last_header + kBlockHeaderBytes;
      } else {
        planes[k] = scratch->data() + (k - placed) * plane_bytes + first;
      }
    }
    backend.split[WidthIndex(float_bytes)](raw.data() + first * float_bytes, count, planes);
  }
  std::byte* end = out.data() + kFrameHeaderBytes + placed * placed_bytes;
  for (size_t k = placed; k < float_bytes; ++k) {
    const auto plane = std::span(*scratch).subspan((k - placed) * plane_bytes, plane_bytes);
    for (size_t first = 0; first < plane_bytes; first += kBlock) {
      last_header = end;
      end = PutBlock(plane.subspan(first, std::min(kBlock, plane_bytes - first)), (coded >> k & 1) != 0, backend, end);
    }
  }
  *last_header |= std::byte{1};  // the last block
  return end - out.data();
}

}  // namespace tidemark::storage
