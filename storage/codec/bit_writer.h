// Writes the bitstreams of zstd's entropy coders, which are read from their end (RFC 8878, 4.1 and 4.2.2).

#ifndef TIDEMARK_STORAGE_CODEC_BIT_WRITER_H_
#define TIDEMARK_STORAGE_CODEC_BIT_WRITER_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "storage/codec/huffman_code.h"

namespace tidemark::storage {

// The first bits that are added are the lowest of the first byte. Thread-compatible.
class BitWriter {
 public:
  static constexpr uint64_t kPendingBitsMax = 63;

  // Up to 8 bytes behind the end are written over.
  explicit BitWriter(std::byte* out) : out_(out) {}

  // The lower `count` bits of `bits`; the others are zero. Flush leaves up to 7 bits pending, and they and what is
  // added after it must not be more than kPendingBitsMax.
  void Add(uint64_t bits, uint64_t count) {
    pending_ |= bits << count_;
    count_ += count;
  }

  void Flush() {
    static_assert(std::endian::native == std::endian::little);
    std::memcpy(out_, &pending_, sizeof(pending_));
    out_ += count_ >> 3;
    pending_ >>= count_ & 56;
    count_ &= 7;
  }

  // Adds the bit that marks the end of a stream, flushes all, and returns the end.
  std::byte* Finish() {
    Add(1, 1);
    return FinishUnmarked();
  }
  std::byte* FinishUnmarked() {
    Flush();
    return out_ + (count_ > 0);
  }

 private:
  std::byte* out_;
  uint64_t pending_ = 0;
  uint64_t count_ = 0;
};

inline void AddSymbol(std::byte symbol, const HuffmanCode& code, BitWriter* writer) {
  const uint16_t entry = code.entries[static_cast<uint8_t>(symbol)];
  writer->Add(entry >> 4, entry & 15);
}

// CodecBackend::encode_stream, four symbols at a time. Inlined, so that it is compiled for the CPU of who calls it.
[[gnu::always_inline]] inline std::byte* WriteSymbols(std::span<const std::byte> symbols, const HuffmanCode& code,
                                                      std::byte* out) {
  BitWriter writer(out);
  size_t i = symbols.size();
  for (; i % 4 != 0; writer.Flush()) AddSymbol(symbols[--i], code, &writer);
  const auto entry = [&](size_t at) -> uint64_t { return code.entries[static_cast<uint8_t>(symbols[at])]; };
  for (; i > 0; i -= 4) {
    // Put together two by two, so that only every fourth symbol waits for those before it. 44 bits at most.
    const uint64_t a = entry(i - 4);
    const uint64_t b = entry(i - 3);
    const uint64_t c = entry(i - 2);
    const uint64_t d = entry(i - 1);
    const uint64_t early = (a >> 4) << (b & 15) | b >> 4;
    const uint64_t late = (c >> 4) << (d & 15) | d >> 4;
    const uint64_t late_bits = (c & 15) + (d & 15);
    writer.Add(early << late_bits | late, (a & 15) + (b & 15) + late_bits);
    writer.Flush();
  }
  return writer.Finish();
}

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_CODEC_BIT_WRITER_H_
