#include "storage/shard/format/chunk_check.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "fmt/format.h"
#include "zstd.h"

namespace tidemark::storage {
namespace {

absl::Status NotStored(std::string_view why) {
  return absl::InternalError(fmt::format("a stored chunk differs from its encoding: {}", why));
}

absl::Status NotStored(std::string_view what, uint64_t expected, uint64_t found) {
  return NotStored(fmt::format("{}: expected {}, found {}", what, expected, found));
}

}  // namespace

absl::Status ChunkCheck::Check(std::span<const std::byte> raw, const ChunkRecord& record,
                               std::span<const std::byte> stored) {
  if (record.raw_bytes != raw.size()) return NotStored("raw bytes", raw.size(), record.raw_bytes);
  if (record.stored_bytes != stored.size()) return NotStored("stored bytes", stored.size(), record.stored_bytes);
  if (record.codec == Codec::kRaw) {
    if (stored.size() == raw.size()) return absl::OkStatus();
    return NotStored("bytes of a raw chunk", raw.size(), stored.size());
  }
  if (stored.size() >= raw.size()) {
    return NotStored(fmt::format("stored bytes: expected less than {}, found {}", raw.size(), stored.size()));
  }
  const unsigned long long claimed = ZSTD_getFrameContentSize(stored.data(), stored.size());
  if (claimed != raw.size()) return NotStored("the frame's content size", raw.size(), claimed);
  if (!decoder_) return absl::OkStatus();
  if (decoded_.size() < raw.size()) decoded_.resize(raw.size());
  const std::span<std::byte> decoded = std::span(decoded_).first(raw.size());
  if (absl::Status status = decoder_->Verify(record, stored, decoded); !status.ok()) {
    return NotStored(std::string(status.message()));
  }
  // The digest is of the bytes as they were when they were read for it.
  return std::equal(raw.begin(), raw.end(), decoded.begin()) ? absl::OkStatus()
                                                             : NotStored("it decodes to different bytes");
}

}  // namespace tidemark::storage
