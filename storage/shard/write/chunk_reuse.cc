#include "storage/shard/write/chunk_reuse.h"

#include <algorithm>

#include "absl/hash/hash.h"
#include "storage/shard/format/shard_index_layout.h"

namespace tidemark::storage {

ChunkReuse::ChunkReuse(const ReusableShard* source, const ShardIdentity& identity, uint32_t chunk_bytes,
                       uint64_t saves_max)
    : saves_max_(saves_max) {
  if (source == nullptr || source->chunk_bytes != chunk_bytes || source->identity.store != identity.store) return;
  source_ = source;
  const ShardIdentity& self = source->identity;
  source_file_ = {self.step, self.attempt, self.rank, self.world_size};
  sources_.resize(source->index.files.size() + 1);
  const FileReference here = {identity.step, identity.attempt, identity.rank, identity.world_size};
  for (size_t i = 0; i < sources_.size(); ++i) {
    const FileReference& file = i == 0 ? source_file_ : source->index.files[i - 1];
    if (i < source->files.size()) sources_[i].known = source->files[i];
    sources_[i].file = &file;
    // The next process gives the numbers of failed attempts again.
    sources_[i].age = identity.sequence - std::min(identity.sequence, sources_[i].known.sequence);
  }
  for (const ChunkRecord& chunk : source->index.chunks) {
    if (chunk.file == 0) own_bytes_ += chunk.stored_bytes;
    (IsOld(chunk) ? anew_bytes_ : sources_[chunk.file].live_bytes) += chunk.stored_bytes;
  }
  for (Source& candidate : sources_) {
    if (candidate.known.bytes == 0 || *candidate.file == here) Drop(&candidate);
  }
  FindBase();
  DropIdleSources();
  DropSmallSources();
}

void ChunkReuse::FindBase() {
  index_bytes_ = EncodedShardIndexBytes(source_->index);
  stored_bytes_ = EncodedShardIndexBytes(source_->index, source_->index_base);
  if (index_bytes_ < kDeltaIndexBytesMin) return;
  base_ = &sources_[source_->index_base.file];
  const bool is_old = saves_max_ != 0 && base_->age > saves_max_;
  const bool is_used_up = source_->index_base.file != 0 && IsBaseUsedUp(stored_bytes_);
  if (base_->file == nullptr || is_old || is_used_up) base_ = nullptr;
}

// Whether deltas that grew to so many bytes, save by save, have taken as many as the whole index.
bool ChunkReuse::IsBaseUsedUp(uint64_t delta_bytes) const { return delta_bytes * (base_->age + 3) > 2 * index_bytes_; }

bool ChunkReuse::IsOld(const ChunkRecord& chunk) const {
  if (saves_max_ == 0) return false;
  const auto number = static_cast<uint64_t>(&chunk - source_->index.chunks.data());
  return sources_[chunk.file].age > saves_max_ - number % (saves_max_ / 2 + 1);
}

// The expected bytes of the new shard's file, without unchanged chunks that are written again. The estimate is the
// amount that changed in the source, a quarter more, and a 32nd of the whole, because not all saves change as much.
// `whole`: bytes of a shard that is written whole; `chunks` of these are in chunks.
uint64_t ChunkReuse::ExpectedBytes(uint64_t whole, uint64_t chunks) const {
  const auto own = static_cast<double>(own_bytes_);
  const auto anew = static_cast<double>(std::min(source_->anew_bytes, own_bytes_));
  // Chunks that were written again may have changed as well, at the same rate.
  const double rate = own > anew ? (own - anew) / (static_cast<double>(chunks) - anew) : 0;
  const auto changed = static_cast<uint64_t>(rate * static_cast<double>(chunks));
  uint64_t around = whole - chunks;
  if (base_ != nullptr) {
    // To what is in the delta already comes the share of the records whose chunks are written.
    const double written = 1.25 * rate + static_cast<double>(anew_bytes_) / static_cast<double>(chunks);
    const uint64_t before = source_->index_base.file == 0 ? 0 : stored_bytes_;
    const auto delta = before + static_cast<uint64_t>(written * static_cast<double>(index_bytes_));
    if (!IsBaseUsedUp(delta)) around -= index_bytes_ - std::min(index_bytes_, delta);
  }
  return std::min(whole, around + changed + changed / 4 + whole / 32);
}

void ChunkReuse::DropIdleSources() {
  // Bytes of the source's chunks in a file, and of the index there, if it is the base.
  const auto used = [&](const Source& source) { return source.live_bytes + (&source == base_ ? index_bytes_ : 0); };
  uint64_t needed = 0;            // by the new shard, of the files that are there
  uint64_t chunks = anew_bytes_;  // stored bytes of all of the source's
  std::vector<Source*> by_share;
  for (Source& source : sources_) {
    if (source.file == nullptr || used(source) == 0) continue;
    chunks += source.live_bytes;
    needed += source.known.bytes;
    by_share.push_back(&source);
  }
  const auto share = [&](const Source* source) {
    return static_cast<double>(used(*source)) / static_cast<double>(source->known.bytes);
  };
  std::stable_sort(by_share.begin(), by_share.end(),
                   [&](const Source* a, const Source* b) { return share(a) < share(b); });
  // Adds the frame and the index of the source's own file. The index counts as if it were stored whole.
  const uint64_t whole =
      chunks + sources_[0].known.bytes - std::min(sources_[0].known.bytes, own_bytes_) + index_bytes_ - stored_bytes_;
  for (Source* source : by_share) {
    if (needed + anew_bytes_ + ExpectedBytes(whole, chunks) <= 2 * whole + kNeededBytesSlack) return;
    needed -= source->known.bytes;
    Drop(source);
  }
}

void ChunkReuse::Drop(Source* source) {
  source->file = nullptr;
  anew_bytes_ += source->live_bytes;
  if (source == base_) base_ = nullptr;
}

void ChunkReuse::DropSmallSources() {
  if (sources_.size() <= kFileReferencesWrittenMax) return;
  std::vector<Source*> by_bytes;
  for (Source& source : sources_) {
    if (source.file != nullptr) by_bytes.push_back(&source);
  }
  std::stable_sort(by_bytes.begin(), by_bytes.end(),
                   [](const Source* a, const Source* b) { return a->live_bytes > b->live_bytes; });
  for (size_t i = kFileReferencesWrittenMax; i < by_bytes.size(); ++i) Drop(by_bytes[i]);
}

std::vector<ReusableFile> ChunkReuse::FilesBehind(const ReusableFile& self) const {
  std::vector<ReusableFile> files = {self};
  files.insert(files.end(), known_.begin(), known_.end());
  return files;
}

size_t ChunkReuse::HashOfPlace::operator()(const EntrySpec* entry) const {
  return absl::HashOf(entry->name, entry->box_offset, entry->box_extent);
}

bool ChunkReuse::SamePlace::operator()(const EntrySpec* a, const EntrySpec* b) const {
  return a->name == b->name && a->box_offset == b->box_offset && a->box_extent == b->box_extent;
}

std::span<const ChunkRecord> ChunkReuse::ChunksOf(size_t number, const EntrySpec& entry) {
  if (source_ == nullptr) return {};
  const std::vector<ShardEntry>& entries = source_->index.entries;
  if (number >= entries.size() || !SamePlace()(&entries[number].spec, &entry)) {
    if (entries_.empty()) {
      entries_.reserve(entries.size());
      for (size_t i = 0; i < entries.size(); ++i) entries_.emplace(&entries[i].spec, i);
    }
    const auto found = entries_.find(&entry);
    if (found == entries_.end()) return {};
    number = found->second;
  }
  return std::span(source_->index.chunks).subspan(entries[number].first_chunk, entries[number].chunk_count);
}

uint16_t ChunkReuse::NumberOf(Source* source) {
  if (source->number == 0) {
    const FileReference& file = *source->file;
    const auto [found, is_new] =
        numbers_.try_emplace({file.attempt, file.step, file.rank, file.world_size}, files_.size() + 1);
    if (is_new) {
      files_.push_back(file);
      known_.push_back(source->known);
    }
    source->number = found->second;
  }
  return source->number;
}

// The source's chunk as the new shard's table has it, if it is referred to.
ChunkRecord ChunkReuse::Named(const ChunkRecord& chunk) const {
  ChunkRecord reference = chunk;
  reference.file = sources_[chunk.file].number;
  return reference;
}

ChunkRecord ChunkReuse::Refer(const ChunkRecord& chunk) {
  NumberOf(&sources_[chunk.file]);
  return Named(chunk);
}

IndexBase ChunkReuse::ChooseBase(const ShardIndex& index, bool repeats_names) {
  if (base_ == nullptr || source_->repeats_names != repeats_names) return {};
  const ShardIndex& before = source_->index;
  const IndexBase& known = source_->index_base;
  if (index.chunks.size() != before.chunks.size() || index.entries.size() != before.entries.size()) return {};
  IndexBase base = known;
  base.changed_chunks.resize(index.chunks.size());
  base.changed_entries.resize(index.entries.size());
  index_bytes_ = EncodedShardIndexBytes(index);
  uint64_t used = index_bytes_;
  for (size_t i = 0; i < index.chunks.size(); ++i) {
    // A chunk of the new file has no number, as a file that is not referred to.
    if (index.chunks[i].file == 0 || index.chunks[i] != Named(before.chunks[i])) {
      base.changed_chunks[i] = true;
    } else if (&sources_[before.chunks[i].file] == base_) {
      used += index.chunks[i].stored_bytes;
    }
  }
  if (2 * used < base_->known.bytes) return {};
  for (size_t i = 0; i < index.entries.size(); ++i) {
    const ShardEntry& entry = index.entries[i];
    const ShardEntry& earlier = before.entries[i];
    if (entry == earlier) continue;
    if (entry.first_chunk != earlier.first_chunk || entry.chunk_count != earlier.chunk_count) return {};
    base.changed_entries[i] = true;
  }
  base.file = 1;  // any number but 0, for the size
  if (IsBaseUsedUp(EncodedShardIndexBytes(index, base) + kFileReferenceBytes)) return {};
  base.file = NumberOf(base_);
  return base;
}

}  // namespace tidemark::storage
