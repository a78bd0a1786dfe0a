#include "snapshot/restore/stored_step.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "fmt/format.h"
#include "storage/bytes/ids.h"

namespace tidemark {
namespace {

// Of the chunks' digests, which are of the raw bytes.
std::string DigestOfChunks(const storage::ShardIndex& index, const storage::ShardEntry& entry) {
  std::vector<uint8_t> digests;
  digests.reserve(entry.chunk_count * sizeof(storage::Digest128));
  for (uint64_t i = 0; i < entry.chunk_count; ++i) {
    const auto& bytes = index.chunks[entry.first_chunk + i].digest.bytes;
    digests.insert(digests.end(), bytes.begin(), bytes.end());
  }
  return storage::ToHex(storage::DigestOf(std::as_bytes(std::span(digests))).bytes);
}

// What the shards refer to; two of them may use one file.
std::vector<ReferencedShard> ReferencesOf(const std::vector<std::unique_ptr<storage::ShardReader>>& shards) {
  std::map<std::pair<int64_t, std::string>, ReferencedShard> by_path;
  for (const auto& shard : shards) {
    const storage::ShardIndex& index = shard->index();
    std::vector<ReferencedShard*> by_number;
    const std::filesystem::path steps = std::filesystem::path(shard->path()).parent_path().parent_path();
    for (const storage::FileReference& file : index.files) {
      const std::string path =
          steps / storage::StepFolderName(file.step, file.attempt) / storage::ShardFileName(file.rank, file.world_size);
      ReferencedShard& reference = by_path[{file.step, path}];
      reference.step = file.step;
      reference.attempt = storage::ToHex(file.attempt.bytes);
      reference.path = path;
      by_number.push_back(&reference);
    }
    for (const storage::ChunkRecord& chunk : index.chunks) {
      if (chunk.file == 0) continue;
      ++by_number[chunk.file - 1]->chunk_count;
      by_number[chunk.file - 1]->stored_bytes += chunk.stored_bytes;
    }
  }
  std::vector<ReferencedShard> references;
  for (auto& [place, reference] : by_path) references.push_back(std::move(reference));
  return references;
}

}  // namespace

bool HasParts(std::span<const std::unique_ptr<storage::ShardReader>> shards) {
  return shards.size() > 1 || std::ranges::any_of(shards, [](const auto& shard) {
           return shard->header().repeats_names ||
                  std::ranges::any_of(shard->index().entries, [](const auto& entry) { return !entry.spec.whole(); });
         });
}

StoredStep::StoredStep(StepInfo info, std::vector<std::unique_ptr<storage::ShardReader>> opened,
                       const storage::ShardReadOptions& options)
    : shards(std::move(opened)), read(options) {
  contents.info = std::move(info);
  contents.references = ReferencesOf(shards);
  size_t count = 0;
  for (const auto& shard : shards) count += shard->index().entries.size();
  contents.entries.reserve(count);
  places.reserve(count);
  for (size_t s = 0; s < shards.size(); ++s) {
    const storage::ShardReader& shard = *shards[s];
    const storage::ShardIndex& index = shard.index();
    const uint32_t rank = shard.header().identity.rank;
    chunk_bytes = std::max<uint64_t>(chunk_bytes, shard.header().chunk_bytes);
    contents.shards.push_back({.path = shard.path(),
                               .rank = rank,
                               .file_bytes = shard.footer().file_bytes,
                               .chunk_count = index.chunks.size()});
    contents.properties.insert(index.properties.begin(), index.properties.end());
    absl::flat_hash_map<uint64_t, size_t> owner_of_chunk;
    for (size_t i = 0; i < index.entries.size(); ++i) {
      const storage::ShardEntry& entry = index.entries[i];
      StoredEntry stored{.spec = entry.spec, .bytes = shard.RawBytes(i), .rank = rank};
      const bool is_tied =
          entry.chunk_count > 0 && !owner_of_chunk.emplace(entry.first_chunk, contents.entries.size()).second;
      if (is_tied) {
        const StoredEntry& owner = contents.entries[owner_of_chunk[entry.first_chunk]];
        stored.tied_to = owner.spec.name;
        stored.digest = owner.digest;
      } else {
        stored.digest = DigestOfChunks(index, entry);
        stored.stored_bytes = shard.StoredBytes(i);
        stored.reused_bytes = shard.ReusedBytes(i);
      }
      contents.entries.push_back(std::move(stored));
      places.emplace_back(s, i);
    }
  }
}

absl::Status StoredStep::Read(std::span<const StepReader::Window> windows) const {
  std::vector<std::vector<storage::EntryRead>> reads(shards.size());
  for (const StepReader::Window& window : windows) {
    if (window.entry >= places.size()) {
      return absl::InvalidArgumentError(
          fmt::format("read: there is no entry {}; the step has {}", window.entry, places.size()));
    }
    const auto [shard, entry] = places[window.entry];
    reads[shard].push_back({.entry = entry, .destination = window.destination, .begin = window.offset});
  }
  for (size_t s = 0; s < reads.size(); ++s) {
    if (reads[s].empty()) continue;
    if (absl::Status status = shards[s]->Read(reads[s], read); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace tidemark
