#include "storage/bytes/byte_reader.h"

#include "fmt/format.h"

namespace tidemark::storage {

bool ByteReader::Require(uint64_t size, std::string_view field) {
  if (!ok()) return false;
  if (size <= remaining()) return true;
  return FailAt(offset_, field, fmt::format("{} bytes", size), fmt::format("{} bytes left", remaining()));
}

std::array<uint8_t, 16> ByteReader::GetBytes16(std::string_view field) {
  std::array<uint8_t, 16> value{};
  if (Require(value.size(), field)) {
    std::memcpy(value.data(), bytes_.data() + offset_, value.size());
    offset_ += value.size();
  }
  return value;
}

std::string_view ByteReader::GetText(uint64_t size, std::string_view field) {
  if (!Require(size, field)) return {};
  const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + offset_, size);
  offset_ += size;
  return text;
}

void ByteReader::SkipZeros(uint64_t size, std::string_view field) {
  if (!Require(size, field)) return;
  const size_t position = FindNonZero(bytes_.subspan(offset_, size));
  if (position < size) {
    FailAt(offset_ + position, field, "zero",
           fmt::format("0x{:02x}", static_cast<uint8_t>(bytes_[offset_ + position])));
    return;
  }
  offset_ += size;
}

bool ByteReader::CheckCount(uint64_t count, size_t item_bytes, std::string_view field) {
  if (!ok()) return false;
  if (count <= remaining() / item_bytes) return true;
  return FailAt(offset_, field,
                fmt::format("at most {} of {} bytes or more in the {} bytes left", remaining() / item_bytes, item_bytes,
                            remaining()),
                fmt::format("{}", count));
}

void ByteReader::ExpectEnd() {
  if (ok() && remaining() > 0) FailAt(offset_, "end", "no more bytes", fmt::format("{} bytes more", remaining()));
}

bool ByteReader::Fail(std::string_view field, size_t field_bytes, std::string_view expected, std::string_view found) {
  return FailAt(offset_ - field_bytes, field, expected, found);
}

bool ByteReader::FailAt(size_t offset, std::string_view field, std::string_view expected, std::string_view found) {
  if (ok()) {
    status_ = absl::DataLossError(
        fmt::format("{}: {} at byte {}: expected {}, found {}", what_, field, offset, expected, found));
  }
  return false;
}

size_t FindNonZero(std::span<const std::byte> bytes) {
  size_t i = 0;
  for (; i + sizeof(uint64_t) <= bytes.size(); i += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, sizeof(word));
    if (word != 0) break;
  }
  while (i < bytes.size() && bytes[i] == std::byte{0}) ++i;
  return i;
}

}  // namespace tidemark::storage
