// StoreReader::Impl: the records of a store that is read, where they come from, and the files that they name.

#ifndef TIDEMARK_SNAPSHOT_RESTORE_STORE_READER_IMPL_H_
#define TIDEMARK_SNAPSHOT_RESTORE_STORE_READER_IMPL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/io/held_names.h"
#include "storage/records/best_modes.h"
#include "storage/records/manifest_records.h"
#include "storage/shard/read/shard_reader.h"
#include "storage/store/attempt_reader.h"
#include "storage/store/store_journal.h"
#include "storage/store/store_layout.h"
#include "tidemark/store_reader.h"

namespace tidemark {

// A part of an entry's bytes.
struct EntryWindow {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// Thread-compatible, as StoreReader is.
struct StoreReader::Impl {
  // The steps' records, ascending by step, in two parts. steps() returns the first part without a copy, so a hundred
  // thousand steps are in memory once.
  struct Records {
    // What a record says of the files that the step needs.
    struct Files {
      storage::ShardsDigest shards;
      std::vector<storage::FileReference> references;
    };

    void Add(storage::StepRecord record) {
      steps.push_back(std::move(record.info));
      files.push_back({record.shards, std::move(record.references)});
    }

    // Where the step is; nullopt: it is not.
    std::optional<size_t> Find(int64_t step) const {
      const auto found = std::lower_bound(steps.begin(), steps.end(), step,
                                          [](const StepInfo& info, int64_t number) { return info.step < number; });
      if (found == steps.end() || found->step != step) return std::nullopt;
      return static_cast<size_t>(found - steps.begin());
    }

    std::vector<StepInfo> steps;
    std::vector<Files> files;
  };

  Impl(const std::string& directory, bool trusted);

  // Brings the records up to date: from the journal, or, where that cannot be read, from the shards. kUnimplemented: a
  // newer version wrote the journal. kFailedPrecondition: the store is of the first format.
  absl::Status Load();

  // A step's record. kNotFound: there is none, or the step has no files, because it was deleted or never saved.
  absl::StatusOr<storage::StepRecord> FindSaved(int64_t step) const;
  storage::StepRecord RecordAt(size_t place) const;
  absl::Status NoStep(int64_t step) const;  // the error: there is none

  absl::StatusOr<storage::Attempt> OpenStep(int64_t step) const;
  absl::StatusOr<std::vector<std::byte>> ReadEntry(int64_t step, std::string_view name,
                                                   std::optional<EntryWindow> window) const;

  // The parts of Load.
  absl::Status LoadJournal();
  absl::Status ReadRecords();
  absl::Status CheckFormat() const;
  absl::Status LoadShards();

  const storage::StoreLayout layout;
  const std::shared_ptr<storage::FileSystem> files_owner;
  storage::FileSystem& files = *files_owner;
  storage::HeldNames names{files, "the store " + layout.directory()};
  const bool trusted;
  const storage::ShardReadOptions read;
  storage::StoreId store;
  std::string store_id;
  std::unique_ptr<storage::StoreJournal> journal;  // that `records` are of; null: they are of the shards
  absl::Status journal_problem;
  Records records;
  std::vector<std::string> unread;
  storage::BestModes best_modes;  // of the journal
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_RESTORE_STORE_READER_IMPL_H_
