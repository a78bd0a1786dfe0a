#include "tests/storage/io/stale_file_system.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "storage/io/errno_status.h"

namespace tidemark::storage {
namespace {

bool IsBelow(const std::string& path, const std::string& directory) {
  return path == directory || path.starts_with(directory + "/");
}

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
}

}  // namespace

bool StaleFileSystem::IsFresh(const std::string& path) const { return !fresh_.empty() && IsBelow(path, fresh_); }

const StaleFileSystem::Listing* StaleFileSystem::Look(const std::string& directory) {
  if (const auto known = listings_.find(directory); known != listings_.end() && known->second.looks_left > 0) {
    --known->second.looks_left;
    return &known->second;
  }
  listings_.erase(directory);
  absl::StatusOr<std::vector<DirectoryEntry>> entries = other().ListDirectory(directory);
  if (!entries.ok()) return nullptr;
  return &(listings_[directory] = {.entries = *std::move(entries), .looks_left = age_(directory)});
}

bool StaleFileSystem::Lacks(const std::string& path) {
  if (path == "/") return false;
  for (size_t slash = 0; slash != std::string::npos;) {
    const size_t end = path.find('/', slash + 1);
    const std::string name = path.substr(slash + 1, end == std::string::npos ? end : end - slash - 1);
    const Listing* listing = Look(slash == 0 ? "/" : path.substr(0, slash));
    if (listing == nullptr) return false;
    if (std::none_of(listing->entries.begin(), listing->entries.end(),
                     [&](const DirectoryEntry& entry) { return entry.name == name; })) {
      return true;
    }
    slash = end;
  }
  return false;
}

void StaleFileSystem::Forget(const std::string& path) {
  listings_.erase(DirectoryOf(path));
  std::erase_if(listings_, [&](const auto& listing) { return IsBelow(listing.first, path); });
}

absl::StatusOr<std::vector<DirectoryEntry>> StaleFileSystem::ListDirectory(const std::string& path) {
  if (IsFresh(path)) return other().ListDirectory(path);
  absl::MutexLock lock(&mutex_);
  if (Lacks(path)) return ErrnoStatus(ENOENT, "open directory", path);
  if (const Listing* listing = Look(path); listing != nullptr) return listing->entries;
  return other().ListDirectory(path);
}

absl::StatusOr<FileType> StaleFileSystem::TypeOf(const std::string& path) {
  if (IsFresh(path)) return other().TypeOf(path);
  absl::MutexLock lock(&mutex_);
  if (Lacks(path)) return ErrnoStatus(ENOENT, "stat", path);
  return other().TypeOf(path);
}

absl::StatusOr<std::unique_ptr<File>> StaleFileSystem::OpenForRead(const std::string& path, bool direct) {
  if (IsFresh(path)) return other().OpenForRead(path, direct);
  absl::MutexLock lock(&mutex_);
  if (Lacks(path)) return ErrnoStatus(ENOENT, "open", path);
  return other().OpenForRead(path, direct);
}

absl::Status StaleFileSystem::CreateDirectory(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  absl::Status status = other().CreateDirectory(path);
  if (status.ok()) Forget(path);
  return status;
}

absl::StatusOr<std::unique_ptr<File>> StaleFileSystem::Create(const std::string& path, bool direct) {
  absl::MutexLock lock(&mutex_);
  auto file = other().Create(path, direct);
  if (file.ok()) Forget(path);
  return file;
}

absl::StatusOr<std::unique_ptr<File>> StaleFileSystem::CreateReadable(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  auto file = other().CreateReadable(path);
  if (file.ok()) Forget(path);
  return file;
}

absl::Status StaleFileSystem::Rename(const std::string& from, const std::string& to) {
  absl::MutexLock lock(&mutex_);
  absl::Status status = other().Rename(from, to);
  if (!status.ok()) return status;
  Forget(from);
  Forget(to);
  return status;
}

absl::Status StaleFileSystem::RenameToNew(const std::string& from, const std::string& to) {
  absl::MutexLock lock(&mutex_);
  absl::Status status = other().RenameToNew(from, to);
  if (!status.ok()) return status;
  Forget(from);
  Forget(to);
  return status;
}

absl::Status StaleFileSystem::HardLink(const std::string& path, const std::string& new_path) {
  absl::MutexLock lock(&mutex_);
  absl::Status status = other().HardLink(path, new_path);
  if (status.ok()) Forget(new_path);
  return status;
}

absl::Status StaleFileSystem::RemoveFile(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  absl::Status status = other().RemoveFile(path);
  if (status.ok()) Forget(path);
  return status;
}

absl::Status StaleFileSystem::RemoveDirectory(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  absl::Status status = other().RemoveDirectory(path);
  if (status.ok()) Forget(path);
  return status;
}

absl::StatusOr<std::unique_ptr<FileLock>> StaleFileSystem::TryLock(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  const bool is_new = !other().TypeOf(path).ok();
  auto taken = other().TryLock(path);
  if (taken.ok() && is_new) Forget(path);
  return taken;
}

}  // namespace tidemark::storage
