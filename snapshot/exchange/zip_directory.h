// The records of a zip archive, as torch.save writes it: stored without compression, in one file, with or without
// Zip64.
//
// Trusts nothing: every offset and length is held against the file before anything is allocated, a record must lie
// before the directory and beside all others, and its two headers must agree. The bytes of records are not read here.

#ifndef TIDEMARK_SNAPSHOT_EXCHANGE_ZIP_DIRECTORY_H_
#define TIDEMARK_SNAPSHOT_EXCHANGE_ZIP_DIRECTORY_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tidemark {

// 100,000 tensors take some 10 MB.
inline constexpr uint64_t kZipDirectoryBytesMax = uint64_t{16} << 20;

// Fills the span with the bytes of the file from `offset` on, which are within its length.
using ReadFileAt = absl::FunctionRef<absl::Status(uint64_t offset, std::span<std::byte> destination)>;

struct ZipRecord {
  std::string name;     // "archive/data/0"
  uint64_t offset = 0;  // of its bytes, in the file
  uint64_t bytes = 0;
  uint32_t crc = 0;  // of these bytes, as zlib has it
};

// In the order of their offsets. kDataLoss: the archive is damaged; the message says where, and names the record.
// kUnimplemented: a record is compressed or encrypted, the archive has several parts, or its directory is longer than
// kZipDirectoryBytesMax. Errors of `read` are passed on.
absl::StatusOr<std::vector<ZipRecord>> ReadZipDirectory(uint64_t file_bytes, ReadFileAt read);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_EXCHANGE_ZIP_DIRECTORY_H_
