#include "storage/shard/read/shard_verify.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "fmt/format.h"
#include "storage/bytes/byte_reader.h"
#include "storage/io/exception_status.h"
#include "storage/shard/format/name_table.h"
#include "storage/shard/format/shard_files.h"
#include "storage/shard/read/range_fetcher.h"

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

// The items [first, last) of ShardVerifier::order_.
struct ItemRange {
  size_t first = 0;
  size_t last = 0;
};

// One place. `damage` does not list its entries: they are the entries with a chunk of `items`.
struct DamagedPlace {
  uint16_t file = 0;
  uint64_t offset = 0;
  ItemRange items;
  ShardDamage damage;
};

// Collects damage from several threads. Thread-safe. A file can be made with a damaged place for each byte of it, so
// only the first places by file and offset are kept.
class DamageList {
 public:
  struct Rest {
    uint64_t count = 0;  // the number of places that are not kept
    bool foreign = false;
    bool unused = true;  // true: all of these are unused places
    std::vector<bool> items;
  };

  void Add(DamagedPlace place) {
    absl::MutexLock lock(&mutex_);
    places_.push_back(std::move(place));
    if (places_.size() == 2 * kDamageListedMax) KeepFirst();
  }

  // The kept places, by file and offset; `rest`: the others.
  std::vector<DamagedPlace> Take(Rest* rest) {
    absl::MutexLock lock(&mutex_);
    KeepFirst();
    *rest = std::move(rest_);
    return std::move(places_);
  }

 private:
  void KeepFirst() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::stable_sort(places_.begin(), places_.end(), [](const DamagedPlace& a, const DamagedPlace& b) {
      return std::pair(a.file, a.offset) < std::pair(b.file, b.offset);
    });
    for (; places_.size() > kDamageListedMax; places_.pop_back()) {
      const DamagedPlace& place = places_.back();
      ++rest_.count;
      rest_.foreign |= place.damage.foreign;
      rest_.unused &= place.damage.unused;
      rest_.items.resize(std::max(rest_.items.size(), place.items.last));
      for (size_t i = place.items.first; i < place.items.last; ++i) rest_.items[i] = true;
    }
  }

  absl::Mutex mutex_;
  std::vector<DamagedPlace> places_ ABSL_GUARDED_BY(mutex_);
  Rest rest_ ABSL_GUARDED_BY(mutex_);
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

  ShardVerification TakeResult();

 private:
  absl::Status VerifyFrame(const std::string& steps_directory, const ShardIdentity* expected);
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
  // Notes damage to the whole shard, in the file of that path, and returns ok, or returns what is no damage.
  absl::Status NoteUnreadable(const absl::Status& status, const std::string& path);
  absl::Status NoteUnreadable(const absl::Status& status) { return NoteUnreadable(status, path_); }
  void CountRange(const ByteRange& range);
  void CountBytes(uint64_t bytes);
  const ChunkRecord& ChunkOf(size_t item) const { return frame_.index.chunks[order_[item]]; }
  void SortEntries();
  std::vector<std::string> NameEntries(const std::function<bool(size_t)>& has_item, ItemRange items, bool again);

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
  std::vector<uint32_t> named_by_;        // by entry: the number of the last damage that names it, from 1 on
  uint32_t damage_number_ = 0;
  size_t names_ = 0;  // of all damage so far
  std::vector<ByteRange> ranges_;
  ShardVerification result_;
  DamageList damage_;
};

absl::Status ShardVerifier::CheckCancelled() const {
  if (cancelled_ == nullptr || !cancelled_()) return absl::OkStatus();
  return absl::CancelledError(fmt::format("verification of {} was cancelled", path_));
}

absl::Status ShardVerifier::NoteUnreadable(const absl::Status& status, const std::string& path) {
  if (status.ok() || !IsDamage(status)) return status;
  damage_.Add({.damage = {.path = path, .what = MessageOf(status), .foreign = IsForeign(status)}});
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

// The names of the entries that have one of the chunks, in the order of the table. Without `again`, only names that no
// earlier damage has.
std::vector<std::string> ShardVerifier::NameEntries(const std::function<bool(size_t)>& has_item, ItemRange items,
                                                    bool again) {
  const std::vector<ShardEntry>& entries = frame_.index.entries;
  std::vector<size_t> found;
  ++damage_number_;
  for (size_t item = items.first; item < items.last; ++item) {
    if (!has_item(item)) continue;
    // The entries' ranges cover the table, so the last one to begin at or before the chunk has it, and so do those that
    // are tied to it and begin there too.
    auto end = std::upper_bound(entries_by_chunk_.begin(), entries_by_chunk_.end(), order_[item],
                                [&](uint64_t chunk, size_t entry) { return chunk < entries[entry].first_chunk; });
    const size_t last = *std::prev(end);
    if (again ? named_by_[last] == damage_number_ : named_by_[last] != 0) continue;
    for (; end != entries_by_chunk_.begin(); --end) {
      const size_t entry = *std::prev(end);
      if (entries[entry].first_chunk != entries[last].first_chunk) break;
      named_by_[entry] = damage_number_;
      found.push_back(entry);
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> names;
  names.reserve(found.size());
  NameSet seen;  // several boxes of one tensor are named once
  for (const size_t entry : found) {
    const std::string& name = entries[entry].spec.name;
    if (!frame_.header.repeats_names || seen.Add(name)) names.push_back(name);
  }
  names_ += names.size();
  return names;
}

ShardVerification ShardVerifier::TakeResult() {
  DamageList::Rest rest;
  named_by_.resize(frame_.index.entries.size());
  for (DamagedPlace& place : damage_.Take(&rest)) {
    place.damage.entries = NameEntries([](size_t) { return true; }, place.items, /*again=*/names_ < kNamesRepeatedMax);
    result_.damage.push_back(std::move(place.damage));
  }
  if (rest.count > 0) {
    result_.damage.push_back(
        {.path = path_,
         .what = fmt::format("{}: {} more places are damaged; the first {} are listed", path_, rest.count,
                             kDamageListedMax),
         .entries = NameEntries([&](size_t item) { return rest.items[item]; }, {0, rest.items.size()}, /*again=*/false),
         .foreign = rest.foreign,
         .unused = rest.unused});
  }
  return std::move(result_);
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
absl::Status ShardVerifier::VerifyFrame(const std::string& steps_directory, const ShardIdentity* expected) {
  auto size = ReadShardSize(*file_);
  if (!size.ok()) return NoteUnreadable(size.status());
  auto header = ReadShardHeader(*file_);
  if (auto status = NoteUnreadable(header.status()); !status.ok()) return status;
  if (header.ok() && expected != nullptr) {
    if (absl::Status status = CheckIdentity(path_, *header, *expected); !status.ok()) {
      damage_.Add(
          {.damage = {.path = path_, .what = MessageOf(status), .foreign = header->identity.store != expected->store}});
    }
  }
  auto footer = ReadShardFooter(*file_, *size);
  if (auto status = NoteUnreadable(footer.status()); !status.ok()) return status;
  CountBytes(2 * kShardBlockBytes);
  if (!header.ok() || !footer.ok()) return absl::OkStatus();
  std::string failed_path;
  auto stored = ReadShardIndex(files_, steps_directory, *file_, *header, *footer, &failed_path);
  if (auto status = NoteUnreadable(stored.status(), failed_path); !status.ok()) return status;
  CountBytes(AlignUp(footer->index_bytes));
  if (!stored.ok()) return absl::OkStatus();
  frame_ = {*size, *header, *footer, std::move(stored->index)};
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
      damage_.Add({.file = number,
                   .items = {first, last},
                   .damage = {.path = referenced_->path(number - 1),
                              .what = MessageOf(file.status()),
                              .foreign = IsForeign(file.status())}});
      continue;
    }
    if (absl::Status status = VerifyItems(*file, first, last); !status.ok()) return status;
  }
  return FetchPlanned();
}

void ShardVerifier::VerifyZeros(std::span<const std::byte> bytes, uint64_t offset) {
  const size_t position = FindNonZero(bytes);
  if (position == bytes.size()) return;
  damage_.Add({.offset = offset + position,
               .damage = {.path = path_,
                          .what = fmt::format("{}: padding byte at {}: expected zero, found 0x{:02x}", path_,
                                              offset + position, static_cast<uint8_t>(bytes[position])),
                          .unused = true}});
}

absl::Status ShardVerifier::VerifyRange(const ByteRange& range, const absl::Status& read,
                                        std::span<const std::byte> bytes, FetchWorker& worker) {
  if (absl::Status status = CheckCancelled(); !status.ok()) return status;
  const bool own = range.file == file_.get();
  const uint16_t number = own ? 0 : ChunkOf(range.first_item).file;
  const std::string& path = own ? path_ : referenced_->path(number - 1);
  if (!read.ok()) {
    if (!IsDamage(read)) return read;
    damage_.Add({.file = number,
                 .offset = range.begin,
                 .items = {range.first_item, range.last_item},
                 .damage = {.path = path, .what = MessageOf(read)}});
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
    damage_.Add(
        {.file = number,
         .offset = chunk.offset,
         .items = {i, i + 1},
         .damage = {.path = path, .what = MessageOf(WithPrefix(status, prefix)), .foreign = IsForeign(status)}});
  }
  verify_gap(range.end);
  return absl::OkStatus();
}

absl::Status ShardVerifier::Run(const std::string& steps_directory, const ShardIdentity* expected,
                                const ShardReadOptions& options) {
  auto file = files_.OpenForRead(path_, /*direct=*/true);
  if (!file.ok()) return NoteUnreadable(file.status());
  file_ = *std::move(file);
  if (auto status = VerifyFrame(steps_directory, expected); !status.ok() || !result_.readable) return status;
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
  try {
    ShardVerifier verifier(files, path, progress, sample, cancelled);
    if (auto status = verifier.Run(steps_directory, expected, options); !status.ok()) return status;
    return verifier.TakeResult();
  } catch (...) {
    return ExceptionStatus("verify", path);
  }
}

}  // namespace tidemark::storage
