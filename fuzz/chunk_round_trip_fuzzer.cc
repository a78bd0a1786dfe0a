// Every chunk comes back as it was, with any back end of the codec, and no back end stores other bytes than another.
// The input is a width of numbers, how often what follows is repeated, and with what change, and the bytes.

#include <string>
#include <vector>

#include "fuzz/allocation_count.h"
#include "fuzz/fuzzing.h"
#include "storage/shard/format/chunk_codec.h"

namespace tidemark::fuzz {
namespace {

constexpr uint8_t kWidths[] = {0, 2, 4, 8};
// Enough for the byte planes, which begin at 4096 bytes, and for several blocks of a zstd frame.
constexpr size_t kRawBytesMax = 150'000;

// Repeats with a change, so that an input of a few bytes is a chunk of many that does not compress to nothing.
std::string Grow(std::string_view seed, uint16_t times, uint8_t change) {
  std::string raw;
  for (uint32_t i = 0; i <= times && raw.size() < kRawBytesMax; ++i) {
    for (const char c : seed) raw.push_back(static_cast<char>(c + static_cast<char>(i * change)));
  }
  return raw.substr(0, kRawBytesMax);
}

void TryBackend(const storage::CodecBackend& backend, std::string_view raw, uint8_t width, bool compress,
                storage::ChunkRecord* record, std::string* stored) {
  record->digest = storage::DigestOf(AsBytes(raw));
  std::vector<std::byte> buffer;
  storage::ChunkEncoder encoder(backend);
  const std::span<const std::byte> bytes = encoder.Encode(AsBytes(raw), width, compress, &buffer, record);
  stored->assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  Require(bytes.size() <= raw.size(), "a chunk is stored as more bytes than it has");
  // Of just that size, so that a byte too many is seen by AddressSanitizer.
  std::vector<std::byte> out(raw.size());
  const absl::Status decoded = storage::ChunkDecoder(backend).Verify(*record, bytes, out);
  Require(decoded.ok() && std::memcmp(out.data(), raw.data(), raw.size()) == 0, "a chunk does not come back");
}

}  // namespace
}  // namespace tidemark::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tidemark;
  const tidemark::fuzz::AllocationBudget budget(size);
  fuzz::FuzzInput in(data, size);
  const auto flags = in.Take<uint8_t>();
  const auto times = in.Take<uint16_t>();
  const auto change = in.Take<uint8_t>();
  const std::string raw = fuzz::Grow(in.TakeRest(), times, change);
  if (raw.empty()) return 0;
  const uint8_t width = fuzz::kWidths[flags % 4];
  const bool compress = (flags & 4) == 0;
  storage::ChunkRecord first;
  std::string stored;
  for (const storage::CodecBackend* backend : storage::RunnableCodecBackends()) {
    storage::ChunkRecord record;
    std::string bytes;
    fuzz::TryBackend(*backend, raw, width, compress, &record, &bytes);
    if (stored.empty()) {
      first = record;
      stored = bytes;
    }
    fuzz::Require(record == first && bytes == stored, "two back ends store a chunk in two ways");
  }
  return 0;
}
