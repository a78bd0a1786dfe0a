#include "storage/index/log_blocks.h"

#include <array>
#include <bit>
#include <cstdint>

#include "fmt/format.h"

namespace tidemark::storage {
namespace {

// The checksum in four bytes, the length in two, the type in one.
constexpr size_t kHeaderBytes = 7;

constexpr std::array<uint32_t, 256> MakeCrc32cTable() {
  constexpr uint32_t kPolynomial = 0x82f63b78;  // Castagnoli's, its bits reversed
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) remainder = remainder >> 1 ^ (remainder % 2 == 0 ? 0 : kPolynomial);
    table[byte] = remainder;
  }
  return table;
}

// As RocksDB stores it: a checksum of bytes that contain checksums would be weak, so it is turned and shifted.
uint32_t MaskedCrc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = MakeCrc32cTable();
  uint32_t crc = ~uint32_t{0};
  for (const char byte : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  return std::rotr(~crc, 15) + 0xa282ead8;
}

uint32_t LittleEndian(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) value |= uint32_t{static_cast<unsigned char>(bytes[i])} << 8 * i;
  return value;
}

// Recycled logs have the types 5 to 8; this library's are never recycled. Types from 9 on are left to RocksDB.
bool IsWritten(uint32_t type) { return type != 0 && (type < 5 || type > 8); }

}  // namespace

SoundRecords FindSoundRecords(std::string_view bytes, size_t block_left) {
  SoundRecords sound;
  while (block_left - sound.bytes >= kHeaderBytes) {
    const std::string_view rest = bytes.substr(sound.bytes);
    if (rest.size() < kHeaderBytes) return sound;
    const uint32_t length = LittleEndian(rest.substr(4, 2));
    const uint32_t type = LittleEndian(rest.substr(6, 1));
    const uint32_t crc = LittleEndian(rest.substr(0, 4));
    if (crc == 0 && length == 0 && type == 0) return sound;
    const size_t record_bytes = kHeaderBytes + length;
    if (!IsWritten(type)) {
      sound.damage = fmt::format("a record's type is {}", type);
    } else if (record_bytes > block_left - sound.bytes) {
      sound.damage = fmt::format("a record of {} bytes does not fit into its block", record_bytes);
    } else if (record_bytes > rest.size()) {
      return sound;
    } else if (crc != MaskedCrc32c(rest.substr(6, 1 + length))) {
      sound.damage = fmt::format("the checksum of a record of {} bytes is wrong", record_bytes);
    }
    if (!sound.damage.empty()) return sound;
    sound.bytes += record_bytes;
  }
  // The writer fills up a rest that is too short for a header; its bytes do not matter.
  if (bytes.size() >= block_left) sound.bytes = block_left;
  return sound;
}

}  // namespace tidemark::storage
