#include "storage/io/file_system.h"

#include <utility>

#include "fmt/format.h"

namespace tidemark::storage {
namespace {

std::string ParentOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

bool IsGone(const absl::Status& status) { return absl::IsNotFound(status); }

absl::Status OkIfGone(absl::Status status) { return IsGone(status) ? absl::OkStatus() : status; }

// A new file with these contents, synced; its name is not.
absl::Status WriteNewFile(FileSystem& files, const std::string& path, std::string_view contents) {
  absl::StatusOr<std::unique_ptr<File>> file = files.Create(path, /*direct=*/false);
  if (!file.ok()) return file.status();
  absl::Status status = (*file)->WriteAt(0, std::as_bytes(std::span(contents)));
  if (status.ok()) status = (*file)->SyncData();
  if (status.ok()) status = (*file)->Close();
  return status;
}

class CallingDirectory final : public Directory {
 public:
  explicit CallingDirectory(std::function<absl::Status()> sync) : sync_(std::move(sync)) {}
  absl::Status Sync() override { return sync_(); }

 private:
  std::function<absl::Status()> sync_;
};

}  // namespace

absl::Status IoQueue::RegisterMemory(std::span<const std::byte>) {
  return absl::UnimplementedError(fmt::format("an I/O queue of {} registers nothing", name()));
}

void IoQueue::UnregisterMemory(std::span<const std::byte>) {}

absl::Status IoQueue::RegisterFile(File*) {
  return absl::UnimplementedError(fmt::format("an I/O queue of {} registers nothing", name()));
}

void IoQueue::UnregisterFile() {}

// Also a directory that is there is synced into its parent: a crash may have come between its making and its sync.
absl::Status CreateDirectories(FileSystem& files, const std::string& path) {
  absl::StatusOr<FileType> type = files.TypeOf(path);
  const std::string parent = ParentOf(path);
  if (type.ok()) {
    if (*type != FileType::kDirectory) return absl::FailedPreconditionError(fmt::format("{} is not a directory", path));
    absl::Status status = files.SyncDirectory(parent);
    // A process that may not read the parent cannot have made the directory, so it has nothing to sync.
    return absl::IsPermissionDenied(status) ? absl::OkStatus() : status;
  }
  if (!absl::IsNotFound(type.status())) return type.status();
  if (absl::Status status = CreateDirectories(files, parent); !status.ok()) return status;
  if (absl::Status status = files.CreateDirectory(path); !status.ok() && !absl::IsAlreadyExists(status)) return status;
  return files.SyncDirectory(parent);
}

std::unique_ptr<Directory> NewDirectory(std::function<absl::Status()> sync) {
  return std::make_unique<CallingDirectory>(std::move(sync));
}

absl::StatusOr<std::string> ReadSmallFile(FileSystem& files, const std::string& path, size_t bytes_max) {
  absl::StatusOr<std::unique_ptr<File>> file = files.OpenForRead(path, /*direct=*/false);
  if (!file.ok()) return file.status();
  absl::StatusOr<uint64_t> size = (*file)->Size();
  if (!size.ok()) return size.status();
  if (*size > bytes_max) {
    return absl::ResourceExhaustedError(
        fmt::format("read {}: {} bytes, where at most {} are expected", path, *size, bytes_max));
  }
  std::string contents(*size, '\0');
  absl::Status status = (*file)->ReadAt(0, std::as_writable_bytes(std::span(contents)));
  if (!status.ok()) return status;
  return contents;
}

absl::Status WriteFileDurably(FileSystem& files, const std::string& path, std::string_view contents) {
  return WriteFileDurably(files, path, path + ".tmp", contents);
}

absl::Status WriteFileDurably(FileSystem& files, const std::string& path, const std::string& temporary,
                              std::string_view contents) {
  if (absl::Status status = OkIfGone(files.RemoveFile(temporary)); !status.ok()) return status;
  absl::Status status = WriteNewFile(files, temporary, contents);
  if (status.ok()) status = files.Rename(temporary, path);
  if (!status.ok()) {
    // What went wrong first is the answer; a temporary file that stays is replaced by the next call.
    files.RemoveFile(temporary).IgnoreError();
    return status;
  }
  return files.SyncDirectory(ParentOf(path));
}

absl::Status RemoveTree(FileSystem& files, const std::string& path) {
  absl::StatusOr<FileType> type = files.TypeOf(path);
  if (!type.ok()) return OkIfGone(type.status());
  if (*type != FileType::kDirectory) return OkIfGone(files.RemoveFile(path));
  absl::StatusOr<std::vector<DirectoryEntry>> entries = files.ListDirectory(path);
  if (!entries.ok()) return OkIfGone(entries.status());
  for (const DirectoryEntry& entry : *entries) {
    absl::Status status = RemoveTree(files, path + "/" + entry.name);
    if (!status.ok()) return status;
  }
  return OkIfGone(files.RemoveDirectory(path));
}

}  // namespace tidemark::storage
