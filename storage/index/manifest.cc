#include "storage/index/manifest.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "fmt/format.h"
#include "rocksdb/write_batch.h"
#include "storage/index/database.h"
#include "storage/index/index_keys.h"
#include "storage/index/key_iteration.h"
#include "storage/index/manifest_impl.h"
#include "storage/index/record_batch.h"

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
  if (absl::Status status = impl->Load(); !status.ok()) return status;
  if (impl->version < kStoreRecordVersion) {
    return absl::DataLossError(fmt::format("database {}: it is of version {}", path, impl->version));
  }
  std::unique_ptr<Manifest> manifest(new Manifest(std::move(impl)));
  const absl::StatusOr<std::optional<StepRecord>> last = manifest->FindAtOrBelow(std::numeric_limits<int64_t>::max());
  if (!last.ok()) return last.status();
  manifest->impl_->last_step = last->has_value() ? (*last)->info.step : -1;
  return manifest;
}

absl::StatusOr<std::unique_ptr<Manifest>> Manifest::OpenReadOnly(FileSystem& files, const std::string& path) {
  absl::StatusOr<std::unique_ptr<Database>> database = Database::OpenReadOnly(files, path);
  if (!database.ok()) return database.status();
  auto impl = std::make_unique<Impl>(*std::move(database), /*for_writing=*/false);
  if (absl::Status status = impl->Load(); !status.ok()) {
    // The record may stand behind the damage.
    return absl::IsNotFound(status) && !impl->database->log_damage().ok() ? impl->database->log_damage() : status;
  }
  return std::unique_ptr<Manifest>(new Manifest(std::move(impl)));
}

const StoreId& Manifest::store_id() const { return impl_->store; }
uint64_t Manifest::last_sequence() const { return impl_->last_sequence; }
const absl::Status& Manifest::log_damage() const { return impl_->database->log_damage(); }
absl::Status Manifest::failure() const { return impl_->database->failure(); }

absl::Status Manifest::VerifyTables() const {
  return impl_->database->Use(
      [&](rocksdb::DB& db) { return impl_->database->Translate(db.VerifyChecksum(), "verify"); });
}

absl::StatusOr<std::optional<StepRecord>> Manifest::Find(int64_t step) const {
  if (step > impl_->last_step) return std::nullopt;
  return impl_->Get(StepKey(step), DecodeStepValue, fmt::format("{}{}", kStepKeyPrefix, step));
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

absl::StatusOr<std::vector<SavePhase>> Manifest::Phases(int64_t step, std::string_view attempt) const {
  auto record = impl_->Get(PhasesKey(step), DecodePhasesRecord, fmt::format("phases/{}", step));
  if (!record.ok()) return record.status();
  if (!record->has_value() || (*record)->attempt != attempt) return std::vector<SavePhase>();
  return std::move((*record)->phases);
}

absl::StatusOr<bool> Manifest::IsReferenced(const AttemptId& attempt) const {
  bool any = false;
  const auto see = [&](const rocksdb::Iterator&) { return !(any = true); };
  if (absl::Status status = impl_->Scan(ReferencePrefix(attempt), see); !status.ok()) return status;
  return any;
}

absl::StatusOr<std::vector<DeletionRecord>> Manifest::Deletions() const {
  std::vector<DeletionRecord> deletions;
  absl::Status status = impl_->Scan(kDeletionKeyPrefix, [&](const rocksdb::Iterator& it) -> absl::StatusOr<bool> {
    absl::StatusOr<DeletionRecord> record = DecodeDeletionRecord(View(it.value()));
    if (!record.ok()) return Located(record.status(), impl_->path(), View(it.key()));
    deletions.push_back(*record);
    return true;
  });
  if (!status.ok()) return status;
  return deletions;
}

absl::StatusOr<std::vector<DeletionRequestFact>> Manifest::Requests() const {
  std::vector<DeletionRequestFact> requests;
  absl::Status status = impl_->Scan(kRequestKeyPrefix, [&](const rocksdb::Iterator& it) -> absl::StatusOr<bool> {
    absl::StatusOr<Fact> fact = DecodeFact(View(it.value()));
    if (!fact.ok()) return Located(fact.status(), impl_->path(), View(it.key()));
    auto* request = std::get_if<DeletionRequestFact>(&*fact);
    if (request == nullptr) {
      return absl::DataLossError(fmt::format("database {}: another fact is under a request's key", impl_->path()));
    }
    requests.push_back(std::move(*request));
    return true;
  });
  if (!status.ok()) return status;
  SortRequests(requests);
  return requests;
}

}  // namespace tidemark::storage
