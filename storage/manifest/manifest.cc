#include "storage/manifest/manifest.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "fmt/format.h"
#include "rocksdb/write_batch.h"
#include "storage/manifest/database.h"
#include "storage/manifest/index_keys.h"
#include "storage/manifest/key_iteration.h"
#include "storage/manifest/record_batch.h"

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
    const auto scan = [&](rocksdb::DB& db) -> absl::Status {
      const std::unique_ptr<rocksdb::Iterator> it(db.NewIterator({}));
      for (it->Seek(Slice(first)); IsOn(*it, prefix); it->Next()) {
        absl::StatusOr<bool> more = visit(*it);
        if (!more.ok()) return more.status();
        if (!*more) break;
      }
      return database->Translate(it->status(), "scan");
    };
    return durable ? database->UseDurable(scan) : database->Use(scan);
  }

  // Whether any key begins with `prefix`.
  absl::StatusOr<bool> HasAny(std::string_view prefix, bool durable = false) const {
    bool any = false;
    const auto see = [&](const rocksdb::Iterator&) {
      any = true;
      return false;
    };
    if (absl::Status status = Scan(prefix, see, durable); !status.ok()) return status;
    return any;
  }

  // The record of the highest step that is <= `step` and that `wanted` wants.
  absl::StatusOr<std::optional<StepRecord>> FindBackward(int64_t step,
                                                         absl::FunctionRef<bool(const StepRecord&)> wanted) const {
    std::optional<StepRecord> found;
    absl::Status status = database->Use([&](rocksdb::DB& db) -> absl::Status {
      const std::unique_ptr<rocksdb::Iterator> it(db.NewIterator({}));
      // No further than it must: what is below may be damaged, and is none of the question's.
      for (it->SeekForPrev(StepKey(step)); IsOn(*it, kStepKeyPrefix); it->Prev()) {
        absl::StatusOr<StepRecord> record = RecordAt(*it, path());
        if (!record.ok()) return record.status();
        if (!wanted(*record)) continue;
        found = *std::move(record);
        return absl::OkStatus();
      }
      return database->Translate(it->status(), "scan");
    });
    if (!status.ok()) return status;
    return found;
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
  absl::Status WriteSteps(rocksdb::WriteBatch& batch, std::vector<StepInfo> steps, const PhasesRecord* phases = nullptr)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex) {
    for (const StepInfo& info : steps) last_step = std::max<int64_t>(last_step, info.step);
    PutNotedPhases(batch);
    // Behind what was noted, which may be of an attempt at the same step that is replaced now.
    if (phases != nullptr) PutReadablePhases(batch, *phases);
    absl::Status status = database->Write(batch);
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

  // Reads all committed steps, all as of one moment.
  absl::StatusOr<CommittedSteps> ReadCommitted() const {
    CommittedSteps committed;
    absl::Status status = database->Use([&](rocksdb::DB& db) -> absl::Status {
      // An iterator sees the database as it was when it was made: keys and records belong together.
      const std::unique_ptr<rocksdb::Iterator> it(db.NewIterator({}));
      std::vector<int64_t> steps;
      for (it->Seek(Slice(kCommittedKeyPrefix)); IsOn(*it, kCommittedKeyPrefix); it->Next()) {
        steps.push_back(StepOfCommittedKey(View(it->key())));
      }
      for (const int64_t step : steps) {
        it->Seek(StepKey(step));
        if (!IsOn(*it, StepKey(step))) break;
        absl::StatusOr<StepRecord> record = RecordAt(*it, path());
        if (!record.ok()) return record.status();
        if (record->info.state != StepState::kCommitted) break;
        committed.push_back(std::make_shared<const StepInfo>(std::move(record->info)));
      }
      if (!it->status().ok()) return database->Translate(it->status(), "scan");
      if (committed.size() == steps.size()) return absl::OkStatus();
      return absl::DataLossError(
          fmt::format("manifest {}: the index of committed steps does not agree with step {}'s record", path(),
                      steps[committed.size()]));
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

Manifest::Manifest(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Manifest::~Manifest() = default;

absl::StatusOr<std::unique_ptr<Manifest>> Manifest::Create(FileSystem& files, const std::string& path,
                                                           const StoreId& store) {
  absl::StatusOr<std::unique_ptr<Database>> database = Database::Create(files, path);
  if (!database.ok()) return database.status();
  auto impl = std::make_unique<Impl>(*std::move(database), /*for_writing=*/true);
  impl->store = store;
  impl->last_step = -1;
  rocksdb::WriteBatch batch;
  absl::Status status = PutStore(batch, {.store_id = store, .sequence = 0});
  if (status.ok()) status = impl->database->Write(batch);
  if (!status.ok()) return status;
  return std::unique_ptr<Manifest>(new Manifest(std::move(impl)));
}

absl::StatusOr<std::unique_ptr<Manifest>> Manifest::Open(FileSystem& files, const std::string& path) {
  absl::StatusOr<std::unique_ptr<Database>> database = Database::Open(files, path);
  if (!database.ok()) return database.status();
  auto impl = std::make_unique<Impl>(*std::move(database), /*for_writing=*/true);
  absl::Status status = impl->Load();
  if (status.ok() && impl->version < kStoreRecordVersion) status = impl->Upgrade();
  if (!status.ok()) return status;
  std::unique_ptr<Manifest> manifest(new Manifest(std::move(impl)));
  // Who cannot read it hears of that from somebody who needs it.
  if (auto last = manifest->FindAtOrBelow(std::numeric_limits<int64_t>::max()); last.ok()) {
    manifest->impl_->last_step = last->has_value() ? (*last)->info.step : -1;
  }
  return manifest;
}

absl::StatusOr<std::unique_ptr<Manifest>> Manifest::OpenReadOnly(FileSystem& files, const std::string& path) {
  return Impl::ToRead(Database::OpenReadOnly(files, path));
}

absl::StatusOr<std::unique_ptr<Manifest>> Manifest::OpenFollowing(FileSystem& files, const std::string& path) {
  return Impl::ToRead(Database::OpenFollowing(files, path));
}

absl::StatusOr<bool> Manifest::CatchUp() {
  absl::StatusOr<bool> changed = impl_->database->CatchUp();
  if (!changed.ok()) return changed.status();
  absl::StatusOr<std::optional<StoreRecord>> record = impl_->Get(kStoreKey, DecodeStoreRecord, kStoreKey);
  if (!record.ok()) return record.status();
  if (!record->has_value() || (*record)->store_id != impl_->store) {
    return absl::DataLossError(fmt::format("manifest {}: another store's has taken its place", impl_->path()));
  }
  impl_->last_sequence = (*record)->sequence;
  return *changed;
}

const StoreId& Manifest::store_id() const { return impl_->store; }
uint64_t Manifest::last_sequence() const { return impl_->last_sequence; }
bool Manifest::damage_found() const { return impl_->database->damage_found(); }
const std::string& Manifest::list_as_opened() const { return impl_->database->list_as_opened(); }

absl::StatusOr<std::optional<StepRecord>> Manifest::Find(int64_t step) const {
  if (step > impl_->last_step) return std::nullopt;
  return impl_->Get(StepKey(step), DecodeStepRecord, fmt::format("{}{}", kStepKeyPrefix, step));
}

absl::StatusOr<std::optional<StepRecord>> Manifest::FindToChange(int64_t step) const {
  if (absl::Status status = EnsureDurable(); !status.ok()) return status;
  return Find(step);
}

absl::StatusOr<std::optional<StepRecord>> Manifest::FindAtOrBelow(int64_t step) const {
  return impl_->FindBackward(step, [](const StepRecord&) { return true; });
}

absl::StatusOr<std::optional<StepRecord>> Manifest::FindCommittedAtOrBelow(int64_t step) const {
  return impl_->FindBackward(step, [](const StepRecord& record) { return record.info.state == StepState::kCommitted; });
}

absl::Status Manifest::ForEach(const std::function<bool(StepRecord)>& visit, int64_t first_step) const {
  return impl_->ScanFrom(StepKey(first_step), kStepKeyPrefix, [&](const rocksdb::Iterator& it) -> absl::StatusOr<bool> {
    absl::StatusOr<StepRecord> record = RecordAt(it, impl_->path());
    if (!record.ok()) return record.status();
    return visit(*std::move(record));
  });
}

absl::StatusOr<CommittedSteps> Manifest::Committed() const {
  if (absl::Status status = impl_->CheckCommittedIndexed(); !status.ok()) return status;
  if (!impl_->writable) return impl_->ReadCommitted();
  uint64_t writes_before = 0;
  {
    absl::MutexLock lock(&impl_->write_mutex);
    if (std::optional<CommittedSteps> kept = impl_->kept.Get()) return *std::move(kept);
    writes_before = impl_->kept.writes();
  }
  // Takes long where there are many, and no save waits for it.
  absl::StatusOr<CommittedSteps> committed = impl_->ReadCommitted();
  if (!committed.ok()) return committed;
  absl::MutexLock lock(&impl_->write_mutex);
  impl_->kept.Keep(*committed, writes_before);
  return committed;
}

absl::StatusOr<std::optional<int64_t>> Manifest::LatestCommitted() const {
  if (absl::Status status = impl_->CheckCommittedIndexed(); !status.ok()) return status;
  std::optional<int64_t> latest;
  absl::Status status = impl_->database->Use([&](rocksdb::DB& db) -> absl::Status {
    const std::unique_ptr<rocksdb::Iterator> it(db.NewIterator({}));
    it->SeekForPrev(CommittedKey(std::numeric_limits<int64_t>::max()));
    if (IsOn(*it, kCommittedKeyPrefix)) latest = StepOfCommittedKey(View(it->key()));
    return impl_->database->Translate(it->status(), "scan");
  });
  if (!status.ok()) return status;
  return latest;
}

absl::StatusOr<std::optional<StepRecord>> Manifest::FindBest(std::string_view metric, BestMode mode) const {
  if (absl::Status status = impl_->CheckIndexed(); !status.ok()) return status;
  std::optional<StepRecord> found;
  absl::Status status = impl_->database->Use([&](rocksdb::DB& db) -> absl::Status {
    // An iterator sees the database as it was when it was made: key and record belong together.
    const std::unique_ptr<rocksdb::Iterator> it(db.NewIterator({}));
    SeekBest(*it, metric, mode);
    if (!IsOn(*it, MetricPrefix(metric))) return impl_->database->Translate(it->status(), "scan");
    const std::string key = it->key().ToString();
    const int64_t step = StepOfMetricKey(key);
    it->Seek(StepKey(step));
    if (IsOn(*it, StepKey(step))) {
      absl::StatusOr<StepRecord> record = RecordAt(*it, impl_->path());
      if (!record.ok()) return record.status();
      if (IndexKeys(*record).contains(key)) found = *std::move(record);
    }
    if (!it->status().ok()) return impl_->database->Translate(it->status(), "scan");
    if (found) return absl::OkStatus();
    return absl::DataLossError(fmt::format("manifest {}: the index of metric '{}' does not agree with step {}'s record",
                                           impl_->path(), metric, step));
  });
  if (!status.ok()) return status;
  return found;
}

absl::StatusOr<std::vector<SavePhase>> Manifest::Phases(int64_t step, std::string_view attempt) const {
  auto record = impl_->Get(PhasesKey(step), DecodePhasesRecord, fmt::format("phases/{}", step));
  if (!record.ok()) return record.status();
  if (!record->has_value() || (*record)->attempt != attempt) return std::vector<SavePhase>();
  return std::move((*record)->phases);
}

absl::StatusOr<bool> Manifest::IsReferenced(const AttemptId& attempt) const {
  if (absl::Status status = impl_->CheckIndexed(); !status.ok()) return status;
  return impl_->HasAny(ReferencePrefix(attempt), /*durable=*/true);
}

absl::Status Manifest::VerifyTables() const {
  return impl_->database->Use(
      [&](rocksdb::DB& db) { return impl_->database->Translate(db.VerifyChecksum(), "verify"); });
}

absl::StatusOr<size_t> Manifest::RepairIndices() {
  absl::MutexLock lock(&impl_->write_mutex);
  rocksdb::WriteBatch batch;
  absl::StatusOr<size_t> corrected = impl_->CorrectIndices(batch);
  if (!corrected.ok() || *corrected == 0) return corrected;
  impl_->kept.Forget();  // it may have been read without a step whose key was missing
  if (absl::Status status = impl_->database->Write(batch); !status.ok()) return status;
  return corrected;
}

void Manifest::NotePhases(PhasesRecord phases) {
  absl::MutexLock lock(&impl_->noted_mutex);
  impl_->noted_phases = std::move(phases);
}

absl::StatusOr<std::optional<DeletionRecord>> Manifest::Commit(const StepRecord& record, const PhasesRecord* phases) {
  absl::MutexLock lock(&impl_->write_mutex);
  absl::StatusOr<std::optional<StepRecord>> old = FindToChange(record.info.step);
  if (!old.ok()) return old.status();
  rocksdb::WriteBatch batch;
  absl::StatusOr<StepInfo> info = PutStep(batch, *old, record);
  if (!info.ok()) return info.status();
  // Never back: an attempt that is adopted may be older than the last one, whose number must not be given again.
  const uint64_t sequence = std::max<uint64_t>(impl_->last_sequence, record.info.sequence);
  absl::Status status = PutStore(batch, {.store_id = impl_->store, .sequence = sequence});
  std::optional<DeletionRecord> replaced;
  if (old->has_value() && (*old)->info.attempt != record.info.attempt) {
    replaced = DeletionOf(**old);
    if (replaced && status.ok()) status = PutDeletion(batch, *replaced);
  }
  if (status.ok()) status = impl_->WriteSteps(batch, {*std::move(info)}, phases);
  if (!status.ok()) return status;
  impl_->last_sequence = sequence;
  return replaced;
}

absl::Status Manifest::Update(const StepRecord& record) { return Update({&record, 1}, {}); }

absl::Status Manifest::Update(std::span<const StepRecord> records, std::span<const DeletionRecord> deletions) {
  absl::MutexLock lock(&impl_->write_mutex);
  rocksdb::WriteBatch batch;
  std::vector<StepInfo> changed;
  for (const StepRecord& record : records) {
    absl::StatusOr<std::optional<StepRecord>> old = FindToChange(record.info.step);
    if (!old.ok()) return old.status();
    absl::StatusOr<StepInfo> info = PutStep(batch, *old, record);
    if (!info.ok()) return info.status();
    changed.push_back(*std::move(info));
  }
  for (const DeletionRecord& deletion : deletions) {
    if (absl::Status status = PutDeletion(batch, deletion); !status.ok()) return status;
  }
  return impl_->WriteSteps(batch, std::move(changed));
}

absl::StatusOr<std::vector<DeletionRecord>> Manifest::Deletions() const {
  std::vector<DeletionRecord> deletions;
  const auto decode = [&](const rocksdb::Iterator& it) -> absl::StatusOr<bool> {
    absl::StatusOr<DeletionRecord> record = DecodeDeletionRecord(View(it.value()));
    if (!record.ok()) return Located(record.status(), impl_->path(), View(it.key()));
    deletions.push_back(*record);
    return true;
  };
  if (absl::Status status = impl_->Scan(kDeletionKeyPrefix, decode, /*durable=*/true); !status.ok()) return status;
  return deletions;
}

absl::Status Manifest::EnsureDurable() const {
  return impl_->database->UseDurable([](rocksdb::DB&) { return absl::OkStatus(); });
}

absl::StatusOr<bool> Manifest::HasDeletions() const { return impl_->HasAny(kDeletionKeyPrefix); }

absl::Status Manifest::FinishDeletions(std::span<const AttemptId> attempts) {
  rocksdb::WriteBatch batch;
  for (const AttemptId& attempt : attempts) batch.Delete(DeletionKey(attempt));
  return impl_->database->Write(batch);
}

absl::StatusOr<std::optional<SettledMark>> Manifest::Settled() const {
  return impl_->Get(kSettledKey, DecodeSettledMark, kSettledKey);
}

absl::Status Manifest::SetSettledMark(const DirectoryStamp& steps) {
  rocksdb::WriteBatch batch;
  impl_->PutNotedPhases(batch);
  const SettledMark mark{.steps = steps, .files = impl_->database->SettleList(), .tags = true};
  const absl::Status status = PutSettled(batch, mark);
  return status.ok() ? impl_->database->Write(batch) : status;
}

absl::Status Manifest::RemoveSettledMark() {
  rocksdb::WriteBatch batch;
  batch.Delete(Slice(kSettledKey));
  return impl_->database->Write(batch);
}

}  // namespace tidemark::storage
