// Manifest::Impl: reads and writes of the manifest's keys. A header only so that manifest.cc stays readable; it and
// manifest_apply.cc include it.

#ifndef TIDEMARK_STORAGE_INDEX_MANIFEST_IMPL_H_
#define TIDEMARK_STORAGE_INDEX_MANIFEST_IMPL_H_

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "fmt/format.h"
#include "rocksdb/db.h"
#include "rocksdb/write_batch.h"
#include "storage/index/database.h"
#include "storage/index/index_keys.h"
#include "storage/index/key_iteration.h"
#include "storage/index/manifest.h"
#include "storage/index/record_batch.h"
#include "storage/records/kept_steps.h"

namespace tidemark::storage {

struct Manifest::Impl {
  Impl(std::unique_ptr<Database> opened, bool for_writing) : database(std::move(opened)), writable(for_writing) {}

  const std::string& path() const { return database->path(); }

  // The record of a key, which errors call `name`; nullopt if there is none. Decodes it inside Use, so that the
  // database knows of damage that only shows there.
  template <typename Record>
  absl::StatusOr<std::optional<Record>> Get(std::string_view key, absl::StatusOr<Record> (*decode)(std::string_view),
                                            std::string_view name) const {
    std::optional<Record> found;
    absl::Status status = database->Use([&](rocksdb::DB& db) -> absl::Status {
      std::string value;
      const rocksdb::Status got = db.Get({}, Slice(key), &value);
      if (got.IsNotFound()) return absl::OkStatus();
      if (!got.ok()) return database->Translate(got, "read");
      absl::StatusOr<Record> record = decode(value);
      if (!record.ok()) return Located(record.status(), path(), name);
      found = *std::move(record);
      return absl::OkStatus();
    });
    if (!status.ok()) return status;
    return found;
  }

  // Calls `visit` for every key from `first` on that begins with `prefix`, in order, until it returns false or fails.
  absl::Status ScanFrom(std::string_view first, std::string_view prefix,
                        absl::FunctionRef<absl::StatusOr<bool>(const rocksdb::Iterator&)> visit) const {
    return Look([&](rocksdb::Iterator& it) -> absl::Status {
      for (it.Seek(Slice(first)); IsOn(it, prefix); it.Next()) {
        if (absl::StatusOr<bool> more = visit(it); !more.ok() || !*more) return more.status();
      }
      return absl::OkStatus();
    });
  }
  absl::Status Scan(std::string_view prefix,
                    absl::FunctionRef<absl::StatusOr<bool>(const rocksdb::Iterator&)> visit) const {
    return ScanFrom(prefix, prefix, visit);
  }

  // Calls `look` with an iterator, which sees the database as it was when it was made: keys of indices and records
  // belong together.
  absl::Status Look(absl::FunctionRef<absl::Status(rocksdb::Iterator&)> look) const {
    return database->Use([&](rocksdb::DB& db) -> absl::Status {
      const std::unique_ptr<rocksdb::Iterator> it(db.NewIterator({}));
      absl::Status status = look(*it);
      return it->status().ok() ? status : database->Translate(it->status(), "scan");
    });
  }

  // Reads the store's record. kNotFound: its maker has not come to write it yet, or never will.
  absl::Status Load() {
    absl::StatusOr<std::optional<StoreRecord>> record = Get(kStoreKey, DecodeStoreRecord, kStoreKey);
    if (!record.ok()) return record.status();
    if (!record->has_value()) {
      return absl::NotFoundError(fmt::format("database {}: it has no record of its store yet", path()));
    }
    store = (*record)->store_id;
    last_sequence = (*record)->sequence;
    version = (*record)->version;
    return absl::OkStatus();
  }

  absl::Status DisagreeingIndex(std::string_view index, int64_t step) const {
    return absl::DataLossError(
        fmt::format("database {}: the index of {} does not agree with step {}'s record", path(), index, step));
  }

  // Reads all committed steps, all as of one moment.
  absl::StatusOr<CommittedSteps> ReadCommitted() const {
    CommittedSteps committed;
    absl::Status status = Look([&](rocksdb::Iterator& it) -> absl::Status {
      std::vector<int64_t> steps;
      for (it.Seek(Slice(kCommittedKeyPrefix)); IsOn(it, kCommittedKeyPrefix); it.Next()) {
        steps.push_back(StepOfCommittedKey(View(it.key())));
      }
      for (const int64_t step : steps) {
        it.Seek(StepKey(step));
        if (!IsOn(it, StepKey(step))) break;
        absl::StatusOr<StepRecord> record = RecordAt(it, path());
        if (!record.ok()) return record.status();
        if (record->info.state != StepState::kCommitted) break;
        committed.push_back(KeptStep(std::move(record->info)));
      }
      if (committed.size() == steps.size()) return absl::OkStatus();
      return DisagreeingIndex("committed steps", steps[committed.size()]);
    });
    if (!status.ok()) return status;
    return committed;
  }

  const std::unique_ptr<Database> database;
  const bool writable;

  // Constant once opened.
  StoreId store;
  int version = kStoreRecordVersion;

  std::atomic<uint64_t> last_sequence{0};

  // No step above it has a record; records are never removed. Not known where others write the manifest.
  std::atomic<int64_t> last_step{std::numeric_limits<int64_t>::max()};

  // Held from reading the records that facts change to the end of the write.
  absl::Mutex write_mutex;

  KeptSteps kept ABSL_GUARDED_BY(write_mutex);  // nothing where nothing is written
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_INDEX_MANIFEST_IMPL_H_
