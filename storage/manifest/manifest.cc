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
#include "storage/manifest/manifest_impl.h"
#include "storage/manifest/record_batch.h"

namespace tidemark::storage {

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
    return absl::DataLossError(
        fmt::format("manifest {}: it was replaced by the manifest of another store", impl_->path()));
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
  std::optional<StepRecord> found;
  absl::Status status = impl_->Look([&](rocksdb::Iterator& it) -> absl::Status {
    it.SeekForPrev(StepKey(step));
    if (!IsOn(it, kStepKeyPrefix)) return absl::OkStatus();
    absl::StatusOr<StepRecord> record = RecordAt(it, impl_->path());
    if (record.ok()) found = *std::move(record);
    return record.status();
  });
  if (!status.ok()) return status;
  return found;
}

absl::StatusOr<std::optional<StepRecord>> Manifest::FindCommittedAtOrBelow(int64_t step) const {
  if (absl::Status status = impl_->CheckCommittedIndexed(); !status.ok()) return status;
  std::optional<StepRecord> found;
  absl::Status status = impl_->Look([&](rocksdb::Iterator& it) -> absl::Status {
    it.SeekForPrev(CommittedKey(step));
    if (!IsOn(it, kCommittedKeyPrefix)) return absl::OkStatus();
    const int64_t committed = StepOfCommittedKey(View(it.key()));
    it.Seek(StepKey(committed));
    if (IsOn(it, StepKey(committed))) {
      absl::StatusOr<StepRecord> record = RecordAt(it, impl_->path());
      if (!record.ok()) return record.status();
      if (record->info.state == StepState::kCommitted) found = *std::move(record);
    }
    return found ? absl::OkStatus() : impl_->DisagreeingIndex("committed steps", committed);
  });
  if (!status.ok()) return status;
  return found;
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
  absl::Status status = impl_->Look([&](rocksdb::Iterator& it) -> absl::Status {
    it.SeekForPrev(CommittedKey(std::numeric_limits<int64_t>::max()));
    if (IsOn(it, kCommittedKeyPrefix)) latest = StepOfCommittedKey(View(it.key()));
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return latest;
}

absl::StatusOr<std::optional<StepRecord>> Manifest::FindBest(std::string_view metric, BestMode mode) const {
  if (absl::Status status = impl_->CheckIndexed(); !status.ok()) return status;
  std::optional<StepRecord> found;
  absl::Status status = impl_->Look([&](rocksdb::Iterator& it) -> absl::Status {
    SeekBest(it, metric, mode);
    if (!IsOn(it, MetricPrefix(metric))) return absl::OkStatus();
    const std::string key = it.key().ToString();
    const int64_t step = StepOfMetricKey(key);
    it.Seek(StepKey(step));
    if (IsOn(it, StepKey(step))) {
      absl::StatusOr<StepRecord> record = RecordAt(it, impl_->path());
      if (!record.ok()) return record.status();
      if (IndexKeys(*record).contains(key)) found = *std::move(record);
    }
    return found ? absl::OkStatus() : impl_->DisagreeingIndex(fmt::format("metric '{}'", metric), step);
  });
  if (!status.ok()) return status;
  return found;
}

absl::StatusOr<BestModes> Manifest::RecordedBestModes() const {
  auto record = impl_->Get(kBestModesKey, DecodeBestModes, kBestModesKey);
  if (!record.ok()) return record.status();
  return record->value_or(BestModes());
}

absl::StatusOr<BestModes> Manifest::AddBestModes(const BestModes& modes) {
  absl::MutexLock lock(&impl_->write_mutex);
  const absl::StatusOr<BestModes> recorded = RecordedBestModes();
  if (!recorded.ok()) return recorded.status();
  BestModes all = modes;
  all.insert(recorded->begin(), recorded->end());
  if (all == *recorded) return all;
  rocksdb::WriteBatch batch;
  if (absl::Status status = PutBestModes(batch, all); !status.ok()) return status;
  if (absl::Status status = impl_->database->Write(batch); !status.ok()) return status;
  return all;
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
