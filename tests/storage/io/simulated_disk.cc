#include "tests/storage/io/simulated_disk.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "fmt/format.h"
#include "storage/io/check.h"
#include "storage/io/errno_status.h"
#include "storage/io/lock_note.h"
#include "storage/io/queues/transfer.h"
#include "tests/storage/io/simulated_queue.h"

namespace tidemark::storage {
namespace {

using Kind = DiskOperation::Kind;

constexpr size_t kDepthMax = 256;
constexpr size_t kNameBytesMax = 255;
constexpr uint64_t kFileBytesMax = uint64_t{1} << 30;
constexpr const char* kNoUring = "a simulated disk has no io_uring";

// errno of opening what is there for writing, or 0.
int TypeError(FileType type) {
  if (type == FileType::kDirectory) return EISDIR;
  return type == FileType::kOther ? ELOOP : 0;
}

}  // namespace

// Constant but for being closed. `claim` is taken already.
class SimulatedDisk::OpenFile final : public File {
 public:
  OpenFile(SimulatedDisk& disk, Locked locked, std::string path, bool direct, bool writable, Claim claim)
      : disk_(disk), locked_(locked), path_(std::move(path)), direct_(direct), writable_(writable), claim_(claim) {}
  ~OpenFile() override { Close().IgnoreError(); }

  const std::string& path() const override { return path_; }
  bool direct() const override { return direct_; }

  absl::StatusOr<uint64_t> Size() override {
    if (closed_) return ErrnoStatus(EBADF, "stat", path_);
    return disk_.Size(locked_.node);
  }

  absl::Status ReadAt(uint64_t offset, std::span<std::byte> out) override {
    Transfer transfer(IoRequest::Kind::kRead, path_, direct_, offset, out.size());
    if (absl::Status range = transfer.CheckRange(); !range.ok()) return range;
    if (closed_) return *transfer.Advance(-EBADF);
    if (Misaligned(offset, out.data(), out.size())) return *transfer.Advance(-EINVAL);
    std::optional<absl::Status> finished;
    while (!finished) {
      const size_t read =
          disk_.Read(locked_.node, transfer.next_offset(), out.subspan(transfer.done(), transfer.next_size()));
      finished = transfer.Advance(static_cast<int64_t>(read));
    }
    return *std::move(finished);
  }

  absl::Status WriteAt(uint64_t offset, std::span<const std::byte> data) override {
    Transfer transfer(IoRequest::Kind::kWrite, path_, direct_, offset, data.size());
    if (absl::Status range = transfer.CheckRange(); !range.ok()) return range;
    if (closed_ || !writable_) return *transfer.Advance(-EBADF);
    if (Misaligned(offset, data.data(), data.size())) return *transfer.Advance(-EINVAL);
    if (offset + data.size() > kFileBytesMax) return *transfer.Advance(-EFBIG);
    if (data.empty()) return absl::OkStatus();
    disk_.Write(locked_.node, path_, offset, {reinterpret_cast<const char*>(data.data()), data.size()});
    return absl::OkStatus();
  }

  absl::Status Allocate(uint64_t bytes) override {
    const int error = closed_ || !writable_ ? EBADF : bytes == 0 ? EINVAL : 0;
    return Resize(Kind::kAllocate, bytes, error, fmt::format("allocate {} bytes for", bytes));
  }
  absl::Status Truncate(uint64_t bytes) override {
    const int error = closed_ ? EBADF : !writable_ ? EINVAL : 0;
    return Resize(Kind::kTruncate, bytes, error, fmt::format("truncate to {} bytes", bytes));
  }

  absl::Status SyncData() override {
    if (closed_) return ErrnoStatus(EBADF, "sync", path_);
    disk_.SyncData(locked_.node, path_);
    return absl::OkStatus();
  }

  absl::Status Close() override {
    if (!std::exchange(closed_, true)) disk_.Unclaim(locked_, claim_);
    return absl::OkStatus();
  }

 private:
  absl::Status Resize(Kind kind, uint64_t bytes, int error, const std::string& operation) {
    if (bytes > kOffsetMax) {
      return absl::InvalidArgumentError(fmt::format("{} {} to {} bytes: the largest size is {}",
                                                    kind == Kind::kAllocate ? "allocate" : "truncate", path_, bytes,
                                                    kOffsetMax));
    }
    if (error == 0 && bytes > kFileBytesMax) error = EFBIG;
    if (error != 0) return ErrnoStatus(error, operation, path_);
    disk_.Resize(kind, locked_.node, path_, bytes);
    return absl::OkStatus();
  }

  bool Misaligned(uint64_t offset, const std::byte* data, size_t size) const {
    return direct_ && (offset | size | reinterpret_cast<uintptr_t>(data)) % kDirectAlignment != 0;
  }

  SimulatedDisk& disk_;
  const Locked locked_;
  const std::string path_;
  const bool direct_;
  const bool writable_;
  const Claim claim_;
  bool closed_ = false;
};

class SimulatedDisk::HeldLock final : public FileLock {
 public:
  HeldLock(SimulatedDisk& disk, Locked locked, std::string path)
      : disk_(disk), locked_(locked), path_(std::move(path)) {}
  ~HeldLock() override { disk_.Unclaim(locked_, Claim::kExclusive); }

  absl::Status WriteNote(std::string_view note) override {
    if (!note.empty()) disk_.Write(locked_.node, path_, 0, note);
    disk_.Resize(Kind::kTruncate, locked_.node, path_, note.size());
    disk_.SyncData(locked_.node, path_);
    return absl::OkStatus();
  }

 private:
  SimulatedDisk& disk_;
  const Locked locked_;
  const std::string path_;
};

// Numbers of nodes are not used again, be they lost: each cost an operation, and time goes on.
SimulatedDisk::SimulatedDisk(const DiskImage& image) : SimulatedDisk(image, image) {}

SimulatedDisk::SimulatedDisk(DiskImage image, const DiskImage& boot)
    : device_(boot.time + 1), disk_([&] {
        image.RemoveOrphans();
        return image;
      }()) {
  next_node_ = std::max(image.nodes.back().first, DiskImage::kRoot + image.time) + 1;
  log_.boot = std::move(image);
}

SimulatedDisk::~SimulatedDisk() = default;

void SimulatedDisk::Mark(std::string text) {
  absl::MutexLock lock(&mutex_);
  Log({.kind = Kind::kMark, .name = std::move(text)});
}

void SimulatedDisk::FailSync(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  const Place place = Find(path);
  Check(place.error == 0, "a sync fails of what is not there");
  ++failed_syncs_[place.node];
  Log({.kind = Kind::kFailedSync, .node = place.node, .path = path});
}

DiskLog SimulatedDisk::log() const {
  DiskLog log;
  {
    absl::MutexLock lock(&mutex_);
    log = log_;
  }
  log.Settle();
  return log;
}

DiskImage SimulatedDisk::image() const {
  absl::MutexLock lock(&mutex_);
  DiskImage image = disk_.image();
  image.RemoveOrphans();
  return image;
}

SimulatedDisk::Place SimulatedDisk::Resolve(const std::string& path) const {
  if (path.empty()) return {.error = ENOENT};
  Place place = {.directories = {DiskImage::kRoot}, .node = DiskImage::kRoot, .type = FileType::kDirectory};
  for (size_t at = path.find_first_not_of('/'); at != std::string::npos;) {
    // What the components before this one lead to is no last component: it has to be a directory.
    if (!place.name.empty()) {
      if (place.node == 0) return {.error = ENOENT};
      if (place.type != FileType::kDirectory) return {.error = ENOTDIR};
      place.directories.push_back(place.node);
    }
    const size_t end = std::min(path.find('/', at), path.size());
    place.name = path.substr(at, end - at);
    at = path.find_first_not_of('/', end);
    if (place.name.size() > kNameBytesMax) return {.error = ENAMETOOLONG};
    if (place.name == ".." && place.directories.size() > 1) place.directories.pop_back();
    if (place.name == "." || place.name == "..") {
      place.name.clear();
      place.node = place.parent();
      place.type = FileType::kDirectory;
      continue;
    }
    const auto& names = *disk_.node(place.parent()).names;
    const auto found = names.find(place.name);
    place.node = found == names.end() ? 0 : found->second;
    place.type = place.node == 0 ? FileType::kOther : disk_.node(place.node).type;
  }
  place.slash = path.back() == '/';
  return place;
}

SimulatedDisk::Place SimulatedDisk::Find(const std::string& path) const {
  Place place = Resolve(path);
  if (place.error == 0 && place.node == 0) place.error = ENOENT;
  if (place.error == 0 && place.slash && place.type != FileType::kDirectory) place.error = ENOTDIR;
  return place;
}

SimulatedDisk::Place SimulatedDisk::FindDirectory(const std::string& path) const {
  Place place = Find(path);
  if (place.error == 0 && place.type != FileType::kDirectory) place.error = ENOTDIR;
  return place;
}

void SimulatedDisk::Log(DiskOperation operation) {
  if (operation.IsData()) unsynced_files_.insert(operation.node);
  if (operation.kind == Kind::kSyncData) unsynced_files_.erase(operation.node);
  if (operation.kind == Kind::kFailedSync && unsynced_files_.contains(operation.node)) {
    doubtful_files_.insert(operation.node);
  }
  disk_.Apply(operation);
  log_.operations.push_back(std::move(operation));
}

uint64_t SimulatedDisk::AddNode(Kind kind, const Place& place, const std::string& path) {
  const uint64_t node = next_node_++;
  Log({.kind = kind, .node = node, .parent = place.parent(), .name = place.name, .path = path});
  return node;
}

void SimulatedDisk::RemoveName(const Place& place, const std::string& path) {
  Log({.kind = Kind::kRemove, .node = place.node, .parent = place.parent(), .name = place.name, .path = path});
}

bool SimulatedDisk::TryClaim(Locked locked, Claim claim) {
  if (claim == Claim::kNone) return true;
  Claims& claims = claims_[{locked.client, locked.node}];
  if (claims.exclusive || (claim == Claim::kExclusive && claims.shared > 0)) return false;
  if (claim == Claim::kShared) ++claims.shared;
  if (claim == Claim::kExclusive) claims.exclusive = true;
  return true;
}

void SimulatedDisk::Unclaim(Locked locked, Claim claim) {
  if (claim == Claim::kNone) return;
  absl::MutexLock lock(&mutex_);
  Claims& claims = claims_[{locked.client, locked.node}];
  if (claim == Claim::kShared) --claims.shared;
  if (claim == Claim::kExclusive) claims.exclusive = false;
}

uint64_t SimulatedDisk::Size(uint64_t node) {
  absl::MutexLock lock(&mutex_);
  return disk_.contents(node).size();
}

size_t SimulatedDisk::Read(uint64_t node, uint64_t offset, std::span<std::byte> out) {
  absl::MutexLock lock(&mutex_);
  return disk_.contents(node).Read(offset, out);
}

void SimulatedDisk::Write(uint64_t node, const std::string& path, uint64_t offset, std::string_view bytes) {
  auto copy = std::make_shared<const std::string>(bytes);
  absl::MutexLock lock(&mutex_);
  Log({.kind = Kind::kWrite, .node = node, .offset = offset, .bytes = std::move(copy), .path = path});
}

void SimulatedDisk::Resize(Kind kind, uint64_t node, const std::string& path, uint64_t bytes) {
  absl::MutexLock lock(&mutex_);
  LogResize(kind, node, path, bytes);
}

void SimulatedDisk::LogResize(Kind kind, uint64_t node, const std::string& path, uint64_t bytes) {
  const uint64_t size = disk_.contents(node).size();
  const bool same = kind == Kind::kAllocate ? bytes <= size : bytes == size;
  if (same && !unsynced_files_.contains(node) && !doubtful_files_.contains(node)) return;
  Log({.kind = kind, .node = node, .offset = bytes, .path = path});
}

void SimulatedDisk::SyncData(uint64_t node, const std::string& path) {
  absl::MutexLock lock(&mutex_);
  Log({.kind = Kind::kSyncData, .node = node, .path = path});
}

absl::Status SimulatedDisk::CreateDirectory(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  const Place place = Resolve(path);
  const int error = place.error != 0 ? place.error : place.node != 0 ? EEXIST : 0;
  if (error != 0) return ErrnoStatus(error, "create directory", path);
  AddNode(Kind::kCreateDirectory, place, path);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<DirectoryEntry>> SimulatedDisk::ListDirectory(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  const Place place = FindDirectory(path);
  if (place.error != 0) return ErrnoStatus(place.error, "open directory", path);
  std::vector<DirectoryEntry> entries;
  for (const auto& [name, node] : *disk_.node(place.node).names) {
    entries.push_back({.name = name, .type = disk_.node(node).type});
  }
  return entries;
}

absl::StatusOr<FileType> SimulatedDisk::TypeOf(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  const Place place = Find(path);
  if (place.error != 0) return ErrnoStatus(place.error, "stat", path);
  return place.type;
}

absl::StatusOr<FileId> SimulatedDisk::Identify(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  const Place place = Find(path);
  if (place.error != 0) return ErrnoStatus(place.error, "stat", path);
  return FileId{.device = device_, .inode = place.node};
}

absl::StatusOr<std::unique_ptr<File>> SimulatedDisk::OpenForReadBy(uint64_t client, const std::string& path,
                                                                   bool direct) {
  absl::MutexLock lock(&mutex_);
  const Place place = Find(path);
  const int error = place.error != 0 ? place.error : place.type == FileType::kOther ? ELOOP : 0;
  if (error != 0) return ErrnoStatus(error, "open", path);
  if (place.type == FileType::kDirectory) {
    return absl::FailedPreconditionError(fmt::format("open {}: a directory, not a regular file", path));
  }
  const Locked locked{client, place.node};
  if (!TryClaim(locked, Claim::kShared)) {
    return absl::NotFoundError(fmt::format("open {}: its contents are gone: the file is being overwritten", path));
  }
  return std::make_unique<OpenFile>(*this, locked, path, direct, /*writable=*/false, Claim::kShared);
}

absl::StatusOr<std::unique_ptr<File>> SimulatedDisk::OpenForRewriteBy(uint64_t client, const std::string& path,
                                                                      bool direct) {
  absl::MutexLock lock(&mutex_);
  const Place place = Find(path);
  const int error = place.error != 0 ? place.error : TypeError(place.type);
  if (error != 0) return ErrnoStatus(error, "open to overwrite", path);
  if (const size_t names = disk_.NamesOf(place.node); names > 1) {
    return absl::FailedPreconditionError(fmt::format("open to overwrite {}: it has {} names", path, names));
  }
  const Locked locked{client, place.node};
  if (!TryClaim(locked, Claim::kExclusive)) return ErrnoStatus(EWOULDBLOCK, "lock to overwrite", path);
  return std::make_unique<OpenFile>(*this, locked, path, direct, /*writable=*/true, Claim::kExclusive);
}

absl::StatusOr<std::unique_ptr<File>> SimulatedDisk::Create(const std::string& path, bool direct) {
  absl::MutexLock lock(&mutex_);
  const Place place = Resolve(path);
  const int error = place.error != 0 ? place.error : place.node != 0 ? EEXIST : place.slash ? EISDIR : 0;
  if (error != 0) return ErrnoStatus(error, "create", path);
  const uint64_t node = AddNode(Kind::kCreateFile, place, path);
  return std::make_unique<OpenFile>(*this, Locked{0, node}, path, direct, /*writable=*/true, Claim::kNone);
}

absl::StatusOr<std::unique_ptr<File>> SimulatedDisk::CreateReadable(const std::string& path) {
  return Create(path, /*direct=*/false);
}

int SimulatedDisk::RenameError(const Place& from, const Place& to) const {
  if (from.error != 0 || to.error != 0) return from.error != 0 ? from.error : to.error;
  if (from.name.empty() || to.name.empty()) return EBUSY;
  const bool directory = from.type == FileType::kDirectory;
  const auto& above = to.directories;
  if (directory && std::find(above.begin(), above.end(), from.node) != above.end()) return EINVAL;
  if (to.slash && !directory) return ENOTDIR;
  if (to.node == 0 || to.node == from.node) return 0;
  if (directory && to.type != FileType::kDirectory) return ENOTDIR;
  if (!directory && to.type == FileType::kDirectory) return EISDIR;
  return disk_.node(to.node).names->empty() ? 0 : ENOTEMPTY;
}

absl::Status SimulatedDisk::NameFile(const std::string& from, const std::string& to, Naming naming) {
  absl::MutexLock lock(&mutex_);
  const Place old_place = Find(from);
  const Place new_place = Resolve(to);
  const bool links = naming == Naming::kSecond;
  int error = old_place.error != 0 ? old_place.error : new_place.error;
  if (error == 0 && links && old_place.type != FileType::kRegular) {
    return absl::FailedPreconditionError(fmt::format("link {} to {}: {} is not a regular file", from, to, from));
  }
  if (error == 0 && naming != Naming::kReplacing && new_place.node != 0) error = EEXIST;
  if (error == 0) error = RenameError(old_place, new_place);
  const std::string operation =
      fmt::format("{} {} to{}", links ? "link" : "rename", from, naming == Naming::kNew ? " new" : "");
  if (error != 0) return ErrnoStatus(error, operation, to);
  if (old_place.node == new_place.node) return absl::OkStatus();
  Log({.kind = links ? Kind::kLink : Kind::kRename,
       .node = old_place.node,
       .parent = old_place.parent(),
       .new_parent = new_place.parent(),
       .replaced = new_place.node,
       .name = old_place.name,
       .new_name = new_place.name,
       .path = from,
       .new_path = to});
  return absl::OkStatus();
}

absl::Status SimulatedDisk::RemoveFile(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  const Place place = Find(path);
  const int error = place.error != 0 ? place.error : place.type == FileType::kDirectory ? EISDIR : 0;
  if (error != 0) return ErrnoStatus(error, "remove", path);
  RemoveName(place, path);
  return absl::OkStatus();
}

absl::Status SimulatedDisk::RemoveDirectory(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  const Place place = FindDirectory(path);
  int error = place.error;
  if (error == 0 && !disk_.node(place.node).names->empty()) error = ENOTEMPTY;
  if (error == 0 && place.name.empty()) error = EBUSY;
  if (error != 0) return ErrnoStatus(error, "remove directory", path);
  RemoveName(place, path);
  return absl::OkStatus();
}

absl::Status SimulatedDisk::SyncDirectory(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  const Place place = FindDirectory(path);
  if (place.error != 0) return ErrnoStatus(place.error, "open directory", path);
  Log({.kind = Kind::kSyncDirectory, .node = place.node, .path = path});
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Directory>> SimulatedDisk::OpenDirectory(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  const Place place = FindDirectory(path);
  if (place.error != 0) return ErrnoStatus(place.error, "open directory", path);
  return NewDirectory([this, path, node = place.node, told = failed_syncs_[place.node]]() mutable {
    absl::MutexLock sync_lock(&mutex_);
    const size_t failed = failed_syncs_[node];
    if (std::exchange(told, failed) != failed) return ErrnoStatus(EIO, "sync directory", path);
    Log({.kind = Kind::kSyncDirectory, .node = node, .path = path});
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<FileLock>> SimulatedDisk::TryLockBy(uint64_t client, const std::string& path) {
  absl::MutexLock lock(&mutex_);
  const Place place = Resolve(path);
  int error = place.error;
  if (error == 0) error = place.node == 0 ? (place.slash ? EISDIR : 0) : TypeError(place.type);
  if (error != 0) return ErrnoStatus(error, "open lock file", path);
  const uint64_t node = place.node != 0 ? place.node : AddNode(Kind::kCreateFile, place, path);
  const Locked locked{client, node};
  if (!TryClaim(locked, Claim::kExclusive)) return LockIsHeld(path, disk_.contents(node).ToString());
  LogResize(Kind::kTruncate, node, path, 0);
  return std::make_unique<HeldLock>(*this, locked, path);
}

absl::StatusOr<std::string> SimulatedDisk::ReadNote(const std::string& path, size_t bytes_max) {
  absl::MutexLock lock(&mutex_);
  const Place place = Find(path);
  const int error = place.error != 0 ? place.error : place.type == FileType::kOther ? ELOOP : 0;
  if (error != 0) return ErrnoStatus(error, "open lock file", path);
  if (place.type == FileType::kDirectory) {
    return absl::FailedPreconditionError(fmt::format("open lock file {}: not a regular file", path));
  }
  const FileContents& note = disk_.contents(place.node);
  if (note.size() > bytes_max) {
    return absl::ResourceExhaustedError(
        fmt::format("read note in {}: more than {} bytes, where fewer are expected", path, bytes_max));
  }
  return note.ToString();
}

absl::StatusOr<std::unique_ptr<IoQueue>> SimulatedDisk::NewIoQueue(IoQueueKind kind, size_t depth) {
  if (depth < 1 || depth > kDepthMax) {
    return absl::InvalidArgumentError(fmt::format("I/O queue of depth {}: it must be 1 to {}", depth, kDepthMax));
  }
  if (kind == IoQueueKind::kUring) return absl::UnavailableError(kNoUring);
  return std::make_unique<SimulatedQueue>(depth, kind == IoQueueKind::kAuto ? kNoUring : "");
}

}  // namespace tidemark::storage
