#include "tests/crash/disordered_disk.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <span>
#include <string_view>

#include "storage/shard/format/aligned_buffer.h"

namespace tidemark::crash {

using storage::File;
using storage::IoCompletion;
using storage::IoQueue;
using storage::IoRequest;

// Bytes that are written later, aligned as for direct I/O.
std::function<absl::Status()> WriteLater(std::shared_ptr<File> file, uint64_t offset, std::span<const std::byte> data) {
  auto copy = std::make_shared<storage::AlignedBuffer>(std::max<size_t>(data.size(), 1));
  std::copy(data.begin(), data.end(), copy->data());
  return [file = std::move(file), offset, copy, size = data.size()] {
    return file->WriteAt(offset, {copy->data(), size});
  };
}

class DisorderedDisk::DisorderedFile final : public File {
 public:
  DisorderedFile(DisorderedDisk& disk, std::unique_ptr<File> other, bool rewrites)
      : disk_(disk), path_(other->path()), rewrites_(rewrites), other_(std::move(other)), synced_(new Synced{other_}) {}

  const std::shared_ptr<File>& other() { return other_; }
  const std::string& path() const override { return path_; }
  bool direct() const override { return other_->direct(); }
  absl::StatusOr<uint64_t> Size() override { return other_->Size(); }
  absl::Status ReadAt(uint64_t offset, std::span<std::byte> out) override { return other_->ReadAt(offset, out); }
  absl::Status WriteAt(uint64_t offset, std::span<const std::byte> data) override {
    return disk_.Do(Operation::kWrite, path(), WriteLater(other_, offset, data));
  }
  absl::Status Allocate(uint64_t bytes) override { return other_->Allocate(bytes); }
  absl::Status Truncate(uint64_t bytes) override { return other_->Truncate(bytes); }
  absl::Status SyncData() override {
    return disk_.Do(Operation::kSyncData, path(), [synced = synced_] { return synced->file->SyncData(); });
  }
  // A delayed operation may still need the file, so the last user closes it. A file that is written over is locked
  // until then, and a delayed sync must not keep others from reading it.
  absl::Status Close() override {
    if (!rewrites_ || synced_.use_count() == 1) return absl::OkStatus();
    const std::weak_ptr<File> writing = other_;
    other_.reset();
    synced_->file.reset();
    auto reading = disk_.other().OpenForRead(path_, /*direct=*/false);
    synced_->file = reading.ok() ? std::shared_ptr<File>(*std::move(reading)) : writing.lock();
    return absl::OkStatus();
  }

 private:
  struct Synced {
    std::shared_ptr<File> file;
  };

  DisorderedDisk& disk_;
  const std::string path_;
  const bool rewrites_;
  std::shared_ptr<File> other_;
  const std::shared_ptr<Synced> synced_;
};

// Writes are done, or not, when they are submitted.
class DisorderedDisk::DisorderedQueue final : public IoQueue {
 public:
  explicit DisorderedQueue(std::unique_ptr<IoQueue> other) : other_(std::move(other)) {}

  std::string_view name() const override { return other_->name(); }
  size_t depth() const override { return other_->depth(); }
  size_t in_flight() const override { return other_->in_flight() + done_.size(); }

  void Submit(const IoRequest& request) override {
    auto* const file = static_cast<DisorderedFile*>(request.file);
    if (request.kind == IoRequest::Kind::kRead) {
      IoRequest forwarded = request;
      forwarded.file = file->other().get();
      other_->Submit(forwarded);
      return;
    }
    done_.push_back({.tag = request.tag, .status = file->WriteAt(request.offset, {request.data, request.size})});
  }
  IoCompletion Wait() override {
    if (done_.empty()) return other_->Wait();
    return *Poll();
  }
  std::optional<IoCompletion> Poll() override {
    if (done_.empty()) return other_->Poll();
    IoCompletion completion = std::move(done_.front());
    done_.pop_front();
    return completion;
  }

 private:
  const std::unique_ptr<IoQueue> other_;
  std::deque<IoCompletion> done_;
};

void DisorderedDisk::Delay(Match what, Match until) {
  absl::MutexLock lock(&mutex_);
  rules_.push_back({.what = std::move(what), .until = std::move(until), .due = {}});
}

void DisorderedDisk::Repeat(Match what) {
  absl::MutexLock lock(&mutex_);
  repeated_.push_back(std::move(what));
}

absl::Status DisorderedDisk::Do(Operation operation, const std::string& path,
                                const std::function<absl::Status()>& work) {
  absl::MutexLock lock(&mutex_);
  for (Rule& rule : rules_) {
    if (!rule.what(operation, path)) continue;
    if (rule.until) rule.due.push_back(work);
    return absl::OkStatus();
  }
  absl::Status status = work();
  const auto is_repeated = [&](const Match& what) { return what(operation, path); };
  if (!status.ok() && std::any_of(repeated_.begin(), repeated_.end(), is_repeated)) {
    for (int i = 0; i < 2 && !status.ok(); ++i) status = work();
  }
  for (Rule& rule : rules_) {
    if (!rule.until || !rule.until(operation, path)) continue;
    for (const auto& late : rule.due) status.Update(late());
    rule.due.clear();
  }
  return status;
}

absl::StatusOr<std::unique_ptr<File>> DisorderedDisk::Wrap(absl::StatusOr<std::unique_ptr<File>> file, bool rewrites) {
  if (!file.ok()) return file.status();
  return std::make_unique<DisorderedFile>(*this, *std::move(file), rewrites);
}

absl::StatusOr<std::unique_ptr<File>> DisorderedDisk::OpenForRead(const std::string& path, bool direct) {
  return Wrap(other().OpenForRead(path, direct));
}

absl::StatusOr<std::unique_ptr<File>> DisorderedDisk::OpenForRewrite(const std::string& path, bool direct) {
  return Wrap(other().OpenForRewrite(path, direct), /*rewrites=*/true);
}

absl::StatusOr<std::unique_ptr<File>> DisorderedDisk::Create(const std::string& path, bool direct) {
  return Wrap(other().Create(path, direct));
}

absl::StatusOr<std::unique_ptr<File>> DisorderedDisk::CreateReadable(const std::string& path) {
  return Wrap(other().CreateReadable(path));
}

absl::Status DisorderedDisk::RemoveFile(const std::string& path) {
  return Do(Operation::kRemove, path, [this, path] { return other().RemoveFile(path); });
}

absl::Status DisorderedDisk::RemoveDirectory(const std::string& path) {
  return Do(Operation::kRemove, path, [this, path] { return other().RemoveDirectory(path); });
}

absl::Status DisorderedDisk::SyncDirectory(const std::string& path) {
  return Do(Operation::kSyncDirectory, path, [this, path] { return other().SyncDirectory(path); });
}

absl::StatusOr<std::unique_ptr<storage::Directory>> DisorderedDisk::OpenDirectory(const std::string& path) {
  auto directory = other().OpenDirectory(path);
  if (!directory.ok()) return directory.status();
  return storage::NewDirectory([this, path, other = std::shared_ptr<storage::Directory>(*std::move(directory))] {
    return Do(Operation::kSyncDirectory, path, [other] { return other->Sync(); });
  });
}

absl::StatusOr<std::unique_ptr<IoQueue>> DisorderedDisk::NewIoQueue(storage::IoQueueKind kind, size_t depth) {
  absl::StatusOr<std::unique_ptr<IoQueue>> queue = other().NewIoQueue(kind, depth);
  if (!queue.ok()) return queue.status();
  return std::make_unique<DisorderedQueue>(*std::move(queue));
}

}  // namespace tidemark::crash
