#include "storage/index/rocks_env.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "fmt/format.h"
#include "rocksdb/file_system.h"
#include "storage/index/log_blocks.h"

namespace tidemark::storage {

static thread_local FileFailures* innermost_failures = nullptr;

void NoteFileFailure(const absl::Status& status) {
  if (innermost_failures != nullptr) innermost_failures->first_.Update(status);
}

namespace {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

// What is none of the three codes below is an I/O error, be it a server that does not answer: where RocksDB reads a log
// and hears of another kind of failure, it takes the log to end there, and what follows for lost.
IOStatus ToRocks(const absl::Status& status) {
  const Slice text(status.message().data(), status.message().size());
  if (!absl::IsNotFound(status) && !absl::IsAlreadyExists(status)) NoteFileFailure(status);
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return IOStatus::OK();
    case absl::StatusCode::kNotFound:
      return IOStatus::PathNotFound(text);
    case absl::StatusCode::kResourceExhausted:
      return IOStatus::NoSpace(text);
    case absl::StatusCode::kUnimplemented:
      return IOStatus::NotSupported(text);
    default:
      return IOStatus::IOError(text);
  }
}

// As many of the `n` bytes at `offset` as the file has, which has `size`.
IOStatus ReadSome(File& file, uint64_t size, uint64_t offset, size_t n, Slice* result, char* scratch) {
  *result = Slice();
  if (offset >= size) return IOStatus::OK();
  const size_t there = std::min<uint64_t>(n, size - offset);
  const absl::Status status = file.ReadAt(offset, std::as_writable_bytes(std::span(scratch, there)));
  if (!status.ok()) return ToRocks(status);
  *result = Slice(scratch, there);
  return IOStatus::OK();
}

// Whether an Env was abandoned; see AbandonRocksEnv. Thread-safe.
class Abandonment {
 public:
  // Makes a change on the disk, or none once the Env is abandoned.
  template <typename Change>
  IOStatus Unless(const Change& change) {
    absl::ReaderMutexLock lock(&mutex_);
    if (set_) return IOStatus::IOError("the database was abandoned after an exception");
    return change();
  }

  // Waits until changes that are being made have been made.
  void Set() {
    absl::MutexLock lock(&mutex_);
    set_ = true;
  }

 private:
  absl::Mutex mutex_;
  bool set_ ABSL_GUARDED_BY(mutex_) = false;
};

class SequentialFile final : public rocksdb::FSSequentialFile {
 public:
  explicit SequentialFile(std::unique_ptr<File> file) : file_(std::move(file)) {}

  IOStatus Read(size_t n, const IOOptions&, Slice* result, char* scratch, IODebugContext*) override {
    *result = Slice();
    // It may have grown since it was seen to end.
    if (position_ > size_ || size_ - position_ < n) {
      const absl::StatusOr<uint64_t> size = file_->Size();
      if (!size.ok()) return ToRocks(size.status());
      size_ = *size;
    }
    const IOStatus status = ReadSome(*file_, size_, position_, n, result, scratch);
    position_ += result->size();
    return status;
  }
  IOStatus Skip(uint64_t n) override {
    position_ += n;
    return IOStatus::OK();
  }

 private:
  const std::unique_ptr<File> file_;
  uint64_t position_ = 0;
  uint64_t size_ = 0;  // when it was last asked for
};

bool IsZeros(std::string_view bytes) { return bytes.find_first_not_of('\0') == std::string_view::npos; }

// A log that ends where its sound records end. The fault of the next record is noted as a failure of the file,
// kDataLoss. RocksDB does not see that record, because it would wait for ever at some of them. If the next record is
// incomplete, each Read checks it again, and the file goes on once it is complete.
class LogFile final : public rocksdb::FSSequentialFile {
 public:
  LogFile(std::unique_ptr<File> file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  IOStatus Read(size_t n, const IOOptions&, Slice* result, char* scratch, IODebugContext*) override {
    *result = Slice();
    const absl::StatusOr<uint64_t> size = file_->Size();
    if (!size.ok()) return ToRocks(size.status());
    size_t filled = 0;
    while (filled < n) {
      const size_t block_left = kLogBlockBytes - position_ % kLogBlockBytes;
      Slice part;
      const IOStatus status =
          ReadSome(*file_, *size, position_, std::min(n - filled, block_left), &part, scratch + filled);
      if (!status.ok()) return status;
      SoundRecords sound = FindSoundRecords({part.data(), part.size()}, block_left);
      const bool ends = sound.bytes < block_left;
      if (ends && sound.damage.empty() && position_ + block_left < *size) {
        const absl::StatusOr<bool> unwritten = IsUnwritten(position_ + sound.bytes, *size);
        if (!unwritten.ok()) return ToRocks(unwritten.status());
        if (!*unwritten) sound.damage = "a record is missing";
      }
      filled += sound.bytes;
      position_ += sound.bytes;
      if (!sound.damage.empty()) {
        NoteFileFailure(absl::DataLossError(fmt::format("{}: damaged at byte {}: {}", path_, position_, sound.damage)));
      }
      if (ends) break;
    }
    *result = Slice(scratch, filled);
    return IOStatus::OK();
  }
  IOStatus Skip(uint64_t n) override {
    position_ += n;
    return IOStatus::OK();
  }

 private:
  // Whether the file has only zeros from `offset` on: after power loss it may have its size and not its bytes.
  absl::StatusOr<bool> IsUnwritten(uint64_t offset, uint64_t size) {
    std::string bytes(kLogBlockBytes, '\0');
    while (offset < size) {
      const std::span part = std::span(bytes).first(std::min<uint64_t>(bytes.size(), size - offset));
      if (absl::Status status = file_->ReadAt(offset, std::as_writable_bytes(part)); !status.ok()) return status;
      if (!IsZeros({part.data(), part.size()})) return false;
      offset += part.size();
    }
    return true;
  }

  const std::unique_ptr<File> file_;
  const std::string path_;
  uint64_t position_ = 0;  // where a record begins
};

// Whether it is a log. The other files that are read in order are CURRENT and IDENTITY.
bool IsLog(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name.ends_with(".log") || name.starts_with("MANIFEST-");
}

// The integer that is written in as many bytes as it needs, at the beginning of `bytes`.
uint64_t DecodeVarint(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size() && i < 9; ++i) {
    value |= uint64_t{static_cast<unsigned char>(bytes[i]) & 0x7Fu} << 7 * i;
    if ((bytes[i] & 0x80) == 0) break;
  }
  return value;
}

// Whether a table claims that its properties have a hash index, which they never have. RocksDB looks at that before it
// looks at the block's checksum, and Debian's build of it ends the process then. The properties end with the claim, in
// the highest bit, and with five bytes of a checksum; then comes the block whose offset is in the footer.
absl::StatusOr<bool> ClaimsHashedProperties(File& file, uint64_t size) {
  constexpr size_t kFooterBytes = 53;
  constexpr size_t kTailBytes = 256;  // the footer, that block and the end of the properties
  constexpr size_t kClaimBytes = 6;
  std::string tail(std::min<uint64_t>(size, kTailBytes), '\0');
  if (tail.size() < kFooterBytes) return false;
  const absl::Status status = file.ReadAt(size - tail.size(), std::as_writable_bytes(std::span(tail)));
  if (!status.ok()) return status;
  const uint64_t next = DecodeVarint(std::string_view(tail).substr(tail.size() - kFooterBytes + 1));
  const uint64_t begin = size - tail.size();
  if (next < begin + kClaimBytes || next >= size) return false;
  return (tail[next - kClaimBytes - begin] & 0x80) != 0;
}

// A table, which is whole before anybody opens it and never changes.
class RandomAccessFile final : public rocksdb::FSRandomAccessFile {
 public:
  RandomAccessFile(std::unique_ptr<File> file, uint64_t size) : file_(std::move(file)), size_(size) {}

  IOStatus Read(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) const override {
    return ReadSome(*file_, size_, offset, n, result, scratch);
  }

 private:
  const std::unique_ptr<File> file_;
  const uint64_t size_;
};

// Written through: RocksDB has a buffer of its own.
class WritableFile final : public rocksdb::FSWritableFile {
 public:
  WritableFile(std::unique_ptr<File> file, const FileOptions& options, Abandonment& abandonment)
      : FSWritableFile(options), file_(std::move(file)), abandonment_(abandonment) {}

  using FSWritableFile::Append;
  IOStatus Append(const Slice& data, const IOOptions&, IODebugContext*) override {
    return abandonment_.Unless([&] {
      const absl::Status status = file_->WriteAt(size_, std::as_bytes(std::span(data.data(), data.size())));
      if (status.ok()) size_ += data.size();
      return ToRocks(status);
    });
  }
  IOStatus Truncate(uint64_t size, const IOOptions&, IODebugContext*) override {
    return abandonment_.Unless([&] {
      const absl::Status status = file_->Truncate(size);
      if (status.ok()) size_ = size;
      return ToRocks(status);
    });
  }
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override { return ToRocks(file_->SyncData()); }
  IOStatus Close(const IOOptions&, IODebugContext*) override { return ToRocks(file_->Close()); }
  uint64_t GetFileSize(const IOOptions&, IODebugContext*) override { return size_; }

 private:
  const std::unique_ptr<File> file_;
  Abandonment& abandonment_;
  uint64_t size_ = 0;
};

class Directory final : public rocksdb::FSDirectory {
 public:
  Directory(FileSystem& files, std::string path) : files_(files), path_(std::move(path)) {}

  IOStatus Fsync(const IOOptions&, IODebugContext*) override { return ToRocks(files_.SyncDirectory(path_)); }
  IOStatus Close(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }

 private:
  FileSystem& files_;
  const std::string path_;
};

struct Lock final : rocksdb::FileLock {
  explicit Lock(std::unique_ptr<storage::FileLock> taken) : lock(std::move(taken)) {}
  std::unique_ptr<storage::FileLock> lock;
};

class Files final : public rocksdb::FileSystem {
 public:
  Files(storage::FileSystem& files, LogDamage log_damage) : files_(files), log_damage_(log_damage) {}

  const char* Name() const override { return "tidemark"; }

  // See AbandonRocksEnv.
  void Abandon() {
    abandonment_.Set();
    absl::MutexLock mutex(&mutex_);
    if (lock_ != nullptr) lock_->lock.reset();
  }

  IOStatus NewSequentialFile(const std::string& path, const FileOptions&,
                             std::unique_ptr<rocksdb::FSSequentialFile>* result, IODebugContext*) override {
    absl::StatusOr<std::unique_ptr<File>> file = files_.OpenForRead(path, /*direct=*/false);
    if (file.ok() && log_damage_ == LogDamage::kEnds && IsLog(path)) {
      *result = std::make_unique<LogFile>(*std::move(file), path);
    } else if (file.ok()) {
      *result = std::make_unique<SequentialFile>(*std::move(file));
    }
    return ToRocks(file.status());
  }

  IOStatus NewRandomAccessFile(const std::string& path, const FileOptions&,
                               std::unique_ptr<rocksdb::FSRandomAccessFile>* result, IODebugContext*) override {
    absl::StatusOr<std::unique_ptr<File>> file = files_.OpenForRead(path, /*direct=*/false);
    if (!file.ok()) return ToRocks(file.status());
    const absl::StatusOr<uint64_t> size = (*file)->Size();
    if (!size.ok()) return ToRocks(size.status());
    const absl::StatusOr<bool> broken = ClaimsHashedProperties(**file, *size);
    if (!broken.ok()) return ToRocks(broken.status());
    if (*broken) return IOStatus::Corruption(path, "the table's properties are damaged");
    *result = std::make_unique<RandomAccessFile>(*std::move(file), *size);
    return IOStatus::OK();
  }

  // One of that name that an earlier process left is replaced, as RocksDB expects. Its options, which it would write
  // into a file at every opening, sync and read back, are refused: that is most of an opening's work, and nobody reads
  // them.
  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* result, IODebugContext*) override {
    if (std::string_view(path).substr(path.rfind('/') + 1).starts_with("OPTIONS-")) {
      return IOStatus::NotSupported("options are kept in no file");
    }
    return abandonment_.Unless([&] {
      absl::StatusOr<std::unique_ptr<File>> file = files_.Create(path, /*direct=*/false);
      if (absl::IsAlreadyExists(file.status())) {
        if (absl::Status status = files_.RemoveFile(path); !status.ok()) return ToRocks(status);
        file = files_.Create(path, /*direct=*/false);
      }
      if (file.ok()) *result = std::make_unique<WritableFile>(*std::move(file), options, abandonment_);
      return ToRocks(file.status());
    });
  }

  IOStatus NewDirectory(const std::string& path, const IOOptions&, std::unique_ptr<rocksdb::FSDirectory>* result,
                        IODebugContext*) override {
    const IOStatus status = CheckDirectory(path);
    if (status.ok()) *result = std::make_unique<Directory>(files_, path);
    return status;
  }

  IOStatus FileExists(const std::string& path, const IOOptions&, IODebugContext*) override {
    const absl::Status status = files_.TypeOf(path).status();
    return absl::IsNotFound(status) ? IOStatus::NotFound() : ToRocks(status);
  }

  IOStatus GetChildren(const std::string& path, const IOOptions&, std::vector<std::string>* result,
                       IODebugContext*) override {
    result->clear();
    absl::StatusOr<std::vector<DirectoryEntry>> entries = files_.ListDirectory(path);
    if (!entries.ok()) return ToRocks(entries.status());
    for (DirectoryEntry& entry : *entries) result->push_back(std::move(entry.name));
    return IOStatus::OK();
  }

  IOStatus DeleteFile(const std::string& path, const IOOptions&, IODebugContext*) override {
    return abandonment_.Unless([&] { return ToRocks(files_.RemoveFile(path)); });
  }

  IOStatus CreateDir(const std::string& path, const IOOptions&, IODebugContext*) override {
    return ToRocks(files_.CreateDirectory(path));
  }

  IOStatus CreateDirIfMissing(const std::string& path, const IOOptions&, IODebugContext*) override {
    const absl::Status status = files_.CreateDirectory(path);
    return absl::IsAlreadyExists(status) ? CheckDirectory(path) : ToRocks(status);
  }

  IOStatus DeleteDir(const std::string& path, const IOOptions&, IODebugContext*) override {
    return abandonment_.Unless([&] { return ToRocks(files_.RemoveDirectory(path)); });
  }

  IOStatus GetFileSize(const std::string& path, const IOOptions&, uint64_t* size, IODebugContext*) override {
    absl::StatusOr<std::unique_ptr<File>> file = files_.OpenForRead(path, /*direct=*/false);
    if (!file.ok()) return ToRocks(file.status());
    const absl::StatusOr<uint64_t> bytes = (*file)->Size();
    if (bytes.ok()) *size = *bytes;
    return ToRocks(bytes.status());
  }

  // Asked only by what deletes logs by their age.
  IOStatus GetFileModificationTime(const std::string&, const IOOptions&, uint64_t*, IODebugContext*) override {
    return IOStatus::NotSupported("times of files");
  }

  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions&, IODebugContext*) override {
    return abandonment_.Unless([&] { return ToRocks(files_.Rename(from, to)); });
  }

  IOStatus LockFile(const std::string& path, const IOOptions&, rocksdb::FileLock** lock, IODebugContext*) override {
    absl::StatusOr<std::unique_ptr<storage::FileLock>> taken = files_.TryLock(path);
    if (absl::IsUnavailable(taken.status())) return IOStatus::Busy(std::string(taken.status().message()));
    if (taken.ok()) {
      absl::MutexLock mutex(&mutex_);
      *lock = lock_ = new Lock(*std::move(taken));
    }
    return ToRocks(taken.status());
  }

  IOStatus UnlockFile(rocksdb::FileLock* lock, const IOOptions&, IODebugContext*) override {
    {
      absl::MutexLock mutex(&mutex_);
      if (lock_ == lock) lock_ = nullptr;
    }
    delete static_cast<Lock*>(lock);
    return IOStatus::OK();
  }

  IOStatus GetTestDirectory(const IOOptions&, std::string*, IODebugContext*) override {
    return IOStatus::NotSupported("a directory for tests");
  }

  IOStatus GetAbsolutePath(const std::string& path, const IOOptions&, std::string* absolute, IODebugContext*) override {
    *absolute = path;
    return IOStatus::OK();
  }

  IOStatus IsDirectory(const std::string& path, const IOOptions&, bool* is, IODebugContext*) override {
    const absl::StatusOr<FileType> type = files_.TypeOf(path);
    *is = type.ok() && *type == FileType::kDirectory;
    return ToRocks(type.status());
  }

 private:
  IOStatus CheckDirectory(const std::string& path) {
    const absl::StatusOr<FileType> type = files_.TypeOf(path);
    if (type.ok() && *type != FileType::kDirectory) return IOStatus::IOError(path, "it is not a directory");
    return ToRocks(type.status());
  }

  storage::FileSystem& files_;
  const LogDamage log_damage_;
  Abandonment abandonment_;
  absl::Mutex mutex_;
  Lock* lock_ ABSL_GUARDED_BY(mutex_) = nullptr;  // the one that the database has taken
};

}  // namespace

std::unique_ptr<rocksdb::Env> NewRocksEnv(FileSystem& files, LogDamage log_damage) {
  return rocksdb::NewCompositeEnv(std::make_shared<Files>(files, log_damage));
}

void AbandonRocksEnv(std::unique_ptr<rocksdb::Env> env, std::unique_ptr<rocksdb::DB> db) {
  static_cast<Files*>(env->GetFileSystem().get())->Abandon();
  static_cast<void>(env.release());
  static_cast<void>(db.release());
}

FileFailures::FileFailures() : outer_(std::exchange(innermost_failures, this)) {}

FileFailures::~FileFailures() { innermost_failures = outer_; }

absl::Status FileFailures::Take() {
  return innermost_failures == nullptr ? absl::OkStatus() : std::exchange(innermost_failures->first_, absl::OkStatus());
}

}  // namespace tidemark::storage
