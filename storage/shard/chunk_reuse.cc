#include "storage/shard/chunk_reuse.h"

#include <algorithm>
#include <numeric>

namespace tidemark::storage {

ChunkReuse::ChunkReuse(const ReusableShard* source, const ShardIdentity& identity, uint32_t chunk_bytes) {
  if (source == nullptr || source->chunk_bytes != chunk_bytes || source->identity.store != identity.store) return;
  source_ = source;
  const ShardIdentity& self = source->identity;
  source_file_ = {self.step, self.attempt, self.rank, self.world_size};
  sources_.reserve(source->index.files.size() + 1);
  sources_.push_back({&source_file_});
  for (const FileReference& file : source->index.files) sources_.push_back({&file});
  const FileReference here = {identity.step, identity.attempt, identity.rank, identity.world_size};
  for (Source& candidate : sources_) {
    if (*candidate.file == here) candidate.file = nullptr;
  }
  DropSmallSources();
}

void ChunkReuse::DropSmallSources() {
  if (sources_.size() <= kFileReferencesWrittenMax) return;
  std::vector<uint64_t> bytes(sources_.size());
  for (const ChunkRecord& chunk : source_->index.chunks) {
    if (CanRefer(chunk)) bytes[chunk.file] += chunk.stored_bytes;
  }
  std::vector<size_t> by_bytes(sources_.size());
  std::iota(by_bytes.begin(), by_bytes.end(), size_t{0});
  std::stable_sort(by_bytes.begin(), by_bytes.end(), [&](size_t a, size_t b) { return bytes[a] > bytes[b]; });
  for (const size_t dropped : std::span(by_bytes).subspan(kFileReferencesWrittenMax)) sources_[dropped].file = nullptr;
}

std::span<const ChunkRecord> ChunkReuse::ChunksOf(size_t number, std::string_view name) {
  if (source_ == nullptr) return {};
  const std::vector<ShardEntry>& entries = source_->index.entries;
  if (number >= entries.size() || entries[number].spec.name != name) {
    if (entries_.empty()) {
      for (size_t i = 0; i < entries.size(); ++i) entries_.emplace(entries[i].spec.name, i);
    }
    const auto found = entries_.find(name);
    if (found == entries_.end()) return {};
    number = found->second;
  }
  return std::span(source_->index.chunks).subspan(entries[number].first_chunk, entries[number].chunk_count);
}

ChunkRecord ChunkReuse::Refer(const ChunkRecord& chunk) {
  Source& source = sources_[chunk.file];
  if (source.number == 0) {
    const FileReference& file = *source.file;
    const auto [found, is_new] =
        numbers_.try_emplace({file.attempt, file.step, file.rank, file.world_size}, files_.size() + 1);
    if (is_new) files_.push_back(file);
    source.number = found->second;
  }
  ChunkRecord reference = chunk;
  reference.file = source.number;
  return reference;
}

}  // namespace tidemark::storage
