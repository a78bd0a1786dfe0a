#include "snapshot/restore/saved_entries.h"

#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "snapshot/restore/box_read.h"
#include "snapshot/restore/entry_match.h"
#include "snapshot/restore/stored_step.h"
#include "storage/bytes/ids.h"
#include "storage/io/exception_status.h"
#include "storage/io/printable_text.h"

namespace tidemark {
namespace {

// The entries of a step that was saved in parts.
class JoinedEntries final : public SavedEntries {
 public:
  JoinedEntries(storage::Attempt attempt, const storage::ShardReadOptions& options)
      : step_(std::move(attempt.record.info), std::move(attempt.shards), options), parts_(JoinEntries(step_.contents)) {
    const storage::ShardIndex& first = step_.shards.front()->index();
    index_.metrics = first.metrics;
    index_.user_metadata = first.user_metadata;
    index_.properties = step_.contents.properties;
    for (const EntryParts& parts : parts_) {
      places_.push_back({&parts, WholeBox(parts.spec.shape), parts.bytes});
      AddToIndex(parts.spec, DigestOfParts(step_.contents, parts));
    }
  }

  const storage::ShardIndex& index() const override { return index_; }

  size_t AddBox(size_t entry, const Box& box) override {
    const EntryParts& parts = *places_[entry].parts;
    EntrySpec spec = parts.spec;
    spec.box_offset = box.offset;
    spec.box_extent = box.extent;
    uint64_t bytes = GetDtypeInfo(spec.dtype).element_bytes;
    for (const int64_t extent : box.extent) bytes *= static_cast<uint64_t>(extent);
    places_.push_back({&parts, box, bytes});
    const std::string of_box = DigestOfParts(step_.contents, parts) + DescribeBox(box);
    AddToIndex(std::move(spec), storage::ToHex(storage::DigestOf(std::as_bytes(std::span(of_box))).bytes));
    return places_.size() - 1;
  }

  uint64_t RawBytes(size_t entry) const override { return places_[entry].bytes; }
  absl::Status Check(size_t entry) const override {
    return CheckIsThere(step_.contents, *places_[entry].parts, places_[entry].box);
  }
  absl::Status Read(std::span<const storage::EntryRead> reads,
                    const std::function<void(uint64_t)>& on_read) const override {
    try {
      std::vector<RangeRead> ranges;
      for (const storage::EntryRead& read : reads) {
        const Place& place = places_[read.entry];
        const uint64_t begin = read.begin.value_or(0);
        const bool fits = begin <= place.bytes && read.destination.size() <= place.bytes - begin;
        if (!fits || (!read.begin && read.destination.size() != place.bytes)) {
          return absl::InvalidArgumentError(fmt::format("read {} bytes from {} of '{}', which has {}",
                                                        read.destination.size(), begin,
                                                        storage::PrintableText(place.parts->spec.name), place.bytes));
        }
        ranges.push_back({place.parts, place.box, begin, read.destination});
      }
      return ReadRanges(step_, ranges, on_read);
    } catch (...) {
      return storage::ExceptionStatus("read");
    }
  }

 private:
  // What an entry is made of.
  struct Place {
    const EntryParts* parts;
    Box box;
    uint64_t bytes;
  };

  // One chunk for each entry, with a digest of all that it is made of.
  void AddToIndex(EntrySpec spec, const std::string& digest) {
    index_.entries.push_back({.spec = std::move(spec), .first_chunk = index_.chunks.size(), .chunk_count = 1});
    index_.chunks.push_back({.digest = {.bytes = *storage::FromHex(digest)}});
  }

  const StoredStep step_;
  const std::vector<EntryParts> parts_;
  std::vector<Place> places_;  // by entry
  storage::ShardIndex index_;
};

// The entries of a step that one rank saved, each as a whole. With the first box they are joined, which keeps their
// numbers.
class ShardEntries final : public SavedEntries {
 public:
  ShardEntries(storage::Attempt attempt, const storage::ShardReadOptions& options)
      : attempt_(std::move(attempt)), options_(options) {}

  const storage::ShardIndex& index() const override { return joined_ ? joined_->index() : shard().index(); }
  size_t AddBox(size_t entry, const Box& box) override {
    if (!joined_) joined_ = std::make_unique<JoinedEntries>(std::move(attempt_), options_);
    return joined_->AddBox(entry, box);
  }
  uint64_t RawBytes(size_t entry) const override {
    return joined_ ? joined_->RawBytes(entry) : shard().RawBytes(entry);
  }
  absl::Status Check(size_t entry) const override { return joined_ ? joined_->Check(entry) : absl::OkStatus(); }
  absl::Status Read(std::span<const storage::EntryRead> reads,
                    const std::function<void(uint64_t)>& on_read) const override {
    return joined_ ? joined_->Read(reads, on_read) : shard().Read(reads, options_, on_read);
  }

 private:
  const storage::ShardReader& shard() const { return *attempt_.shards.front(); }

  storage::Attempt attempt_;
  const storage::ShardReadOptions options_;
  std::unique_ptr<JoinedEntries> joined_;
};

}  // namespace

bool SavedEntries::AreSame(size_t one, size_t other) const { return HaveSameBytes(index(), one, other); }

std::unique_ptr<SavedEntries> EntriesOf(storage::Attempt attempt, const storage::ShardReadOptions& options) {
  if (HasParts(attempt.shards)) return std::make_unique<JoinedEntries>(std::move(attempt), options);
  return std::make_unique<ShardEntries>(std::move(attempt), options);
}

}  // namespace tidemark
