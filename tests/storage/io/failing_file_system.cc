#include "tests/storage/io/failing_file_system.h"

#include <deque>
#include <utility>

namespace tidemark::storage {

class FailingFileSystem::FailingFile final : public File {
 public:
  FailingFile(FailingFileSystem& files, std::unique_ptr<File> other) : files_(files), other_(std::move(other)) {}

  File* other() { return other_.get(); }
  const std::string& path() const override { return other_->path(); }
  bool direct() const override { return other_->direct(); }
  absl::StatusOr<uint64_t> Size() override {
    if (absl::Status status = Admit("Size"); !status.ok()) return status;
    return other_->Size();
  }
  absl::Status ReadAt(uint64_t offset, std::span<std::byte> out) override {
    absl::Status status = Admit("ReadAt", out.size());
    return status.ok() ? other_->ReadAt(offset, out) : status;
  }
  absl::Status WriteAt(uint64_t offset, std::span<const std::byte> data) override {
    absl::Status status = Admit("WriteAt", data.size());
    return status.ok() ? other_->WriteAt(offset, data) : status;
  }
  absl::Status Allocate(uint64_t bytes) override {
    absl::Status status = Admit("Allocate");
    return status.ok() ? other_->Allocate(bytes) : status;
  }
  absl::Status Truncate(uint64_t bytes) override {
    absl::Status status = Admit("Truncate");
    return status.ok() ? other_->Truncate(bytes) : status;
  }
  absl::Status SyncData() override {
    absl::Status status = Admit("SyncData");
    return status.ok() ? other_->SyncData() : status;
  }
  absl::Status Close() override {
    absl::Status status = Admit("Close");
    absl::Status closed = other_->Close();
    return status.ok() ? closed : status;
  }

 private:
  absl::Status Admit(std::string operation, uint64_t bytes = 0) {
    return files_.Admit(std::move(operation), path(), bytes);
  }

  FailingFileSystem& files_;
  const std::unique_ptr<File> other_;
};

class FailingFileSystem::FailingLock final : public FileLock {
 public:
  FailingLock(FailingFileSystem& files, std::string path, std::unique_ptr<FileLock> other)
      : files_(files), path_(std::move(path)), other_(std::move(other)) {}

  absl::Status WriteNote(std::string_view note) override {
    absl::Status status = files_.Admit("WriteNote", path_);
    return status.ok() ? other_->WriteNote(note) : status;
  }

 private:
  FailingFileSystem& files_;
  const std::string path_;
  const std::unique_ptr<FileLock> other_;
};

class FailingFileSystem::FailingQueue final : public IoQueue {
 public:
  FailingQueue(FailingFileSystem& files, std::unique_ptr<IoQueue> other) : files_(files), other_(std::move(other)) {}

  std::string_view name() const override { return other_->name(); }
  std::string_view note() const override { return other_->note(); }
  size_t depth() const override { return other_->depth(); }
  size_t in_flight() const override { return other_->in_flight() + failed_.size(); }

  void Submit(const IoRequest& request) override {
    const bool read = request.kind == IoRequest::Kind::kRead;
    absl::Status status = files_.Admit(read ? "QueueRead" : "QueueWrite", request.file->path(), request.size);
    if (!status.ok()) {
      failed_.push_back({.tag = request.tag, .status = std::move(status)});
      return;
    }
    IoRequest forwarded = request;
    forwarded.file = static_cast<FailingFile*>(request.file)->other();
    other_->Submit(forwarded);
  }
  IoCompletion Wait() override {
    if (std::optional<IoCompletion> failed = TakeFailed()) return *std::move(failed);
    return other_->Wait();
  }
  std::optional<IoCompletion> Poll() override {
    if (std::optional<IoCompletion> failed = TakeFailed()) return failed;
    return other_->Poll();
  }
  absl::Status RegisterMemory(std::span<const std::byte> memory) override {
    absl::Status refusal = files_.registration_refusal();
    return refusal.ok() ? other_->RegisterMemory(memory) : refusal;
  }
  void UnregisterMemory(std::span<const std::byte> memory) override { other_->UnregisterMemory(memory); }
  absl::Status RegisterFile(File* file) override {
    absl::Status refusal = files_.registration_refusal();
    return refusal.ok() ? other_->RegisterFile(static_cast<FailingFile*>(file)->other()) : refusal;
  }
  void UnregisterFile() override { other_->UnregisterFile(); }

 private:
  std::optional<IoCompletion> TakeFailed() {
    if (failed_.empty()) return std::nullopt;
    IoCompletion completion = std::move(failed_.front());
    failed_.pop_front();
    return completion;
  }

  FailingFileSystem& files_;
  const std::unique_ptr<IoQueue> other_;
  std::deque<IoCompletion> failed_;
};

void FailingFileSystem::SetGate(Gate gate) {
  absl::MutexLock lock(&mutex_);
  gate_ = std::move(gate);
}

FailingFileSystem::Gate FailingFileSystem::gate() const {
  absl::MutexLock lock(&mutex_);
  return gate_;
}

void FailingFileSystem::SetRule(Rule rule) {
  absl::MutexLock lock(&mutex_);
  rule_ = std::move(rule);
}

void FailingFileSystem::FailCall(size_t index, absl::Status status) {
  SetRule([=](const Call& call) { return call.index == index ? status : absl::OkStatus(); });
}

void FailingFileSystem::FailFrom(size_t index, absl::Status status) {
  SetRule([=](const Call& call) { return call.index >= index ? status : absl::OkStatus(); });
}

void FailingFileSystem::FailOperation(std::string operation, absl::Status status, size_t before) {
  SetRule([=, left = before](const Call& call) mutable {
    if (call.operation != operation) return absl::OkStatus();
    return left-- == 0 ? status : absl::OkStatus();
  });
}

void FailingFileSystem::RefuseRegistration(absl::Status status) {
  absl::MutexLock lock(&mutex_);
  registration_refusal_ = std::move(status);
}

absl::Status FailingFileSystem::registration_refusal() const {
  absl::MutexLock lock(&mutex_);
  return registration_refusal_;
}

void FailingFileSystem::Reset() {
  absl::MutexLock lock(&mutex_);
  rule_ = nullptr;
  registration_refusal_ = absl::OkStatus();
  calls_.clear();
}

std::vector<FailingFileSystem::Call> FailingFileSystem::calls() const {
  absl::MutexLock lock(&mutex_);
  return calls_;
}

std::vector<std::string> FailingFileSystem::operations() const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> operations;
  for (const Call& call : calls_) operations.push_back(call.operation);
  return operations;
}

absl::Status FailingFileSystem::Admit(std::string operation, const std::string& path, uint64_t bytes) {
  if (const Gate gate = this->gate()) gate(operation, path);
  absl::MutexLock lock(&mutex_);
  calls_.push_back({.index = calls_.size(), .operation = std::move(operation), .path = path, .bytes = bytes});
  return rule_ ? rule_(calls_.back()) : absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<File>> FailingFileSystem::Wrap(absl::StatusOr<std::unique_ptr<File>> file) {
  if (!file.ok()) return file.status();
  return std::make_unique<FailingFile>(*this, *std::move(file));
}

absl::Status FailingFileSystem::CreateDirectory(const std::string& path) {
  absl::Status status = Admit("CreateDirectory", path);
  return status.ok() ? other_.CreateDirectory(path) : status;
}

absl::StatusOr<std::vector<DirectoryEntry>> FailingFileSystem::ListDirectory(const std::string& path) {
  if (absl::Status status = Admit("ListDirectory", path); !status.ok()) return status;
  return other_.ListDirectory(path);
}

absl::StatusOr<FileType> FailingFileSystem::TypeOf(const std::string& path) {
  if (absl::Status status = Admit("TypeOf", path); !status.ok()) return status;
  return other_.TypeOf(path);
}

absl::StatusOr<FileId> FailingFileSystem::Identify(const std::string& path) {
  if (absl::Status status = Admit("Identify", path); !status.ok()) return status;
  return other_.Identify(path);
}

absl::StatusOr<std::unique_ptr<File>> FailingFileSystem::OpenForRead(const std::string& path, bool direct) {
  if (absl::Status status = Admit("OpenForRead", path); !status.ok()) return status;
  return Wrap(other_.OpenForRead(path, direct));
}

absl::StatusOr<std::unique_ptr<File>> FailingFileSystem::OpenForRewrite(const std::string& path, bool direct) {
  if (absl::Status status = Admit("OpenForRewrite", path); !status.ok()) return status;
  return Wrap(other_.OpenForRewrite(path, direct));
}

absl::StatusOr<std::unique_ptr<File>> FailingFileSystem::Create(const std::string& path, bool direct) {
  if (absl::Status status = Admit("Create", path); !status.ok()) return status;
  return Wrap(other_.Create(path, direct));
}

absl::StatusOr<std::unique_ptr<File>> FailingFileSystem::CreateReadable(const std::string& path) {
  if (absl::Status status = Admit("CreateReadable", path); !status.ok()) return status;
  return Wrap(other_.CreateReadable(path));
}

absl::Status FailingFileSystem::Rename(const std::string& from, const std::string& to) {
  absl::Status status = Admit("Rename", to);
  return status.ok() ? other_.Rename(from, to) : status;
}

absl::Status FailingFileSystem::RenameToNew(const std::string& from, const std::string& to) {
  absl::Status status = Admit("RenameToNew", to);
  return status.ok() ? other_.RenameToNew(from, to) : status;
}

absl::Status FailingFileSystem::HardLink(const std::string& path, const std::string& new_path) {
  absl::Status status = Admit("HardLink", new_path);
  return status.ok() ? other_.HardLink(path, new_path) : status;
}

absl::Status FailingFileSystem::RemoveFile(const std::string& path) {
  absl::Status status = Admit("RemoveFile", path);
  return status.ok() ? other_.RemoveFile(path) : status;
}

absl::Status FailingFileSystem::RemoveDirectory(const std::string& path) {
  absl::Status status = Admit("RemoveDirectory", path);
  return status.ok() ? other_.RemoveDirectory(path) : status;
}

absl::Status FailingFileSystem::SyncDirectory(const std::string& path) {
  absl::Status status = Admit("SyncDirectory", path);
  return status.ok() ? other_.SyncDirectory(path) : status;
}

absl::StatusOr<std::unique_ptr<Directory>> FailingFileSystem::OpenDirectory(const std::string& path) {
  if (absl::Status status = Admit("OpenDirectory", path); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<Directory>> directory = other_.OpenDirectory(path);
  if (!directory.ok()) return directory.status();
  return NewDirectory([this, path, other = std::shared_ptr<Directory>(*std::move(directory))] {
    absl::Status status = Admit("SyncDirectory", path);
    return status.ok() ? other->Sync() : status;
  });
}

absl::StatusOr<std::unique_ptr<FileLock>> FailingFileSystem::TryLock(const std::string& path) {
  if (absl::Status status = Admit("TryLock", path); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<FileLock>> lock = other_.TryLock(path);
  if (!lock.ok()) return lock.status();
  return std::make_unique<FailingLock>(*this, path, *std::move(lock));
}

absl::StatusOr<std::string> FailingFileSystem::ReadNote(const std::string& path, size_t bytes_max) {
  if (absl::Status status = Admit("ReadNote", path); !status.ok()) return status;
  return other_.ReadNote(path, bytes_max);
}

absl::StatusOr<std::unique_ptr<IoQueue>> FailingFileSystem::NewIoQueue(IoQueueKind kind, size_t depth) {
  if (absl::Status status = Admit("NewIoQueue", ""); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<IoQueue>> queue = other_.NewIoQueue(kind, depth);
  if (!queue.ok()) return queue.status();
  return std::make_unique<FailingQueue>(*this, *std::move(queue));
}

}  // namespace tidemark::storage
