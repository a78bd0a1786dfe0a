#include "storage/manifest/manifest.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "fmt/format.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/options.h"
#include "rocksdb/write_batch.h"

namespace tidemark::storage {
namespace {

absl::Status FromRocks(const rocksdb::Status& status, std::string_view operation, const std::string& path) {
  if (status.ok()) return absl::OkStatus();
  absl::StatusCode code = absl::StatusCode::kInternal;
  if (status.IsNotFound() || status.IsPathNotFound()) code = absl::StatusCode::kNotFound;
  if (status.IsCorruption()) code = absl::StatusCode::kDataLoss;
  if (status.IsNoSpace() || status.IsMemoryLimit()) code = absl::StatusCode::kResourceExhausted;
  if (status.IsBusy() || status.IsTryAgain()) code = absl::StatusCode::kUnavailable;
  if (status.IsNotSupported()) code = absl::StatusCode::kUnimplemented;
  // RocksDB has codes of its own for few of the system's errors; for the others there is only the system's text.
  const std::string text = status.ToString();
  if (status.IsIOError() &&
      (text.ends_with(strerror(EACCES)) || text.ends_with(strerror(EPERM)) || text.ends_with(strerror(EROFS)))) {
    code = absl::StatusCode::kPermissionDenied;
  }
  return absl::Status(code, fmt::format("{} manifest {}: {}", operation, path, text));
}

// A reader must leave no trace in the store, and RocksDB writes its log beside the data unless it is given another
// place.
class NullLogger final : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char*, va_list) override {}
};

rocksdb::Options MakeOptions() {
  rocksdb::Options options;
  // Records are small and few: memory and background work are kept to what a guest in a training process may take.
  options.write_buffer_size = 4 << 20;
  options.max_background_jobs = 1;
  options.compression = rocksdb::kNoCompression;
  options.keep_log_file_num = 2;
  options.max_log_file_size = 1 << 20;
  options.info_log_level = rocksdb::WARN_LEVEL;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  return options;
}

rocksdb::WriteOptions Synced() {
  rocksdb::WriteOptions options;
  options.sync = true;
  return options;
}

std::string_view View(const rocksdb::Slice& slice) { return {slice.data(), slice.size()}; }

rocksdb::Slice Slice(std::string_view text) { return {text.data(), text.size()}; }

// Names the record that could not be read.
absl::Status Located(const absl::Status& status, const std::string& path, std::string_view key) {
  return absl::Status(status.code(),
                      fmt::format("manifest {}, key '{}': {}", path, key, std::string(status.message())));
}

}  // namespace

struct Manifest::Impl {
  Impl(std::string database_path, bool reads_only) : path(std::move(database_path)), read_only(reads_only) {}

  // Reads the store's record into `store` and `last_sequence`.
  absl::Status Load() ABSL_LOCKS_EXCLUDED(mutex) {
    absl::MutexLock lock(&mutex);
    std::string value;
    const rocksdb::Status status = db->Get({}, Slice(kStoreKey), &value);
    if (status.IsNotFound()) {
      return absl::DataLossError(fmt::format("manifest {}: it has no record of its store", path));
    }
    if (!status.ok()) return FromRocks(status, "read", path);
    absl::StatusOr<StoreRecord> record = DecodeStoreRecord(value);
    if (!record.ok()) return Located(record.status(), path, kStoreKey);
    store = record->store_id;
    last_sequence = record->sequence;
    return absl::OkStatus();
  }

  absl::Status Write(rocksdb::WriteBatch& batch) ABSL_LOCKS_EXCLUDED(mutex) {
    absl::MutexLock lock(&mutex);
    if (broken) db.reset();
    if (absl::Status status = EnsureOpen(); !status.ok()) return status;
    const rocksdb::Status status = db->Write(Synced(), &batch);
    broken = !status.ok() && !read_only;
    return FromRocks(status, "write", path);
  }

  // Opens the database anew where a failed write has closed it; it stays closed if that fails. Reads need no more than
  // this: after a failed write they go on with what was there before it.
  absl::Status EnsureOpen() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (db != nullptr) return absl::OkStatus();
    rocksdb::DB* reopened = nullptr;
    if (const rocksdb::Status status = rocksdb::DB::Open(MakeOptions(), path, &reopened); !status.ok()) {
      return FromRocks(status, "reopen", path);
    }
    db.reset(reopened);
    broken = false;
    return absl::OkStatus();
  }

  const std::string path;
  const bool read_only;  // never opened anew, and never null
  StoreId store;         // constant once loaded
  std::atomic<uint64_t> last_sequence{0};

  absl::Mutex mutex;
  std::unique_ptr<rocksdb::DB> db ABSL_GUARDED_BY(mutex);
  bool broken ABSL_GUARDED_BY(mutex) = false;  // a write failed: RocksDB refuses more until it is opened anew
};

namespace {

// The record at an iterator that stands on a step's key.
absl::StatusOr<StepRecord> RecordAt(const rocksdb::Iterator& it, const std::string& path) {
  absl::StatusOr<StepRecord> record = DecodeStepRecord(View(it.value()));
  if (!record.ok()) return Located(record.status(), path, "step/...");
  if (StepKey(record->info.step) != View(it.key())) {
    return absl::DataLossError(
        fmt::format("manifest {}: a record of step {} is under another key", path, record->info.step));
  }
  return record;
}

bool IsOnStep(const rocksdb::Iterator& it) { return it.Valid() && it.key().starts_with(Slice(kStepKeyPrefix)); }

}  // namespace

Manifest::Manifest(const std::string& path, bool read_only) : impl_(std::make_unique<Impl>(path, read_only)) {}
Manifest::~Manifest() = default;

absl::StatusOr<std::unique_ptr<Manifest>> Manifest::Create(const std::string& path, const StoreId& store) {
  rocksdb::Options options = MakeOptions();
  options.create_if_missing = true;
  options.error_if_exists = true;
  rocksdb::DB* db = nullptr;
  const rocksdb::Status opened = rocksdb::DB::Open(options, path, &db);
  // error_if_exists is reported as an invalid argument, like many other things: the text tells them apart.
  if (opened.IsInvalidArgument() && opened.ToString().find("exists") != std::string::npos) {
    return absl::AlreadyExistsError(fmt::format("create manifest {}: there is one already", path));
  }
  if (!opened.ok()) return FromRocks(opened, "create", path);
  std::unique_ptr<Manifest> manifest = Adopt(path, db, /*read_only=*/false);
  manifest->impl_->store = store;
  rocksdb::WriteBatch batch;
  batch.Put(Slice(kStoreKey), EncodeStoreRecord({.store_id = store, .sequence = 0}));
  if (absl::Status status = manifest->impl_->Write(batch); !status.ok()) return status;
  return manifest;
}

std::unique_ptr<Manifest> Manifest::Adopt(const std::string& path, rocksdb::DB* db, bool read_only) {
  std::unique_ptr<Manifest> manifest(new Manifest(path, read_only));
  absl::MutexLock lock(&manifest->impl_->mutex);
  manifest->impl_->db.reset(db);
  return manifest;
}

absl::StatusOr<std::unique_ptr<Manifest>> Manifest::Open(const std::string& path) {
  rocksdb::DB* db = nullptr;
  const rocksdb::Status opened = rocksdb::DB::Open(MakeOptions(), path, &db);
  if (opened.IsInvalidArgument() && opened.ToString().find("does not exist") != std::string::npos) {
    return absl::NotFoundError(fmt::format("open manifest {}: there is none", path));
  }
  if (!opened.ok()) return FromRocks(opened, "open", path);
  std::unique_ptr<Manifest> manifest = Adopt(path, db, /*read_only=*/false);
  if (absl::Status status = manifest->impl_->Load(); !status.ok()) return status;
  return manifest;
}

absl::StatusOr<std::unique_ptr<Manifest>> Manifest::OpenReadOnly(const std::string& path) {
  rocksdb::Options options = MakeOptions();
  options.info_log = std::make_shared<NullLogger>();
  // The writer may drop a file between our reading its list and our opening it; then the list has changed and is read
  // again.
  constexpr int kTries = 10;
  rocksdb::Status opened;
  for (int i = 0; i < kTries; ++i) {
    rocksdb::DB* db = nullptr;
    opened = rocksdb::DB::OpenForReadOnly(options, path, &db);
    if (!opened.ok()) continue;
    std::unique_ptr<Manifest> manifest = Adopt(path, db, /*read_only=*/true);
    if (absl::Status status = manifest->impl_->Load(); !status.ok()) return status;
    return manifest;
  }
  return FromRocks(opened, "open", path);
}

const StoreId& Manifest::store_id() const { return impl_->store; }

uint64_t Manifest::last_sequence() const { return impl_->last_sequence; }

absl::StatusOr<std::optional<StepRecord>> Manifest::Find(int64_t step) const {
  absl::MutexLock lock(&impl_->mutex);
  if (absl::Status status = impl_->EnsureOpen(); !status.ok()) return status;
  std::string value;
  const rocksdb::Status status = impl_->db->Get({}, StepKey(step), &value);
  if (status.IsNotFound()) return std::nullopt;
  if (!status.ok()) return FromRocks(status, "read", impl_->path);
  absl::StatusOr<StepRecord> record = DecodeStepRecord(value);
  if (!record.ok()) return Located(record.status(), impl_->path, fmt::format("{}{}", kStepKeyPrefix, step));
  return *std::move(record);
}

absl::StatusOr<std::optional<StepRecord>> Manifest::FindAtOrBelow(int64_t step) const {
  absl::MutexLock lock(&impl_->mutex);
  if (absl::Status status = impl_->EnsureOpen(); !status.ok()) return status;
  std::unique_ptr<rocksdb::Iterator> it(impl_->db->NewIterator({}));
  it->SeekForPrev(StepKey(step));
  if (!it->status().ok()) return FromRocks(it->status(), "scan", impl_->path);
  if (!IsOnStep(*it)) return std::nullopt;
  absl::StatusOr<StepRecord> record = RecordAt(*it, impl_->path);
  if (!record.ok()) return record.status();
  return *std::move(record);
}

absl::Status Manifest::ForEach(const std::function<bool(StepRecord)>& visit) const {
  absl::MutexLock lock(&impl_->mutex);
  if (absl::Status status = impl_->EnsureOpen(); !status.ok()) return status;
  std::unique_ptr<rocksdb::Iterator> it(impl_->db->NewIterator({}));
  for (it->Seek(Slice(kStepKeyPrefix)); IsOnStep(*it); it->Next()) {
    absl::StatusOr<StepRecord> record = RecordAt(*it, impl_->path);
    if (!record.ok()) return record.status();
    if (!visit(*std::move(record))) break;
  }
  return FromRocks(it->status(), "scan", impl_->path);
}

absl::StatusOr<std::optional<DeletionRecord>> Manifest::Commit(const StepRecord& record) {
  absl::StatusOr<std::optional<StepRecord>> old = Find(record.info.step);
  if (!old.ok()) return old.status();
  rocksdb::WriteBatch batch;
  batch.Put(StepKey(record.info.step), EncodeStepRecord(record));
  // Never back: an attempt that is adopted may be older than the last one, whose number must not be given again.
  const uint64_t sequence = std::max<uint64_t>(impl_->last_sequence, record.info.sequence);
  batch.Put(Slice(kStoreKey), EncodeStoreRecord({.store_id = impl_->store, .sequence = sequence}));
  std::optional<DeletionRecord> replaced;
  if (old->has_value() && (*old)->info.attempt != record.info.attempt) {
    // A failed save has a record without an attempt; nothing of it is on disk.
    if (const auto attempt = FromHex((*old)->info.attempt)) {
      replaced = DeletionRecord{.step = record.info.step, .attempt = AttemptId{*attempt}};
      batch.Put(DeletionKey(replaced->attempt), EncodeDeletionRecord(*replaced));
    }
  }
  if (absl::Status status = impl_->Write(batch); !status.ok()) return status;
  impl_->last_sequence = sequence;
  return replaced;
}

absl::Status Manifest::Update(const StepRecord& record) {
  rocksdb::WriteBatch batch;
  batch.Put(StepKey(record.info.step), EncodeStepRecord(record));
  return impl_->Write(batch);
}

absl::StatusOr<std::vector<DeletionRecord>> Manifest::Deletions() const {
  absl::MutexLock lock(&impl_->mutex);
  if (absl::Status status = impl_->EnsureOpen(); !status.ok()) return status;
  std::vector<DeletionRecord> deletions;
  std::unique_ptr<rocksdb::Iterator> it(impl_->db->NewIterator({}));
  for (it->Seek(Slice(kDeletionKeyPrefix)); it->Valid() && it->key().starts_with(Slice(kDeletionKeyPrefix));
       it->Next()) {
    absl::StatusOr<DeletionRecord> record = DecodeDeletionRecord(View(it->value()));
    if (!record.ok()) return Located(record.status(), impl_->path, View(it->key()));
    deletions.push_back(*record);
  }
  if (!it->status().ok()) return FromRocks(it->status(), "scan", impl_->path);
  return deletions;
}

absl::Status Manifest::FinishDeletion(const AttemptId& attempt) {
  rocksdb::WriteBatch batch;
  batch.Delete(DeletionKey(attempt));
  return impl_->Write(batch);
}

}  // namespace tidemark::storage
