#include "storage/shard/format/shard_files.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "storage/bytes/byte_reader.h"
#include "storage/io/exception_status.h"
#include "storage/shard/format/shard_index_layout.h"

namespace tidemark::storage {
namespace {

// Header, an index of one block, footer.
constexpr uint64_t kShardBytesMin = 3 * kShardBlockBytes;

constexpr uint64_t kIndexPieceBytes = 1 << 20;  // read at a time
constexpr uint64_t kIndexZeroBlocksMax = kIndexZerosMax / kShardBlockBytes;

// The number of zero blocks in a row at the end of `bytes`, which are whole blocks behind `before` zero blocks. Stops
// at the first block that is one more than an index may have.
uint64_t CountZeroBlocks(std::span<const std::byte> bytes, uint64_t before) {
  for (size_t i = 0; i < bytes.size() && before <= kIndexZeroBlocksMax; i += kShardBlockBytes) {
    const bool is_zero = FindNonZero(bytes.subspan(i, kShardBlockBytes)) == kShardBlockBytes;
    before = is_zero ? before + 1 : 0;
  }
  return before;
}

// A hole in a file costs its author no disk, but its reader memory. So the file is read in pieces. Reading ends at a
// hole that is too large for an index, and the memory behind it is never touched.
absl::StatusOr<AlignedBuffer> ReadIndexBlocks(File& file, const ShardFooter& footer) {
  AlignedBuffer buffer;
  try {
    buffer = AlignedBuffer(footer.index_bytes);
  } catch (...) {
    return ExceptionStatus("read the index of", file.path());
  }
  uint64_t zero_blocks = 0;
  for (uint64_t done = 0; done < buffer.size();) {
    const auto piece = buffer.span().subspan(done, std::min(kIndexPieceBytes, buffer.size() - done));
    if (auto status = file.ReadAt(footer.index_offset + done, piece); !status.ok()) return status;
    done += piece.size();
    zero_blocks = CountZeroBlocks(piece, zero_blocks);
    if (zero_blocks > kIndexZeroBlocksMax) {
      return absl::DataLossError(fmt::format("{} at {}: shard index: expected at most {} zeros in a row, found more",
                                             file.path(), footer.index_offset, kIndexZerosMax));
    }
  }
  return buffer;
}

std::string Describe(const ShardIdentity& identity) {
  return fmt::format("store {}, step {}, attempt {}, rank {} of {}", ToHex(identity.store.bytes), identity.step,
                     ToHex(identity.attempt.bytes), identity.rank, identity.world_size);
}

std::vector<std::string> PathsOf(const std::string& steps_directory, const std::vector<FileReference>& references) {
  std::vector<std::string> paths;
  paths.reserve(references.size());
  for (const FileReference& reference : references) {
    paths.push_back(fmt::format("{}/{}/{}", steps_directory, StepFolderName(reference.step, reference.attempt),
                                ShardFileName(reference.rank, reference.world_size)));
  }
  return paths;
}

// The index of a shard that `header` refers to, which must be stored whole and have that digest.
absl::StatusOr<ShardIndex> ReadBase(ReferencedShards& base, const ShardHeader& header, const Digest128& digest) {
  auto file = base.Get(0);
  if (!file.ok()) return file.status();
  auto base_header = ReadShardHeader(**file);
  if (!base_header.ok()) return base_header.status();
  auto size = ReadShardSize(**file);
  if (!size.ok()) return size.status();
  auto footer = ReadShardFooter(**file, *size);
  if (!footer.ok()) return footer.status();
  if (footer->index_digest != digest) {
    return absl::DataLossError(fmt::format("{}: shard footer: index digest: expected {}, found {}", base.path(0),
                                           ToHex(digest.bytes), ToHex(footer->index_digest.bytes)));
  }
  if (base_header->chunk_bytes != header.chunk_bytes) {
    return absl::DataLossError(fmt::format("{}: shard header: chunk bytes: expected {}, found {}", base.path(0),
                                           header.chunk_bytes, base_header->chunk_bytes));
  }
  if (base_header->repeats_names != header.repeats_names) {
    const auto version = [](const ShardHeader& of) {
      return of.repeats_names ? kShardBoxesVersion : kShardFormatVersion;
    };
    return absl::DataLossError(fmt::format("{}: shard header: version: expected {}, found {}", base.path(0),
                                           version(header), version(*base_header)));
  }
  auto blocks = ReadIndexBlocks(**file, *footer);
  if (!blocks.ok()) return blocks.status();
  auto index = DecodeShardIndex(blocks->span().first(footer->index_bytes), *base_header, *footer);
  if (!index.ok()) return WithPrefix(index.status(), fmt::format("{} at {}", base.path(0), footer->index_offset));
  return index;
}

}  // namespace

absl::Status WithPrefix(const absl::Status& status, std::string_view prefix) {
  if (status.ok()) return status;
  return absl::Status(
      status.code(), fmt::format("{}: {}", prefix, std::string_view(status.message().data(), status.message().size())));
}

absl::StatusOr<AlignedBuffer> ReadBlocks(File& file, uint64_t offset, uint64_t bytes) {
  AlignedBuffer buffer;
  try {
    buffer = AlignedBuffer(bytes);
  } catch (...) {
    return ExceptionStatus("read", file.path());
  }
  if (auto status = file.ReadAt(offset, buffer.span()); !status.ok()) return status;
  return buffer;
}

absl::StatusOr<uint64_t> ReadShardSize(File& file) {
  auto size = file.Size();
  if (!size.ok()) return size.status();
  if (*size < kShardBytesMin || *size % kShardBlockBytes != 0) {
    return absl::DataLossError(fmt::format("{}: size of a shard: expected a multiple of {} from {}, found {} bytes",
                                           file.path(), kShardBlockBytes, kShardBytesMin, *size));
  }
  return *size;
}

absl::StatusOr<ShardHeader> ReadShardHeader(File& file) {
  auto block = ReadBlocks(file, 0, kShardBlockBytes);
  if (!block.ok()) return block.status();
  auto header = DecodeShardHeader(block->span());
  if (!header.ok()) return WithPrefix(header.status(), file.path());
  return header;
}

absl::StatusOr<ShardFooter> ReadShardFooter(File& file, uint64_t file_bytes) {
  auto block = ReadBlocks(file, file_bytes - kShardBlockBytes, kShardBlockBytes);
  if (!block.ok()) return block.status();
  auto footer = DecodeShardFooter(block->span(), file_bytes);
  if (!footer.ok())
    return WithPrefix(footer.status(), fmt::format("{} at {}", file.path(), file_bytes - kShardBlockBytes));
  return footer;
}

absl::StatusOr<StoredIndex> ReadShardIndex(FileSystem& files, const std::string& steps_directory, File& file,
                                           const ShardHeader& header, const ShardFooter& footer,
                                           std::string* failed_path) {
  if (failed_path != nullptr) *failed_path = file.path();
  auto blocks = ReadIndexBlocks(file, footer);
  if (!blocks.ok()) return blocks.status();
  const std::span<const std::byte> bytes = blocks->span().first(footer.index_bytes);
  absl::Status of_base;
  const auto read_base = [&](const FileReference& shard, const Digest128& digest) -> absl::StatusOr<ShardIndex> {
    ReferencedShards base(files, steps_directory, header.identity.store, {shard});
    auto index = ReadBase(base, header, digest);
    if (!index.ok() && failed_path != nullptr) *failed_path = base.path(0);
    of_base = index.status();
    return index;
  };
  StoredIndex stored = {.base = {.digest = footer.index_digest}};
  auto index = footer.index_is_delta ? DecodeShardIndexDelta(bytes, header, footer, read_base, &stored.base)
                                     : DecodeShardIndex(bytes, header, footer);
  if (!of_base.ok()) return WithPrefix(of_base, fmt::format("{}: the index is a delta to another", file.path()));
  if (!index.ok()) return WithPrefix(index.status(), fmt::format("{} at {}", file.path(), footer.index_offset));
  stored.index = *std::move(index);
  return stored;
}

absl::Status CheckIdentity(std::string_view path, const ShardHeader& header, const ShardIdentity& expected) {
  ShardIdentity found = header.identity;
  // Each rank counts its own attempts, and the step's record has rank 0's count.
  if (expected.rank > 0) found.sequence = expected.sequence;
  if (found == expected) return absl::OkStatus();
  return absl::DataLossError(fmt::format("{}: shard header: expected {}, sequence {}, found {}, sequence {}", path,
                                         Describe(expected), expected.sequence, Describe(header.identity),
                                         header.identity.sequence));
}

ReferencedShards::ReferencedShards(FileSystem& files, std::string steps_directory, const StoreId& store,
                                   std::vector<FileReference> references)
    : files_(files),
      store_(store),
      references_(std::move(references)),
      paths_(PathsOf(steps_directory, references_)),
      open_(references_.size()) {}

absl::StatusOr<File*> ReferencedShards::Get(size_t reference) {
  absl::MutexLock lock(&mutex_);
  std::unique_ptr<File>& slot = open_[reference];
  if (slot != nullptr) return slot.get();
  auto file = files_.OpenForRead(paths_[reference], /*direct=*/true);
  if (!file.ok()) return file.status();
  if (auto size = ReadShardSize(**file); !size.ok()) return size.status();
  auto header = ReadShardHeader(**file);
  if (!header.ok()) return header.status();
  ShardIdentity expected = header->identity;  // the reference says nothing of its sequence
  expected.store = store_;
  expected.step = references_[reference].step;
  expected.attempt = references_[reference].attempt;
  expected.rank = references_[reference].rank;
  expected.world_size = references_[reference].world_size;
  if (auto status = CheckIdentity(paths_[reference], *header, expected); !status.ok()) return status;
  slot = *std::move(file);
  return slot.get();
}

}  // namespace tidemark::storage
