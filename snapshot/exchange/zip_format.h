// Zip archives whose members are stored as they are, with the 64-bit fields where 32 bits do not do. Pure functions.
//
// libzip is not used: it asks for the members' bytes when the archive is closed and writes to a name or a seekable
// source of its own, while here they come as they are read from the store, and go into a file that has no name yet.

#ifndef TIDEMARK_SNAPSHOT_EXCHANGE_ZIP_FORMAT_H_
#define TIDEMARK_SNAPSHOT_EXCHANGE_ZIP_FORMAT_H_

#include <cstdint>
#include <span>
#include <string>

namespace tidemark {

inline constexpr size_t kZipNameBytesMax = 65535;

struct ZipMember {
  std::string name;     // UTF-8, at most kZipNameBytesMax bytes
  uint64_t bytes = 0;   // known before the first of them is written
  uint64_t offset = 0;  // of its header in the archive
  uint32_t crc = 0;     // CRC-32 of the bytes, as zlib has it
};

// What comes before the member's bytes. Its length does not depend on `crc`, so it can be written again with the right
// one.
std::string EncodeZipMemberHeader(const ZipMember& member);

// What comes behind the last member. `offset`: where that is.
std::string EncodeZipDirectory(std::span<const ZipMember> members, uint64_t offset);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_EXCHANGE_ZIP_FORMAT_H_
