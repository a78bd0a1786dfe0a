#include "storage/shard/shard_verify.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "fmt/format.h"
#include "storage/shard/byte_reader.h"
#include "storage/shard/range_fetcher.h"
#include "storage/shard/shard_files.h"

namespace tidemark::storage {
namespace {

// Whether an error says something of the bytes, and not of the attempt to read them.
bool IsDamage(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:  // something that is no regular file lies in its place
      return true;
    default:
      return false;
  }
}

// Whether such an error may as well be somebody else's sound file.
bool IsForeign(const absl::Status& status) {
  return absl::IsUnimplemented(status) || absl::IsFailedPrecondition(status);
}

std::string MessageOf(const absl::Status& status) { return {status.message().data(), status.message().size()}; }

// How many ranges are planned before they are read: they take memory, and a file that is mostly a hole has as many as
// its author likes. Each plan begins with a ring, threads and buffers of its own and ends when the last range is
// decoded: by its parts some hundredths of a second for what is 1 GiB as a rule, and less than a second way into
// FetchRanges, which would take ranges as they are made, is worth.
constexpr size_t kRangesMax = 1024;

// SplitMix64's step: numbers in a row come out as if drawn.
uint64_t Scramble(uint64_t number) {
  number += 0x9e3779b97f4a7c15;
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9;
  number = (number ^ (number >> 27)) * 0x94d049bb133111eb;
  return number ^ (number >> 31);
}

// The chunks of a sample: those of the lowest numbers, of which each chunk has one by its own and the shard's place and
// the seed. Ascending.
std::vector<uint64_t> DrawChunks(const ChunkSample& sample, const ShardIdentity& shard, size_t chunks) {
  const uint64_t place = Scramble(Scramble(sample.seed) ^ static_cast<uint64_t>(shard.step)) ^ shard.rank;
  std::vector<std::pair<uint64_t, uint64_t>> drawn(chunks);
  for (size_t i = 0; i < chunks; ++i) drawn[i] = {Scramble(Scramble(place) + i), i};
  const size_t wanted = std::min(chunks, static_cast<size_t>(std::ceil(sample.share * static_cast<double>(chunks))));
  std::nth_element(drawn.begin(), drawn.begin() + static_cast<ptrdiff_t>(wanted), drawn.end());
  std::vector<uint64_t> numbers;
  for (size_t i = 0; i < wanted; ++i) numbers.push_back(drawn[i].second);
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

// Collects damage from several threads. Thread-safe.
class DamageList {
 public:
  void Add(uint16_t file, uint64_t offset, ShardDamage damage) {
    absl::MutexLock lock(&mutex_);
    items_.push_back({file, offset, std::move(damage)});
  }
  std::vector<ShardDamage> Take() {
    absl::MutexLock lock(&mutex_);
    std::sort(items_.begin(), items_.end(),
              [](const Item& a, const Item& b) { return std::pair(a.file, a.offset) < std::pair(b.file, b.offset); });
    std::vector<ShardDamage> damage;
    for (Item& item : items_) damage.push_back(std::move(item.damage));
    return damage;
  }

 private:
  struct Item {
    uint16_t file;
    uint64_t offset;
    ShardDamage damage;
  };
  absl::Mutex mutex_;
  std::vector<Item> items_ ABSL_GUARDED_BY(mutex_);
};

// Header, footer and index.
struct Frame {
  uint64_t file_bytes = 0;
  ShardHeader header;
  ShardFooter footer;
  ShardIndex index;
};

// One verification. Owned by the thread that calls VerifyShard; while FetchRanges runs, its threads call VerifyRange,
// which changes nothing but damage_.
class ShardVerifier {
 public:
  ShardVerifier(FileSystem& files, const std::string& path, const std::function<void(uint64_t)>& progress,
                const ChunkSample& sample, const std::function<bool()>& cancelled)
      : files_(files), path_(path), progress_(progress), sample_(sample), cancelled_(cancelled) {}

  absl::Status Run(const std::string& steps_directory, const ShardIdentity* expected, const ShardReadOptions& options);

  ShardVerification TakeResult() {
    result_.damage = damage_.Take();
    return std::move(result_);
  }

 private:
  absl::Status VerifyFrame(const ShardIdentity* expected);
  bool whole() const { return sample_.share >= 1; }
  absl::Status VerifyOwnRanges();
  absl::Status VerifyOwnSample();
  absl::Status VerifyIndexPadding();
  // The items [first, last), all in `file`.
  absl::Status VerifyItems(File* file, size_t first, size_t last);
  absl::Status VerifyReferencedRanges();
  // Reads the ranges that are planned, and forgets them.
  absl::Status FetchPlanned();
  absl::Status VerifyRange(const ByteRange& range, const absl::Status& read, std::span<const std::byte> bytes,
                           FetchWorker& worker);
  void VerifyZeros(std::span<const std::byte> bytes, uint64_t offset);

  absl::Status CheckCancelled() const;
  // Notes damage to the whole shard and returns ok, or returns what is no damage.
  absl::Status NoteUnreadable(const absl::Status& status);
  void CountRange(const ByteRange& range);
  void CountBytes(uint64_t bytes);
  const ChunkRecord& ChunkOf(size_t item) const { return frame_.index.chunks[order_[item]]; }
  void SortEntries();
  std::vector<std::string> EntriesOf(size_t first_item, size_t last_item) const;

  FileSystem& files_;
  const std::string& path_;
  const std::function<void(uint64_t)>& progress_;
  const ChunkSample sample_;
  const std::function<bool()>& cancelled_;
  FetchOptions fetch_;
  std::unique_ptr<File> file_;
  Frame frame_;
  std::unique_ptr<ReferencedShards> referenced_;
  std::vector<uint64_t> order_;           // chunks to be read, by file and offset: the items of the ranges
  std::vector<size_t> entries_by_chunk_;  // entries that have chunks, by their first one
  std::vector<ByteRange> ranges_;
  ShardVerification result_;
  DamageList damage_;
};

absl::Status ShardVerifier::CheckCancelled() const {
  if (cancelled_ == nullptr || !cancelled_()) return absl::OkStatus();
  return absl::CancelledError(fmt::format("verification of {} was cancelled", path_));
}

absl::Status ShardVerifier::NoteUnreadable(const absl::Status& status) {
  if (status.ok() || !IsDamage(status)) return status;
  damage_.Add(0, 0, {path_, MessageOf(status), {}, IsForeign(status)});
  return absl::OkStatus();
}

void ShardVerifier::CountBytes(uint64_t bytes) {
  result_.bytes_read += bytes;
  if (progress_ != nullptr) progress_(bytes);
}

void ShardVerifier::CountRange(const ByteRange& range) {
  if (range.file != file_.get()) {
    uint64_t bytes = 0;
    for (size_t i = range.first_item; i < range.last_item; ++i) bytes += ChunkOf(i).stored_bytes;
    CountBytes(bytes);
  } else if (range.begin < frame_.footer.index_offset) {
    CountBytes(range.end - range.begin);
  }  // else the padding of the index, which was counted with it
}

std::vector<std::string> ShardVerifier::EntriesOf(size_t first_item, size_t last_item) const {
  const std::vector<ShardEntry>& entries = frame_.index.entries;
  std::vector<size_t> hit;
  uint64_t owner_before = std::numeric_limits<uint64_t>::max();
  for (size_t item = first_item; item < last_item; ++item) {
    // The entries' ranges cover the table, so the last one to begin at or before the chunk has it, and so do those that
    // are tied to it and begin there too.
    auto end = std::upper_bound(entries_by_chunk_.begin(), entries_by_chunk_.end(), order_[item],
                                [&](uint64_t chunk, size_t entry) { return chunk < entries[entry].first_chunk; });
    const uint64_t owner = entries[*std::prev(end)].first_chunk;
    if (owner == owner_before) continue;
    owner_before = owner;
    while (end != entries_by_chunk_.begin() && entries[*std::prev(end)].first_chunk == owner) hit.push_back(*--end);
  }
  std::sort(hit.begin(), hit.end());
  hit.erase(std::unique(hit.begin(), hit.end()), hit.end());
  std::vector<std::string> names;
  for (const size_t entry : hit) names.push_back(entries[entry].spec.name);
  return names;
}

void ShardVerifier::SortEntries() {
  const std::vector<ShardEntry>& entries = frame_.index.entries;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].chunk_count > 0) entries_by_chunk_.push_back(i);
  }
  std::stable_sort(entries_by_chunk_.begin(), entries_by_chunk_.end(),
                   [&](size_t a, size_t b) { return entries[a].first_chunk < entries[b].first_chunk; });
}

// Looks at header and footer even if one of them is damaged.
absl::Status ShardVerifier::VerifyFrame(const ShardIdentity* expected) {
  auto size = ReadShardSize(*file_);
  if (!size.ok()) return NoteUnreadable(size.status());
  auto header = ReadShardHeader(*file_);
  if (auto status = NoteUnreadable(header.status()); !status.ok()) return status;
  if (header.ok() && expected != nullptr) {
    if (absl::Status status = CheckIdentity(path_, *header, *expected); !status.ok()) {
      damage_.Add(0, 0, {path_, MessageOf(status), {}, header->identity.store != expected->store});
    }
  }
  auto footer = ReadShardFooter(*file_, *size);
  if (auto status = NoteUnreadable(footer.status()); !status.ok()) return status;
  CountBytes(2 * kShardBlockBytes);
  if (!header.ok() || !footer.ok()) return absl::OkStatus();
  auto index = ReadShardIndex(*file_, *header, *footer);
  if (auto status = NoteUnreadable(index.status()); !status.ok()) return status;
  CountBytes(AlignUp(footer->index_bytes));
  if (!index.ok()) return absl::OkStatus();
  frame_ = {*size, *header, *footer, *std::move(index)};
  result_.readable = true;
  return absl::OkStatus();
}

absl::Status ShardVerifier::FetchPlanned() {
  absl::Status status = FetchRanges(
      files_, fetch_, ranges_,
      [this](size_t range, const absl::Status& read, std::span<const std::byte> bytes, FetchWorker& worker) {
        return VerifyRange(ranges_[range], read, bytes, worker);
      },
      [this](size_t range) { CountRange(ranges_[range]); });
  ranges_.clear();
  return status;
}

// Ranges that cover the file from the header to the index, chunks and what is between them. The last of them are only
// planned.
absl::Status ShardVerifier::VerifyOwnRanges() {
  absl::Status status;
  ByteRange range{file_.get(), kShardBlockBytes, kShardBlockBytes, 0, 0};
  const auto finish_range = [&] {
    if (range.end > range.begin) ranges_.push_back(range);
    if (ranges_.size() >= kRangesMax) status = FetchPlanned();
    range = {file_.get(), range.end, range.end, range.last_item, range.last_item};
  };
  const auto cover_gap = [&](uint64_t end) {
    while (status.ok() && end - range.begin > kRangeBytes && range.end < end) {
      range.end = std::max(range.end, std::min(end, range.begin + kRangeBytes));
      finish_range();
    }
    range.end = std::max(range.end, end);
  };
  for (size_t i = 0; i < order_.size() && ChunkOf(i).file == 0 && status.ok(); ++i) {
    const ChunkRecord& chunk = ChunkOf(i);
    cover_gap(chunk.offset);
    if (chunk.offset + chunk.stored_bytes - range.begin > kRangeBytes) finish_range();
    range.end = chunk.offset + chunk.stored_bytes;
    range.last_item = i + 1;
  }
  cover_gap(frame_.footer.index_offset);
  finish_range();
  return status;
}

// Together with what was planned before.
absl::Status ShardVerifier::VerifyIndexPadding() {
  const ShardFooter& footer = frame_.footer;
  const ByteRange range{file_.get(), footer.index_offset + footer.index_bytes, frame_.file_bytes - kShardBlockBytes,
                        order_.size(), order_.size()};
  if (range.end > range.begin) ranges_.push_back(range);
  return FetchPlanned();
}

absl::Status ShardVerifier::VerifyItems(File* file, size_t first, size_t last) {
  for (size_t i = first; i < last; ++i) {
    if (ranges_.size() >= kRangesMax) {
      if (absl::Status status = FetchPlanned(); !status.ok()) return status;
    }
    AddToRanges(file, ChunkOf(i).offset, ChunkOf(i).offset + ChunkOf(i).stored_bytes, i, &ranges_);
  }
  return absl::OkStatus();
}

// The chunks of this file that were drawn. The last ones are only planned.
absl::Status ShardVerifier::VerifyOwnSample() {
  size_t last = 0;
  while (last < order_.size() && ChunkOf(last).file == 0) ++last;
  return VerifyItems(file_.get(), 0, last);
}

// A referenced shard that cannot be opened is damage to the entries that use it.
absl::Status ShardVerifier::VerifyReferencedRanges() {
  for (size_t first = 0, last = 0; first < order_.size(); first = last) {
    const uint16_t number = ChunkOf(first).file;
    while (last < order_.size() && ChunkOf(last).file == number) ++last;
    if (number == 0) continue;
    auto file = referenced_->Get(number - 1);
    if (!file.ok()) {
      if (!IsDamage(file.status())) return file.status();
      damage_.Add(
          number, 0,
          {referenced_->path(number - 1), MessageOf(file.status()), EntriesOf(first, last), IsForeign(file.status())});
      continue;
    }
    if (absl::Status status = VerifyItems(*file, first, last); !status.ok()) return status;
  }
  return FetchPlanned();
}

void ShardVerifier::VerifyZeros(std::span<const std::byte> bytes, uint64_t offset) {
  const size_t position = FindNonZero(bytes);
  if (position == bytes.size()) return;
  damage_.Add(0, offset + position,
              {.path = path_,
               .what = fmt::format("{}: byte at {}, which belongs to nothing: expected zero, found 0x{:02x}", path_,
                                   offset + position, static_cast<uint8_t>(bytes[position])),
               .unused = true});
}

absl::Status ShardVerifier::VerifyRange(const ByteRange& range, const absl::Status& read,
                                        std::span<const std::byte> bytes, FetchWorker& worker) {
  if (absl::Status status = CheckCancelled(); !status.ok()) return status;
  const bool own = range.file == file_.get();
  const uint16_t number = own ? 0 : ChunkOf(range.first_item).file;
  const std::string& path = own ? path_ : referenced_->path(number - 1);
  if (!read.ok()) {
    if (!IsDamage(read)) return read;
    damage_.Add(number, range.begin, {path, MessageOf(read), EntriesOf(range.first_item, range.last_item)});
    return absl::OkStatus();
  }
  uint64_t position = range.begin;
  // In a sample there may be other chunks between those that were drawn.
  const bool has_gaps = own && (whole() || range.first_item == range.last_item);
  const auto verify_gap = [&](uint64_t end) {
    if (has_gaps) VerifyZeros(bytes.subspan(position - range.begin, end - position), position);
  };
  for (size_t i = range.first_item; i < range.last_item; ++i) {
    if (absl::Status status = CheckCancelled(); !status.ok()) return status;
    const ChunkRecord& chunk = ChunkOf(i);
    verify_gap(chunk.offset);
    position = chunk.offset + chunk.stored_bytes;
    if (worker.scratch.size() < chunk.raw_bytes) worker.scratch.resize(chunk.raw_bytes);
    const auto status = worker.decoder.Verify(chunk, bytes.subspan(chunk.offset - range.begin, chunk.stored_bytes),
                                              std::span(worker.scratch).first(chunk.raw_bytes));
    if (status.ok()) continue;
    const auto prefix = fmt::format("{}: chunk {}, {} bytes at {}", path, order_[i], chunk.stored_bytes, chunk.offset);
    damage_.Add(number, chunk.offset,
                {path, MessageOf(WithPrefix(status, prefix)), EntriesOf(i, i + 1), IsForeign(status)});
  }
  verify_gap(range.end);
  return absl::OkStatus();
}

absl::Status ShardVerifier::Run(const std::string& steps_directory, const ShardIdentity* expected,
                                const ShardReadOptions& options) {
  auto file = files_.OpenForRead(path_, /*direct=*/true);
  if (!file.ok()) return NoteUnreadable(file.status());
  file_ = *std::move(file);
  if (auto status = VerifyFrame(expected); !status.ok() || !result_.readable) return status;
  const std::vector<ChunkRecord>& chunks = frame_.index.chunks;
  referenced_ =
      std::make_unique<ReferencedShards>(files_, steps_directory, frame_.header.identity.store, frame_.index.files);
  if (whole()) {
    order_.resize(chunks.size());
    std::iota(order_.begin(), order_.end(), 0);
  } else {
    order_ = DrawChunks(sample_, frame_.header.identity, chunks.size());
  }
  std::sort(order_.begin(), order_.end(), [&](uint64_t a, uint64_t b) {
    return std::tuple(chunks[a].file, chunks[a].offset, a) < std::tuple(chunks[b].file, chunks[b].offset, b);
  });
  SortEntries();
  fetch_ = {options.codec_threads, options.io, options.io_depth};
  result_.chunks = order_.size();
  result_.chunks_total = chunks.size();
  if (auto status = whole() ? VerifyOwnRanges() : VerifyOwnSample(); !status.ok()) return status;
  if (auto status = VerifyIndexPadding(); !status.ok()) return status;
  return VerifyReferencedRanges();
}

}  // namespace

uint64_t VerifyBytes(const ShardFooter& footer, const ShardIndex& index) {
  uint64_t bytes = footer.file_bytes;
  for (const ChunkRecord& chunk : index.chunks) {
    if (chunk.file != 0) bytes += chunk.stored_bytes;
  }
  return bytes;
}

absl::StatusOr<ShardVerification> VerifyShard(FileSystem& files, const std::string& path,
                                              const std::string& steps_directory, const ShardIdentity* expected,
                                              const ShardReadOptions& options,
                                              const std::function<void(uint64_t)>& progress, const ChunkSample& sample,
                                              const std::function<bool()>& cancelled) {
  ShardVerifier verifier(files, path, progress, sample, cancelled);
  if (auto status = verifier.Run(steps_directory, expected, options); !status.ok()) return status;
  return verifier.TakeResult();
}

}  // namespace tidemark::storage
