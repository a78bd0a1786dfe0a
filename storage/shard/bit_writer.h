// Writes the bitstreams of zstd's entropy coders, which are read from their end (RFC 8878, 4.1 and 4.2.2).

#ifndef TIDEMARK_STORAGE_SHARD_BIT_WRITER_H_
#define TIDEMARK_STORAGE_SHARD_BIT_WRITER_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "storage/shard/huffman_code.h"

namespace tidemark::storage {

// The first bits that are added are the lowest of the first byte. Thread-compatible.
class BitWriter {
 public:
  static constexpr int kPendingBitsMax = 63;

  // Up to 8 bytes behind the end are written over.
  explicit BitWriter(std::byte* out) : out_(out) {}

  // The lower `count` bits of `bits`; the others are zero. Flush leaves up to 7 bits pending, and they and what is
  // added after it must not be more than kPendingBitsMax.
  void Add(uint64_t bits, int count) {
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
  int count_ = 0;
};

inline void AddSymbol(std::byte symbol, const HuffmanCode& code, BitWriter* writer) {
  const uint16_t entry = code.entries[static_cast<uint8_t>(symbol)];
  writer->Add(entry >> 4, entry & 15);
}

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_BIT_WRITER_H_
