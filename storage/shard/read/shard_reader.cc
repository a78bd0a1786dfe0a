#include "storage/shard/read/shard_reader.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "storage/io/exception_status.h"
#include "storage/io/printable_text.h"
#include "storage/shard/format/shard_files.h"
#include "storage/shard/read/range_fetcher.h"

namespace tidemark::storage {
namespace {

// One chunk, or a part of it, to be read to one place.
struct ChunkRead {
  uint64_t chunk = 0;
  size_t entry = 0;
  std::span<std::byte> destination;
  uint32_t skip = 0;  // raw bytes of the chunk before those that are wanted
};

}  // namespace

struct ShardReader::Impl {
  static absl::StatusOr<std::unique_ptr<ShardReader>> Open(FileSystem& files, const std::string& path,
                                                           const std::string& steps_directory);
  absl::Status Read(std::span<const EntryRead> reads, const ShardReadOptions& options,
                    const std::function<void(uint64_t bytes)>& on_read) const;
  absl::Status PlanRead(const EntryRead& read, std::vector<ChunkRead>* items) const;
  absl::Status CheckDisjoint(std::span<const EntryRead> reads) const;
  absl::StatusOr<std::vector<ChunkRead>> PlanReads(std::span<const EntryRead> reads) const;
  absl::StatusOr<std::vector<ByteRange>> PlanRanges(const std::vector<ChunkRead>& items) const;
  absl::StatusOr<File*> FileOf(const ChunkRead& item) const;
  absl::Status DecodeRange(const std::vector<ChunkRead>& items, const ByteRange& range,
                           std::span<const std::byte> bytes, bool tries_again, FetchWorker& worker) const;
  absl::Status DecodeAgain(const ChunkRead& item, FetchWorker& worker, std::span<std::byte> raw) const;
  bool IsWhole(const ChunkRead& item) const { return item.destination.size() == index.chunks[item.chunk].raw_bytes; }
  uint64_t RawBytes(size_t entry) const;
  std::string Describe(const ChunkRead& item) const;

  std::string path;
  std::unique_ptr<File> file;
  ShardHeader header;
  ShardFooter footer;
  ShardIndex index;
  IndexBase index_base;
  FileSystem* files = nullptr;
  std::unique_ptr<ReferencedShards> referenced;
};

ShardReader::ShardReader() : impl_(std::make_unique<Impl>()) {}
ShardReader::~ShardReader() = default;

const std::string& ShardReader::path() const { return impl_->path; }
const ShardHeader& ShardReader::header() const { return impl_->header; }
const ShardIndex& ShardReader::index() const { return impl_->index; }
const IndexBase& ShardReader::index_base() const { return impl_->index_base; }
const ShardFooter& ShardReader::footer() const { return impl_->footer; }

absl::StatusOr<std::unique_ptr<ShardReader>> ShardReader::Open(FileSystem& files, const std::string& path,
                                                               const std::string& steps_directory) {
  try {
    return Impl::Open(files, path, steps_directory);
  } catch (...) {
    return ExceptionStatus("open", path);
  }
}

absl::StatusOr<std::unique_ptr<ShardReader>> ShardReader::Impl::Open(FileSystem& files, const std::string& path,
                                                                     const std::string& steps_directory) {
  auto file = files.OpenForRead(path, /*direct=*/true);
  if (!file.ok()) return file.status();
  auto size = ReadShardSize(**file);
  if (!size.ok()) return size.status();
  auto header = ReadShardHeader(**file);
  if (!header.ok()) return header.status();
  auto footer = ReadShardFooter(**file, *size);
  if (!footer.ok()) return footer.status();
  auto stored = ReadShardIndex(files, steps_directory, **file, *header, *footer);
  if (!stored.ok()) return stored.status();

  std::unique_ptr<ShardReader> reader(new ShardReader);
  Impl& impl = *reader->impl_;
  impl.path = path;
  impl.file = *std::move(file);
  impl.header = *header;
  impl.footer = *footer;
  impl.index = std::move(stored->index);
  impl.index_base = std::move(stored->base);
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

uint64_t ShardReader::RawBytes(size_t entry) const { return impl_->RawBytes(entry); }

uint64_t ShardReader::Impl::RawBytes(size_t entry) const {
  const ShardEntry& record = index.entries[entry];
  if (record.chunk_count == 0) return 0;
  return (record.chunk_count - 1) * header.chunk_bytes +
         index.chunks[record.first_chunk + record.chunk_count - 1].raw_bytes;
}

absl::Status ShardReader::Impl::PlanRead(const EntryRead& read, std::vector<ChunkRead>* items) const {
  if (read.entry >= index.entries.size()) {
    return absl::InvalidArgumentError(
        fmt::format("read {}: entry {} of {} does not exist", path, read.entry, index.entries.size()));
  }
  const ShardEntry& entry = index.entries[read.entry];
  const uint64_t bytes = RawBytes(read.entry);
  const uint64_t begin = read.begin.value_or(0);
  if (!read.begin && read.destination.size() != bytes) {
    return absl::InvalidArgumentError(
        fmt::format("read {}: entry '{}': expected a destination of {} bytes, found {} bytes", path,
                    PrintableText(entry.spec.name), bytes, read.destination.size()));
  }
  if (begin > bytes || read.destination.size() > bytes - begin) {
    return absl::OutOfRangeError(fmt::format("read {}: entry '{}' has {} bytes: {} bytes from {} are outside of it",
                                             path, PrintableText(entry.spec.name), bytes, read.destination.size(),
                                             begin));
  }
  for (uint64_t done = 0; done < read.destination.size();) {
    const uint64_t chunk = entry.first_chunk + (begin + done) / header.chunk_bytes;
    const auto skip = static_cast<uint32_t>((begin + done) % header.chunk_bytes);
    const uint64_t size = std::min<uint64_t>(index.chunks[chunk].raw_bytes - skip, read.destination.size() - done);
    items->push_back({chunk, read.entry, read.destination.subspan(done, size), skip});
    done += size;
  }
  return absl::OkStatus();
}

// Refuses overlapping destinations: several threads would write to the common part, and decoders read back their own
// output.
absl::Status ShardReader::Impl::CheckDisjoint(std::span<const EntryRead> reads) const {
  std::vector<const EntryRead*> order;
  order.reserve(reads.size());
  for (const EntryRead& read : reads) {
    if (!read.destination.empty()) order.push_back(&read);
  }
  const auto begins_before = [](const EntryRead* a, const EntryRead* b) {
    return std::less<>()(a->destination.data(), b->destination.data());
  };
  if (!std::is_sorted(order.begin(), order.end(), begins_before)) std::sort(order.begin(), order.end(), begins_before);
  const auto overlap = [](const EntryRead* a, const EntryRead* b) {
    return std::less<>()(b->destination.data(), a->destination.data() + a->destination.size());
  };
  const auto found = std::adjacent_find(order.begin(), order.end(), overlap);
  if (found == order.end()) return absl::OkStatus();
  const auto name = [&](const EntryRead* read) { return PrintableText(index.entries[read->entry].spec.name); };
  return absl::InvalidArgumentError(fmt::format("read {}: the destinations of the entries '{}' and '{}' overlap", path,
                                                name(found[0]), name(found[1])));
}

absl::StatusOr<std::vector<ChunkRead>> ShardReader::Impl::PlanReads(std::span<const EntryRead> reads) const {
  std::vector<ChunkRead> items;
  items.reserve(reads.size());
  for (const EntryRead& read : reads) {
    if (absl::Status status = PlanRead(read, &items); !status.ok()) return status;
  }
  if (absl::Status status = CheckDisjoint(reads); !status.ok()) return status;
  const auto place = [&](const ChunkRead& item) {
    const ChunkRecord& chunk = index.chunks[item.chunk];
    return std::tuple(chunk.file, chunk.offset, item.chunk);
  };
  const auto comes_before = [&](const ChunkRead& a, const ChunkRead& b) { return place(a) < place(b); };
  if (!std::is_sorted(items.begin(), items.end(), comes_before)) std::sort(items.begin(), items.end(), comes_before);
  return items;
}

absl::StatusOr<std::vector<ByteRange>> ShardReader::Impl::PlanRanges(const std::vector<ChunkRead>& items) const {
  std::vector<ByteRange> ranges;
  for (size_t i = 0; i < items.size(); ++i) {
    const ChunkRecord& chunk = index.chunks[items[i].chunk];
    auto from = FileOf(items[i]);
    if (!from.ok()) return from.status();
    std::byte* const place = chunk.codec == Codec::kRaw && IsWhole(items[i]) ? items[i].destination.data() : nullptr;
    AddToRanges(*from, chunk.offset, chunk.offset + chunk.stored_bytes, i, &ranges, place);
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
  return fmt::format("read {}: entry '{}', chunk {}, {} bytes at {}{}", path,
                     PrintableText(index.entries[item.entry].spec.name), item.chunk, chunk.stored_bytes, chunk.offset,
                     chunk.file == 0 ? "" : fmt::format(" of {}", referenced->path(chunk.file - 1)));
}

// Reads the chunk again and decodes it into memory that no other thread writes. An error means that the chunk is
// damaged or cannot be read.
absl::Status ShardReader::Impl::DecodeAgain(const ChunkRead& item, FetchWorker& worker,
                                            std::span<std::byte> raw) const {
  const ChunkRecord& chunk = index.chunks[item.chunk];
  auto from = FileOf(item);
  if (!from.ok()) return from.status();
  const uint64_t begin = AlignDown(chunk.offset);
  auto blocks = ReadBlocks(**from, begin, chunk.offset + chunk.stored_bytes - begin);
  if (!blocks.ok()) return blocks.status();
  std::vector<std::byte> decoded(raw.size());
  const auto stored = blocks->span().subspan(chunk.offset - begin, chunk.stored_bytes);
  if (auto status = worker.decoder.Decode(chunk, stored, decoded); !status.ok()) return status;
  std::copy(decoded.begin(), decoded.end(), raw.begin());
  return absl::OkStatus();
}

// Decodes every chunk of the range once, or a second time if it does not verify, to the first destination that takes
// all of it or to the worker's own memory, and copies from there.
absl::Status ShardReader::Impl::DecodeRange(const std::vector<ChunkRead>& items, const ByteRange& range,
                                            std::span<const std::byte> bytes, bool tries_again,
                                            FetchWorker& worker) const {
  std::span<std::byte> raw;  // of the chunk that was decoded last
  for (size_t i = range.first_item; i < range.last_item; ++i) {
    const ChunkRead& item = items[i];
    const ChunkRecord& chunk = index.chunks[item.chunk];
    if (i == range.first_item || items[i - 1].chunk != item.chunk) {
      raw = item.destination;
      if (!IsWhole(item)) {
        if (worker.scratch.size() < chunk.raw_bytes) worker.scratch.resize(chunk.raw_bytes);
        raw = std::span(worker.scratch).first(chunk.raw_bytes);
      }
      const auto stored = bytes.subspan(chunk.offset - range.begin, chunk.stored_bytes);
      absl::Status status = worker.decoder.Decode(chunk, stored, raw);
      if (!status.ok() && tries_again) status = DecodeAgain(item, worker, raw);
      if (!status.ok()) return WithPrefix(status, Describe(item));
    }
    if (raw.data() == item.destination.data()) continue;
    std::memcpy(item.destination.data(), raw.data() + item.skip, item.destination.size());
  }
  return absl::OkStatus();
}

absl::Status ShardReader::Read(std::span<const EntryRead> reads, const ShardReadOptions& options,
                               const std::function<void(uint64_t bytes)>& on_read) const {
  try {
    return impl_->Read(reads, options, on_read);
  } catch (...) {
    return ExceptionStatus("read", impl_->path);
  }
}

absl::Status ShardReader::Impl::Read(std::span<const EntryRead> reads, const ShardReadOptions& options,
                                     const std::function<void(uint64_t bytes)>& on_read) const {
  auto items = PlanReads(reads);
  if (!items.ok()) return items.status();
  auto ranges = PlanRanges(*items);
  if (!ranges.ok()) return ranges.status();
  const auto handler = [&](size_t number, const absl::Status& read, std::span<const std::byte> bytes,
                           FetchWorker& worker) {
    const ByteRange& range = (*ranges)[number];
    if (!read.ok()) return WithPrefix(read, Describe((*items)[range.first_item]));
    return DecodeRange(*items, range, bytes, options.tries_again, worker);
  };
  std::function<void(size_t)> on_range;
  if (on_read) {
    on_range = [&](size_t number) {
      const ByteRange& range = (*ranges)[number];
      uint64_t bytes = 0;
      for (size_t i = range.first_item; i < range.last_item; ++i) bytes += (*items)[i].destination.size();
      on_read(bytes);
    };
  }
  return FetchRanges(*files, {options.codec_threads, options.io, options.io_depth}, *ranges, handler, on_range);
}

}  // namespace tidemark::storage
