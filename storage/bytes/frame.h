// The frame of a file that is one record: 8 bytes of magic, a version of 2 bytes, what the record is, and the XXH3-64
// of everything before it. No I/O.

#ifndef TIDEMARK_STORAGE_BYTES_FRAME_H_
#define TIDEMARK_STORAGE_BYTES_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "storage/bytes/byte_reader.h"
#include "storage/bytes/byte_writer.h"

namespace tidemark::storage {

struct FrameKind {
  std::string_view magic;  // kFrameMagicBytes long
  std::string_view name;   // with its article, for messages: "an entry"
  uint16_t version = 1;    // the newest one
};

inline constexpr size_t kFrameMagicBytes = 8;
inline constexpr size_t kFrameBytes = kFrameMagicBytes + sizeof(uint16_t) + sizeof(uint64_t);

void BeginFrame(ByteWriter& writer, const FrameKind& kind);
void EndFrame(ByteWriter& writer);

// A view of `bytes` without the checksum, for a reader that begins with SkipFrame. Errors, with `what`:
// - kDataLoss: shorter than a frame, not of this kind, or not as it was written.
// - kUnimplemented: of a newer version.
absl::StatusOr<std::string_view> CheckFrame(std::string_view what, const FrameKind& kind, std::string_view bytes);
uint16_t SkipFrame(ByteReader& reader);  // the version

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_BYTES_FRAME_H_
