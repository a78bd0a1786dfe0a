// Manifest::Impl: reads and writes of the manifest's keys. A header only so that manifest.cc stays readable; it alone
// includes it.

#ifndef TIDEMARK_STORAGE_MANIFEST_MANIFEST_IMPL_H_
#define TIDEMARK_STORAGE_MANIFEST_MANIFEST_IMPL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
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
#include "storage/manifest/database.h"
#include "storage/manifest/index_keys.h"
#include "storage/manifest/key_iteration.h"
#include "storage/manifest/manifest.h"
#include "storage/manifest/record_batch.h"
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

  // Calls `visit` for every key that begins with `prefix`, in order, until it returns false or fails. `durable`: see
  // Database::UseDurable.
  absl::Status Scan(std::string_view prefix, absl::FunctionRef<absl::StatusOr<bool>(const rocksdb::Iterator&)> visit,
                    bool durable = false) const {
    return ScanFrom(prefix, prefix, visit, durable);
  }

  // The same from the key `first` on.
  absl::Status ScanFrom(std::string_view first, std::string_view prefix,
                        absl::FunctionRef<absl::StatusOr<bool>(const rocksdb::Iterator&)> visit,
                        bool durable = false) const {
    const auto scan = [&](rocksdb::Iterator& it) -> absl::Status {
      for (it.Seek(Slice(first)); IsOn(it, prefix); it.Next()) {
        if (absl::StatusOr<bool> more = visit(it); !more.ok() || !*more) return more.status();
      }
      return absl::OkStatus();
    };
    return Look(scan, durable);
  }

  // Calls `look` with an iterator, which sees the database as it was when it was made: keys of indices and records
  // belong together. `durable`: see Database::UseDurable.
  absl::Status Look(absl::FunctionRef<absl::Status(rocksdb::Iterator&)> look, bool durable = false) const {
    const auto use = [&](rocksdb::DB& db) -> absl::Status {
      const std::unique_ptr<rocksdb::Iterator> it(db.NewIterator({}));
      absl::Status status = look(*it);
      return it->status().ok() ? status : database->Translate(it->status(), "scan");
    };
    return durable ? database->UseDurable(use) : database->Use(use);
  }

  // Whether any key begins with `prefix`.
  absl::StatusOr<bool> HasAny(std::string_view prefix, bool durable = false) const {
    bool any = false;
    const auto see = [&](const rocksdb::Iterator&) { return !(any = true); };
    if (absl::Status status = Scan(prefix, see, durable); !status.ok()) return status;
    return any;
  }

  static absl::StatusOr<std::unique_ptr<Manifest>> ToRead(absl::StatusOr<std::unique_ptr<Database>> database) {
    if (!database.ok()) return database.status();
    auto impl = std::make_unique<Impl>(*std::move(database), /*for_writing=*/false);
    if (absl::Status status = impl->Load(); !status.ok()) return status;
    return std::unique_ptr<Manifest>(new Manifest(std::move(impl)));
  }

  // Reads the store's record. kNotFound: its maker has not come to write it yet, or never will.
  absl::Status Load() {
    absl::StatusOr<std::optional<StoreRecord>> record = Get(kStoreKey, DecodeStoreRecord, kStoreKey);
    if (!record.ok()) return record.status();
    if (!record->has_value()) {
      return absl::NotFoundError(fmt::format("manifest {}: it has no record of its store yet", path()));
    }
    store = (*record)->store_id;
    last_sequence = (*record)->sequence;
    version = (*record)->version;
    return absl::OkStatus();
  }

  bool indexed() const { return StoreRecord{.version = version}.indexed(); }

  // Before a question that the indices answer.
  absl::Status CheckIndexed() const {
    if (indexed()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        fmt::format("manifest {} has no indices yet; it gets them when it is opened for writing", path()));
  }

  // Before a question that the index of committed steps answers.
  absl::Status CheckCommittedIndexed() const {
    if (StoreRecord{.version = version}.committed_indexed()) return absl::OkStatus();
    return absl::FailedPreconditionError(fmt::format(
        "manifest {} has no index of committed steps yet; it gets one when it is opened for writing", path()));
  }

  // Makes an older manifest one of this version, all in one batch: it gets the indices that it lacks. Only while
  // opening.
  absl::Status Upgrade() {
    rocksdb::WriteBatch batch;
    absl::Status status = CorrectIndices(batch).status();
    if (status.ok()) status = PutStore(batch, {.store_id = store, .sequence = last_sequence});
    if (status.ok()) status = database->Write(batch);
    if (status.ok()) version = kStoreRecordVersion;
    return status;
  }

  // What makes the indices agree with the records: how many keys are missing or in the wrong place.
  absl::StatusOr<size_t> CorrectIndices(rocksdb::WriteBatch& batch) const {
    std::set<std::string> missing;
    absl::Status status = Scan(kStepKeyPrefix, [&](const rocksdb::Iterator& it) -> absl::StatusOr<bool> {
      absl::StatusOr<StepRecord> record = RecordAt(it, path());
      if (!record.ok()) return record.status();
      missing.merge(IndexKeys(*record));
      return true;
    });
    size_t corrected = 0;
    for (const std::string_view prefix : kIndexPrefixes) {
      if (!status.ok()) return status;
      status = Scan(prefix, [&](const rocksdb::Iterator& it) {
        if (missing.erase(it.key().ToString()) == 0) {
          batch.Delete(it.key());
          ++corrected;
        }
        return true;
      });
    }
    if (!status.ok()) return status;
    for (const std::string& key : missing) batch.Put(key, "");
    return corrected + missing.size();
  }

  // Writes a batch with these steps. Every batch with steps in it goes this way.
  absl::Status WriteSteps(rocksdb::WriteBatch& batch, std::vector<StepInfo> steps, const PhasesRecord* phases = nullptr,
                          Database::Sync sync = Database::Sync::kYes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex) {
    for (const StepInfo& info : steps) last_step = std::max<int64_t>(last_step, info.step);
    PutNotedPhases(batch);
    // Behind what was noted, which may be of an attempt at the same step that is replaced now.
    if (phases != nullptr) PutReadablePhases(batch, *phases);
    absl::Status status = database->Write(batch, sync);
    kept.Wrote(status, std::move(steps));
    return status;
  }

  void PutNotedPhases(rocksdb::WriteBatch& batch) {
    absl::MutexLock lock(&noted_mutex);
    if (noted_phases) PutReadablePhases(batch, *noted_phases);
    noted_phases.reset();
  }

  // Those that could not be read are left out: they may be missing, and nothing waits for them.
  static void PutReadablePhases(rocksdb::WriteBatch& batch, const PhasesRecord& phases) {
    PutPhases(batch, phases).IgnoreError();
  }

  absl::Status DisagreeingIndex(std::string_view index, int64_t step) const {
    return absl::DataLossError(
        fmt::format("manifest {}: the index of {} does not agree with step {}'s record", path(), index, step));
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
  int version = kStoreRecordVersion;  // lower only where an old manifest was opened to read

  std::atomic<uint64_t> last_sequence{0};

  // No step above it has a record; records are never removed. Not known where others write the manifest.
  std::atomic<int64_t> last_step{std::numeric_limits<int64_t>::max()};

  // Held by who changes a record, from reading the old one to the end of the write: the index keys to be removed are
  // those of the record that is replaced.
  absl::Mutex write_mutex;

  KeptSteps kept ABSL_GUARDED_BY(write_mutex);  // nothing where nothing is written

  absl::Mutex noted_mutex;  // held for no write
  std::optional<PhasesRecord> noted_phases ABSL_GUARDED_BY(noted_mutex);
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_MANIFEST_MANIFEST_IMPL_H_
