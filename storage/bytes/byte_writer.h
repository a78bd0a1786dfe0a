// Appends little-endian numbers to a string: the writing half of every record that Tidemark puts on disk.

#ifndef TIDEMARK_STORAGE_BYTES_BYTE_WRITER_H_
#define TIDEMARK_STORAGE_BYTES_BYTE_WRITER_H_

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace tidemark::storage {

static_assert(std::endian::native == std::endian::little, "numbers are copied to disk as they lie in memory");

// Thread-compatible. The type of the argument is the width that is written: say it (`Put<uint16_t>(n)`).
class ByteWriter {
 public:
  template <std::integral T>
  void Put(std::type_identity_t<T> value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    out_.append(bytes, sizeof(T));
  }
  void PutDouble(double value) { Put<uint64_t>(std::bit_cast<uint64_t>(value)); }
  // By a pointer to char: of other iterators std::string makes another string first.
  void PutBytes16(const std::array<uint8_t, 16>& bytes) {
    out_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  // The bytes alone, without a length.
  void PutText(std::string_view text) { out_.append(text); }
  // Precondition: `size` >= size().
  void PadTo(size_t size) { out_.resize(size, '\0'); }

  void Reserve(size_t bytes) { out_.reserve(bytes); }
  size_t size() const { return out_.size(); }
  std::string_view view() const { return out_; }
  std::string Take() && { return std::move(out_); }

 private:
  std::string out_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_BYTES_BYTE_WRITER_H_
