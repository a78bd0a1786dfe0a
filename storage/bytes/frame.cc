#include "storage/bytes/frame.h"

#include <cstring>

#include "absl/status/status.h"
#include "fmt/format.h"
#include "storage/bytes/ids.h"

namespace tidemark::storage {
namespace {

constexpr size_t kChecksumBytes = sizeof(uint64_t);

}  // namespace

void BeginFrame(ByteWriter& writer, const FrameKind& kind) {
  writer.PutText(kind.magic);
  writer.Put<uint16_t>(kind.version);
}

void EndFrame(ByteWriter& writer) { writer.Put<uint64_t>(ChecksumOf(AsBytes(writer.view()))); }

absl::StatusOr<std::string_view> CheckFrame(std::string_view what, const FrameKind& kind, std::string_view bytes) {
  if (bytes.size() < kFrameBytes || !bytes.starts_with(kind.magic)) {
    return absl::DataLossError(fmt::format("{}: {} bytes that do not begin as {} does", what, bytes.size(), kind.name));
  }
  const std::string_view checked = bytes.substr(0, bytes.size() - kChecksumBytes);
  uint64_t expected = 0;
  std::memcpy(&expected, bytes.data() + checked.size(), kChecksumBytes);
  if (const uint64_t found = ChecksumOf(AsBytes(checked)); found != expected) {
    return absl::DataLossError(fmt::format("{}: {} bytes with the checksum {:016x}, {:016x} was expected", what,
                                           bytes.size(), found, expected));
  }
  uint16_t version = 0;
  std::memcpy(&version, bytes.data() + kFrameMagicBytes, sizeof(version));
  if (version > kind.version) {
    return absl::UnimplementedError(
        fmt::format("{} has version {}; this library reads up to {}", what, version, kind.version));
  }
  if (version < 1) {
    return absl::DataLossError(
        fmt::format("{}: version at byte {}: expected {}, found 0", what, kFrameMagicBytes, kind.version));
  }
  return checked;
}

uint16_t SkipFrame(ByteReader& reader) {
  reader.GetText(kFrameMagicBytes, "magic");
  return reader.Get<uint16_t>("version");
}

}  // namespace tidemark::storage
