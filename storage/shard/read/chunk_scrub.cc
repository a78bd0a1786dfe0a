#include "storage/shard/read/chunk_scrub.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <new>
#include <utility>

#include "fmt/format.h"
#include "storage/shard/format/aligned_buffer.h"
#include "storage/shard/format/shard_files.h"
#include "xxhash.h"

namespace tidemark::storage {
namespace {

// A device that cannot read a sector answers kInternal. A flipped bit may turn a header into one of a newer version.
bool SaysDamage(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status) || absl::IsInternal(status) ||
         absl::IsUnimplemented(status);
}

std::string EntryWith(const ShardIndex& index, size_t chunk) {
  const auto found = std::find_if(index.entries.begin(), index.entries.end(), [&](const ShardEntry& entry) {
    return chunk >= entry.first_chunk && chunk - entry.first_chunk < entry.chunk_count;
  });
  return found == index.entries.end() ? "" : found->spec.name;
}

}  // namespace

// What lives as long as one call of Read.
struct ChunkScrub::Call {
  const ShardIdentity& shard;
  const std::function<bool()>& cancelled;
  AlignedBuffer buffer;
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash{XXH3_createState(), &XXH3_freeState};
  uint64_t bytes_read = 0;
  // The last file that was read, whose chunks often follow each other.
  std::optional<FileReference> reference;
  std::unique_ptr<ReferencedShards> open;
};

namespace {

FileReference ReferenceTo(const ReusableShard& shard, uint16_t file) {
  const ShardIdentity& self = shard.identity;
  return file == 0 ? FileReference{self.step, self.attempt, self.rank, self.world_size} : shard.index.files[file - 1];
}

}  // namespace

ChunkScrub::Result ChunkScrub::Read(const ReusableShard& shard, uint64_t bytes_max,
                                    const std::function<bool()>& cancelled) {
  const std::vector<ChunkRecord>& chunks = shard.index.chunks;
  Result result;
  if (next_ > chunks.size()) next_ = 0;
  Call call{.shard = shard.identity,
            .cancelled = cancelled,
            .buffer = AlignedBuffer(kBufferBytes),
            .reference = {},
            .open = {}};
  if (call.hash == nullptr) throw std::bad_alloc();
  while (next_ <= chunks.size() && call.bytes_read < bytes_max) {
    const bool is_index = next_ == chunks.size();
    const FileReference reference = ReferenceTo(shard, is_index ? shard.index_base.file : chunks[next_].file);
    const auto check = [&] {
      return is_index ? CheckIndex(shard.index_base.digest, reference, call) : Check(chunks[next_], reference, call);
    };
    absl::Status status = check();
    if (SaysDamage(status)) {
      call.open = nullptr;
      status = check();
    }
    result.bytes_read = call.bytes_read;
    if (absl::IsCancelled(status)) return result;
    if (SaysDamage(status)) {
      result.damage = ChunkDamage{.file = reference,
                                  .entry = is_index ? "" : EntryWith(shard.index, next_),
                                  .what = std::string(status.message())};
      return result;
    }
    ++next_;
    if (!status.ok()) {
      result.skipped = true;
      break;
    }
  }
  result.pass_ended = next_ > chunks.size();
  return result;
}

absl::StatusOr<File*> ChunkScrub::Open(const FileReference& reference, Call& call) const {
  if (call.cancelled()) return absl::CancelledError();
  if (call.open == nullptr || call.reference != reference) {
    call.open = std::make_unique<ReferencedShards>(files_, steps_directory_, call.shard.store,
                                                   std::vector<FileReference>{reference});
    call.reference = reference;
    call.bytes_read += kShardBlockBytes;
  }
  return call.open->Get(0);
}

absl::Status ChunkScrub::Check(const ChunkRecord& chunk, const FileReference& reference, Call& call) const {
  const absl::StatusOr<File*> file = Open(reference, call);
  if (!file.ok()) return file.status();
  XXH3_64bits_reset(call.hash.get());
  const auto add = [&](std::span<const std::byte> piece) {
    XXH3_64bits_update(call.hash.get(), piece.data(), piece.size());
  };
  if (absl::Status status = Read(**file, chunk.offset, chunk.stored_bytes, call, add); !status.ok()) return status;
  const uint64_t found = XXH3_64bits_digest(call.hash.get());
  if (found == chunk.checksum) return absl::OkStatus();
  return absl::DataLossError(
      fmt::format("{} at {}: checksum of a chunk of {} stored bytes: expected {:016x}, found {:016x}", (*file)->path(),
                  chunk.offset, chunk.stored_bytes, chunk.checksum, found));
}

absl::Status ChunkScrub::CheckIndex(const Digest128& digest, const FileReference& reference, Call& call) const {
  const absl::StatusOr<File*> file = Open(reference, call);
  if (!file.ok()) return file.status();
  const absl::StatusOr<uint64_t> size = ReadShardSize(**file);
  if (!size.ok()) return size.status();
  const absl::StatusOr<ShardFooter> footer = ReadShardFooter(**file, *size);
  if (!footer.ok()) return footer.status();
  call.bytes_read += kShardBlockBytes;
  XXH3_128bits_reset(call.hash.get());
  const auto add = [&](std::span<const std::byte> piece) {
    XXH3_128bits_update(call.hash.get(), piece.data(), piece.size());
  };
  if (absl::Status status = Read(**file, footer->index_offset, footer->index_bytes, call, add); !status.ok()) {
    return status;
  }
  Digest128 found;
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(call.hash.get()));
  std::copy(std::begin(canonical.digest), std::end(canonical.digest), found.bytes.begin());
  if (found == digest) return absl::OkStatus();
  return absl::DataLossError(fmt::format("{} at {}: digest of the index: expected {}, found {}", (*file)->path(),
                                         footer->index_offset, ToHex(digest.bytes), ToHex(found.bytes)));
}

absl::Status ChunkScrub::Read(File& file, uint64_t offset, uint64_t bytes, Call& call,
                              absl::FunctionRef<void(std::span<const std::byte>)> add) const {
  const uint64_t end = offset + bytes;
  for (uint64_t at = AlignDown(offset); at < end;) {
    if (call.cancelled()) return absl::CancelledError();
    const auto piece = call.buffer.span().first(std::min<uint64_t>(AlignUp(end) - at, kBufferBytes));
    if (absl::Status status = file.ReadAt(at, piece); !status.ok()) return status;
    call.bytes_read += piece.size();
    const uint64_t skip = offset > at ? offset - at : 0;
    const uint64_t used = std::min<uint64_t>(piece.size(), end - at);
    add(piece.subspan(skip, used - skip));
    at += piece.size();
  }
  return absl::OkStatus();
}

}  // namespace tidemark::storage
