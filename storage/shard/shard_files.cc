#include "storage/shard/shard_files.h"

#include <utility>

#include "fmt/format.h"

namespace tidemark::storage {
namespace {

// Header, an index of one block, footer.
constexpr uint64_t kShardBytesMin = 3 * kShardBlockBytes;

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

}  // namespace

absl::Status WithPrefix(const absl::Status& status, std::string_view prefix) {
  if (status.ok()) return status;
  return absl::Status(
      status.code(), fmt::format("{}: {}", prefix, std::string_view(status.message().data(), status.message().size())));
}

absl::StatusOr<AlignedBuffer> ReadBlocks(File& file, uint64_t offset, uint64_t bytes) {
  AlignedBuffer buffer(bytes);
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

absl::StatusOr<ShardIndex> ReadShardIndex(File& file, const ShardHeader& header, const ShardFooter& footer) {
  auto blocks = ReadBlocks(file, footer.index_offset, footer.index_bytes);
  if (!blocks.ok()) return blocks.status();
  auto index = DecodeShardIndex(blocks->span().first(footer.index_bytes), header, footer);
  if (!index.ok()) return WithPrefix(index.status(), fmt::format("{} at {}", file.path(), footer.index_offset));
  return index;
}

absl::Status CheckIdentity(std::string_view path, const ShardHeader& header, const ShardIdentity& expected) {
  if (header.identity == expected) return absl::OkStatus();
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
