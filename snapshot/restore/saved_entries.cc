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

// The entries of a step that one rank saved, each as a whole.
class ShardEntries final : public SavedEntries {
 public:
  ShardEntries(std::unique_ptr<storage::ShardReader> shard, const storage::ShardReadOptions& options)
      : shard_(std::move(shard)), options_(options) {}

  const storage::ShardIndex& index() const override { return shard_->index(); }
  uint64_t RawBytes(size_t entry) const override { return shard_->RawBytes(entry); }
  absl::Status Check(size_t) const override { return absl::OkStatus(); }
  absl::Status Read(std::span<const storage::EntryRead> reads,
                    const std::function<void(uint64_t)>& on_read) const override {
    return shard_->Read(reads, options_, on_read);
  }

 private:
  const std::unique_ptr<storage::ShardReader> shard_;
  const storage::ShardReadOptions options_;
};

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
      // One digest for each entry, of all of its parts.
      index_.entries.push_back({.spec = parts.spec, .first_chunk = index_.chunks.size(), .chunk_count = 1});
      const std::string digest = DigestOfParts(step_.contents, parts);
      index_.chunks.push_back({.digest = {.bytes = *storage::FromHex(digest)}});
    }
  }

  const storage::ShardIndex& index() const override { return index_; }
  uint64_t RawBytes(size_t entry) const override { return parts_[entry].bytes; }
  absl::Status Check(size_t entry) const override { return CheckIsThere(step_.contents, parts_[entry]); }
  absl::Status Read(std::span<const storage::EntryRead> reads,
                    const std::function<void(uint64_t)>& on_read) const override {
    try {
      std::vector<RangeRead> ranges;
      for (const storage::EntryRead& read : reads) {
        const uint64_t bytes = parts_[read.entry].bytes;
        const uint64_t begin = read.begin.value_or(0);
        const bool fits = begin <= bytes && read.destination.size() <= bytes - begin;
        if (!fits || (!read.begin && read.destination.size() != bytes)) {
          return absl::InvalidArgumentError(fmt::format("read {} bytes from {} of '{}', which has {}",
                                                        read.destination.size(), begin,
                                                        storage::PrintableText(parts_[read.entry].spec.name), bytes));
        }
        ranges.push_back({&parts_[read.entry], begin, read.destination});
      }
      return ReadRanges(step_, ranges, on_read);
    } catch (...) {
      return storage::ExceptionStatus("read");
    }
  }

 private:
  const StoredStep step_;
  const std::vector<EntryParts> parts_;
  storage::ShardIndex index_;
};

}  // namespace

bool SavedEntries::AreSame(size_t one, size_t other) const { return HaveSameBytes(index(), one, other); }

std::unique_ptr<SavedEntries> EntriesOf(storage::Attempt attempt, const storage::ShardReadOptions& options) {
  if (HasParts(attempt.shards)) return std::make_unique<JoinedEntries>(std::move(attempt), options);
  return std::make_unique<ShardEntries>(std::move(attempt.shards.front()), options);
}

}  // namespace tidemark
