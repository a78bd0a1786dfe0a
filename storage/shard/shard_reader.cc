#include "storage/shard/shard_reader.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "storage/shard/range_fetcher.h"
#include "storage/shard/shard_files.h"

namespace tidemark::storage {
namespace {

// One chunk to be read to one place.
struct ChunkRead {
  uint64_t chunk = 0;
  size_t entry = 0;
  std::span<std::byte> destination;
};

}  // namespace

struct ShardReader::Impl {
  absl::StatusOr<std::vector<ChunkRead>> PlanReads(std::span<const EntryRead> reads) const;
  absl::StatusOr<std::vector<ByteRange>> PlanRanges(const std::vector<ChunkRead>& items) const;
  absl::StatusOr<File*> FileOf(const ChunkRead& item) const;
  absl::Status Decode(const ChunkRead& item, const ByteRange& range, std::span<const std::byte> bytes,
                      ChunkDecoder& decoder) const;
  std::string Describe(const ChunkRead& item) const;

  std::string path;
  std::unique_ptr<File> file;
  ShardHeader header;
  ShardFooter footer;
  ShardIndex index;
  FileSystem* files = nullptr;
  std::unique_ptr<ReferencedShards> referenced;
};

ShardReader::ShardReader() : impl_(std::make_unique<Impl>()) {}
ShardReader::~ShardReader() = default;

const std::string& ShardReader::path() const { return impl_->path; }
const ShardHeader& ShardReader::header() const { return impl_->header; }
const ShardIndex& ShardReader::index() const { return impl_->index; }
const ShardFooter& ShardReader::footer() const { return impl_->footer; }

absl::StatusOr<std::unique_ptr<ShardReader>> ShardReader::Open(FileSystem& files, const std::string& path,
                                                               const std::string& steps_directory) {
  auto file = files.OpenForRead(path, /*direct=*/true);
  if (!file.ok()) return file.status();
  auto size = ReadShardSize(**file);
  if (!size.ok()) return size.status();
  auto header = ReadShardHeader(**file);
  if (!header.ok()) return header.status();
  auto footer = ReadShardFooter(**file, *size);
  if (!footer.ok()) return footer.status();
  auto index = ReadShardIndex(**file, *header, *footer);
  if (!index.ok()) return index.status();

  std::unique_ptr<ShardReader> reader(new ShardReader);
  Impl& impl = *reader->impl_;
  impl.path = path;
  impl.file = *std::move(file);
  impl.header = *header;
  impl.footer = *footer;
  impl.index = *std::move(index);
  impl.files = &files;
  impl.referenced =
      std::make_unique<ReferencedShards>(files, steps_directory, header->identity.store, impl.index.files);
  return reader;
}

uint64_t ShardReader::StoredBytes(size_t entry) const {
  const ShardEntry& record = impl_->index.entries[entry];
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < record.chunk_count; ++i) bytes += impl_->index.chunks[record.first_chunk + i].stored_bytes;
  return bytes;
}

uint64_t ShardReader::ReusedBytes(size_t entry) const {
  const ShardEntry& record = impl_->index.entries[entry];
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < record.chunk_count; ++i) {
    const ChunkRecord& chunk = impl_->index.chunks[record.first_chunk + i];
    if (chunk.file != 0) bytes += chunk.stored_bytes;
  }
  return bytes;
}

uint64_t ShardReader::RawBytes(size_t entry) const {
  const ShardEntry& record = impl_->index.entries[entry];
  if (record.chunk_count == 0) return 0;
  return (record.chunk_count - 1) * impl_->header.chunk_bytes +
         impl_->index.chunks[record.first_chunk + record.chunk_count - 1].raw_bytes;
}

absl::StatusOr<std::vector<ChunkRead>> ShardReader::Impl::PlanReads(std::span<const EntryRead> reads) const {
  std::vector<ChunkRead> items;
  for (const EntryRead& read : reads) {
    if (read.entry >= index.entries.size()) {
      return absl::InvalidArgumentError(
          fmt::format("read {}: entry {} of {} does not exist", path, read.entry, index.entries.size()));
    }
    const ShardEntry& entry = index.entries[read.entry];
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < entry.chunk_count; ++i) {
      const uint64_t chunk = entry.first_chunk + i;
      const uint32_t raw_bytes = index.chunks[chunk].raw_bytes;
      if (bytes + raw_bytes <= read.destination.size()) {
        items.push_back({chunk, read.entry, read.destination.subspan(bytes, raw_bytes)});
      }
      bytes += raw_bytes;
    }
    if (bytes != read.destination.size()) {
      return absl::InvalidArgumentError(
          fmt::format("read {}: entry '{}': expected a destination of {} bytes, found {} bytes", path, entry.spec.name,
                      bytes, read.destination.size()));
    }
  }
  const auto place = [&](const ChunkRead& item) {
    const ChunkRecord& chunk = index.chunks[item.chunk];
    return std::tuple(chunk.file, chunk.offset, item.chunk);
  };
  std::sort(items.begin(), items.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
  return items;
}

absl::StatusOr<std::vector<ByteRange>> ShardReader::Impl::PlanRanges(const std::vector<ChunkRead>& items) const {
  std::vector<ByteRange> ranges;
  for (size_t i = 0; i < items.size(); ++i) {
    const ChunkRecord& chunk = index.chunks[items[i].chunk];
    auto from = FileOf(items[i]);
    if (!from.ok()) return from.status();
    AddToRanges(*from, chunk.offset, chunk.offset + chunk.stored_bytes, i, &ranges);
  }
  return ranges;
}

absl::StatusOr<File*> ShardReader::Impl::FileOf(const ChunkRead& item) const {
  const uint16_t number = index.chunks[item.chunk].file;
  if (number == 0) return file.get();
  auto other = referenced->Get(number - 1);
  if (!other.ok()) return WithPrefix(other.status(), Describe(item));
  return other;
}

std::string ShardReader::Impl::Describe(const ChunkRead& item) const {
  const ChunkRecord& chunk = index.chunks[item.chunk];
  return fmt::format("read {}: entry '{}', chunk {}, {} bytes at {}{}", path, index.entries[item.entry].spec.name,
                     item.chunk, chunk.stored_bytes, chunk.offset,
                     chunk.file == 0 ? "" : fmt::format(" of {}", referenced->path(chunk.file - 1)));
}

absl::Status ShardReader::Impl::Decode(const ChunkRead& item, const ByteRange& range, std::span<const std::byte> bytes,
                                       ChunkDecoder& decoder) const {
  const ChunkRecord& chunk = index.chunks[item.chunk];
  auto status = decoder.Decode(chunk, bytes.subspan(chunk.offset - range.begin, chunk.stored_bytes), item.destination);
  if (!status.ok()) return WithPrefix(status, Describe(item));
  return status;
}

absl::Status ShardReader::Read(std::span<const EntryRead> reads, const ShardReadOptions& options) const {
  auto items = impl_->PlanReads(reads);
  if (!items.ok()) return items.status();
  auto ranges = impl_->PlanRanges(*items);
  if (!ranges.ok()) return ranges.status();
  const auto handler = [&](size_t number, const absl::Status& read, std::span<const std::byte> bytes,
                           FetchWorker& worker) {
    const ByteRange& range = (*ranges)[number];
    if (!read.ok()) return WithPrefix(read, impl_->Describe((*items)[range.first_item]));
    for (size_t i = range.first_item; i < range.last_item; ++i) {
      const ChunkRead& item = (*items)[i];
      if (i > range.first_item && (*items)[i - 1].chunk == item.chunk) {  // tied, and decoded a moment ago
        std::memcpy(item.destination.data(), (*items)[i - 1].destination.data(), item.destination.size());
        continue;
      }
      if (auto status = impl_->Decode(item, range, bytes, worker.decoder); !status.ok()) return status;
    }
    return absl::OkStatus();
  };
  return FetchRanges(*impl_->files, {options.codec_threads, options.io, options.io_depth}, *ranges, handler);
}

}  // namespace tidemark::storage
