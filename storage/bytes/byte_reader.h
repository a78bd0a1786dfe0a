// Takes little-endian numbers off a span of bytes that nobody vouches for: the reading half of byte_writer.h.
//
// The first thing that is wrong is kept and everything after it reads as zero, so that a decoder is a plain list of
// fields with a look at ok() before each loop and at the end. A message says where, at what offset, which field, what
// was expected and what was found.

#ifndef TIDEMARK_STORAGE_BYTES_BYTE_READER_H_
#define TIDEMARK_STORAGE_BYTES_BYTE_READER_H_

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace tidemark::storage {

static_assert(std::endian::native == std::endian::little, "numbers are copied from disk as they lie in memory");

// Thread-compatible. Neither `bytes` nor `what` is owned.
class ByteReader {
 public:
  // `what` names the record in messages: "shard index".
  ByteReader(std::span<const std::byte> bytes, std::string_view what) : bytes_(bytes), what_(what) {}

  template <std::integral T>
  T Get(std::string_view field) {
    T value = 0;
    if (Require(sizeof(T), field)) {
      std::memcpy(&value, bytes_.data() + offset_, sizeof(T));
      offset_ += sizeof(T);
    }
    return value;
  }
  double GetDouble(std::string_view field) { return std::bit_cast<double>(Get<uint64_t>(field)); }
  std::array<uint8_t, 16> GetBytes16(std::string_view field);
  // Empty after a failure. Points into the bytes.
  std::string_view GetText(uint64_t size, std::string_view field);
  // `size` bytes that must be zero.
  void SkipZeros(uint64_t size, std::string_view field);

  // To be asked of every count before anything is allocated for it: false, and a failure, if `count` items of at least
  // `item_bytes` each cannot be in what is left.
  bool CheckCount(uint64_t count, size_t item_bytes, std::string_view field);
  // Fails if bytes are left.
  void ExpectEnd();

  // Records a failure of the field that was just read, of `field_bytes`; later ones are ignored. Returns false.
  bool Fail(std::string_view field, size_t field_bytes, std::string_view expected, std::string_view found);
  // The same at an offset.
  bool FailAt(size_t offset, std::string_view field, std::string_view expected, std::string_view found);

  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }  // kDataLoss, or ok
  size_t offset() const { return offset_; }
  size_t remaining() const { return bytes_.size() - offset_; }

 private:
  bool Require(uint64_t size, std::string_view field);

  const std::span<const std::byte> bytes_;
  const std::string_view what_;
  size_t offset_ = 0;  // <= bytes_.size()
  absl::Status status_;
};

// The offset of the first byte that is not zero, or bytes.size().
size_t FindNonZero(std::span<const std::byte> bytes);

inline std::span<const std::byte> AsBytes(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_BYTES_BYTE_READER_H_
