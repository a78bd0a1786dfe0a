#include "storage/shard/format/bounded_shard_files.h"

#include <string_view>

#include "fmt/format.h"
#include "storage/bytes/byte_reader.h"
#include "storage/shard/format/shard_files.h"
#include "storage/shard/format/shard_index_layout.h"

namespace tidemark::storage {
namespace {

absl::Status CheckIndex(File& file, const IndexBounds& bounds) {
  const auto size = ReadShardSize(file);
  if (!size.ok()) return absl::OkStatus();
  const auto footer = ReadShardFooter(file, *size);
  if (!footer.ok()) return absl::OkStatus();
  const auto refuse = [&](uint64_t bound, std::string_view what, uint64_t found) {
    return absl::ResourceExhaustedError(
        fmt::format("{} at {}: shard index: expected at most {} {} in a store that is not trusted, found {}",
                    file.path(), footer->index_offset, bound, what, found));
  };
  if (footer->index_bytes > bounds.bytes) return refuse(bounds.bytes, "bytes", footer->index_bytes);
  if (footer->index_bytes < kIndexPreambleBytes) return absl::OkStatus();
  const auto block = ReadBlocks(file, footer->index_offset, kIndexPreambleBytes);
  if (!block.ok()) return absl::OkStatus();
  ByteReader in(block->span(), "shard index");
  const std::string_view magic = in.GetText(kIndexMagic.size(), "magic");
  if (magic != kIndexMagic && magic != kDeltaMagic) return absl::OkStatus();
  auto chunks = in.Get<uint64_t>("chunk count");
  const auto entries = in.Get<uint64_t>("entry count");
  const auto files = in.Get<uint32_t>("file count");
  const auto metrics = in.Get<uint32_t>("metric count");
  const auto properties = in.Get<uint32_t>("property count");
  const auto metadata_bytes = in.Get<uint32_t>("user metadata bytes");
  uint64_t chunk_bytes = kChunkRecordBytes;
  if (magic == kDeltaMagic) {
    in.GetText(kIndexPreambleBytes - in.offset(), "times");
    in.GetText(kDeltaPreambleBytes - sizeof(chunks), "base");
    chunks = in.Get<uint64_t>("changed chunk count");
    chunk_bytes += kDeltaNumberBytes;
  }
  // A count that the index has no room for is damage. A delta has room for fewer entries than it counts: the others are
  // in its base, which is held to the same bounds.
  const auto exceeds = [&](uint64_t count, uint64_t bound, uint64_t item_bytes) {
    return count > bound && count <= footer->index_bytes / item_bytes;
  };
  if (exceeds(entries, bounds.entries, kEntryBytesMin)) return refuse(bounds.entries, "entries", entries);
  if (exceeds(metrics, bounds.metrics, kMetricBytesMin)) return refuse(bounds.metrics, "metrics", metrics);
  if (exceeds(properties, bounds.properties, kPropertyBytesMin)) {
    return refuse(bounds.properties, "properties", properties);
  }
  const uint64_t known = files * kFileReferenceBytes + metadata_bytes;
  if (known > footer->index_bytes || chunks > (footer->index_bytes - known) / chunk_bytes) return absl::OkStatus();
  const uint64_t texts = footer->index_bytes - known - chunks * chunk_bytes;
  if (texts > bounds.text_bytes) return refuse(bounds.text_bytes, "bytes of names, shapes and properties", texts);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<File>> BoundedShardFiles::OpenForRead(const std::string& path, bool direct) {
  auto file = other_->OpenForRead(path, direct);
  if (!file.ok() || !path.ends_with(".tmk")) return file;
  if (absl::Status status = CheckIndex(**file, bounds_); !status.ok()) return status;
  return file;
}

}  // namespace tidemark::storage
