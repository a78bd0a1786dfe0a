#include "tests/storage/io/simulated_disk.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "fmt/format.h"
#include "storage/io/errno_status.h"
#include "storage/io/transfer.h"
#include "tests/storage/io/simulated_queue.h"

namespace tidemark::storage {
namespace {

using Kind = DiskOperation::Kind;

constexpr size_t kDepthMax = 256;
constexpr size_t kNameBytesMax = 255;
constexpr size_t kNoteShownMax = 256;
constexpr uint64_t kFileBytesMax = uint64_t{1} << 30;
constexpr const char* kNoUring = "a simulated disk has no io_uring";

}  // namespace

// Constant but for being closed. `claim` is taken already.
class SimulatedDisk::OpenFile final : public File {
 public:
  OpenFile(SimulatedDisk& disk, uint64_t node, std::string path, bool direct, bool writable, Claim claim)
      : disk_(disk), node_(node), path_(std::move(path)), direct_(direct), writable_(writable), claim_(claim) {}
  ~OpenFile() override { Close().IgnoreError(); }

  const std::string& path() const override { return path_; }
  bool direct() const override { return direct_; }

  absl::StatusOr<uint64_t> Size() override {
    if (closed_) return ErrnoStatus(EBADF, "stat", path_);
    return disk_.Size(node_);
  }

  absl::Status ReadAt(uint64_t offset, std::span<std::byte> out) override {
    Transfer transfer(IoRequest::Kind::kRead, path_, direct_, offset, out.size());
    if (absl::Status range = transfer.CheckRange(); !range.ok()) return range;
    if (closed_) return *transfer.Advance(-EBADF);
    if (Misaligned(offset, out.data(), out.size())) return *transfer.Advance(-EINVAL);
    std::optional<absl::Status> finished;
    while (!finished) {
      const size_t read = disk_.Read(node_, transfer.next_offset(), out.subspan(transfer.done(), transfer.next_size()));
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
    disk_.Write(node_, path_, offset, {reinterpret_cast<const char*>(data.data()), data.size()});
    return absl::OkStatus();
  }

  absl::Status Allocate(uint64_t bytes) override {
    const int error = closed_ || !writable_ ? EBADF : bytes == 0 ? EINVAL : bytes > kFileBytesMax ? EFBIG : 0;
    if (error != 0) return ErrnoStatus(error, fmt::format("allocate {} bytes for", bytes), path_);
    disk_.Resize(Kind::kAllocate, node_, path_, bytes);
    return absl::OkStatus();
  }

  absl::Status Truncate(uint64_t bytes) override {
    const int error = closed_ ? EBADF : !writable_ ? EINVAL : bytes > kFileBytesMax ? EFBIG : 0;
    if (error != 0) return ErrnoStatus(error, fmt::format("truncate to {} bytes", bytes), path_);
    disk_.Resize(Kind::kTruncate, node_, path_, bytes);
    return absl::OkStatus();
  }

  absl::Status SyncData() override {
    if (closed_) return ErrnoStatus(EBADF, "sync", path_);
    disk_.SyncData(node_, path_);
    return absl::OkStatus();
  }

  absl::Status Close() override {
    if (!std::exchange(closed_, true)) disk_.Unclaim(node_, claim_);
    return absl::OkStatus();
  }

 private:
  bool Misaligned(uint64_t offset, const std::byte* data, size_t size) const {
    return direct_ && (offset | size | reinterpret_cast<uintptr_t>(data)) % kDirectAlignment != 0;
  }

  SimulatedDisk& disk_;
  const uint64_t node_;
  const std::string path_;
  const bool direct_;
  const bool writable_;
  const Claim claim_;
  bool closed_ = false;
};

class SimulatedDisk::HeldLock final : public FileLock {
 public:
  HeldLock(SimulatedDisk& disk, uint64_t node, std::string path) : disk_(disk), node_(node), path_(std::move(path)) {}
  ~HeldLock() override { disk_.Unclaim(node_, Claim::kExclusive); }

  absl::Status WriteNote(std::string_view note) override {
    if (!note.empty()) disk_.Write(node_, path_, 0, note);
    disk_.Resize(Kind::kTruncate, node_, path_, note.size());
    disk_.SyncData(node_, path_);
    return absl::OkStatus();
  }

 private:
  SimulatedDisk& disk_;
  const uint64_t node_;
  const std::string path_;
};

// Numbers of nodes are not used again, be they lost: each cost an operation, and time goes on.
SimulatedDisk::SimulatedDisk(DiskImage image)
    : disk_([&] {
        image.RemoveOrphans();
        return image;
      }()) {
  next_node_ = std::max(image.nodes.rbegin()->first, DiskImage::kRoot + image.time) + 1;
  log_.boot = std::move(image);
}

SimulatedDisk::~SimulatedDisk() = default;

void SimulatedDisk::Mark(std::string text) {
  absl::MutexLock lock(&mutex_);
  Log({.kind = Kind::kMark, .name = std::move(text)});
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

absl::StatusOr<SimulatedDisk::Place> SimulatedDisk::Resolve(const std::string& path, std::string_view operation) const {
  Place place;
  place.directories = {DiskImage::kRoot};
  place.node = DiskImage::kRoot;
  place.type = FileType::kDirectory;
  if (path.empty()) return ErrnoStatus(ENOENT, operation, path);
  for (size_t at = path.find_first_not_of('/'); at != std::string::npos;) {
    // What the components before this one lead to is no last component: it has to be a directory.
    if (!place.name.empty()) {
      if (place.node == 0) return ErrnoStatus(ENOENT, operation, path);
      if (place.type != FileType::kDirectory) return ErrnoStatus(ENOTDIR, operation, path);
      place.directories.push_back(place.node);
    }
    const size_t end = std::min(path.find('/', at), path.size());
    place.name = path.substr(at, end - at);
    at = path.find_first_not_of('/', end);
    if (place.name.size() > kNameBytesMax) return ErrnoStatus(ENAMETOOLONG, operation, path);
    if (place.name == ".." && place.directories.size() > 1) place.directories.pop_back();
    if (place.name == "." || place.name == "..") {
      place.name.clear();
      place.node = place.parent();
      place.type = FileType::kDirectory;
      continue;
    }
    const auto& names = disk_.node(place.parent()).names;
    const auto found = names.find(place.name);
    place.node = found == names.end() ? 0 : found->second;
    place.type = place.node == 0 ? FileType::kOther : disk_.node(place.node).type;
  }
  place.slash = path.back() == '/';
  if (place.slash && place.node != 0 && place.type != FileType::kDirectory) {
    return ErrnoStatus(ENOTDIR, operation, path);
  }
  return place;
}

absl::StatusOr<SimulatedDisk::Place> SimulatedDisk::Find(const std::string& path, std::string_view operation) const {
  absl::StatusOr<Place> place = Resolve(path, operation);
  if (place.ok() && place->node == 0) return ErrnoStatus(ENOENT, operation, path);
  return place;
}

absl::StatusOr<uint64_t> SimulatedDisk::FindDirectory(const std::string& path, std::string_view operation) const {
  absl::StatusOr<Place> place = Find(path, operation);
  if (!place.ok()) return place.status();
  if (place->type != FileType::kDirectory) return ErrnoStatus(ENOTDIR, operation, path);
  return place->node;
}

void SimulatedDisk::Log(DiskOperation operation) {
  if (operation.IsData()) unsynced_files_.insert(operation.node);
  if (operation.kind == Kind::kSyncData) unsynced_files_.erase(operation.node);
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

bool SimulatedDisk::TryClaim(uint64_t node, Claim claim) {
  if (claim == Claim::kNone) return true;
  Claims& claims = claims_[node];
  if (claims.exclusive || (claim == Claim::kExclusive && claims.shared > 0)) return false;
  if (claim == Claim::kShared) ++claims.shared;
  if (claim == Claim::kExclusive) claims.exclusive = true;
  return true;
}

void SimulatedDisk::Unclaim(uint64_t node, Claim claim) {
  if (claim == Claim::kNone) return;
  absl::MutexLock lock(&mutex_);
  Claims& claims = claims_[node];
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
  if (same && !unsynced_files_.contains(node)) return;
  Log({.kind = kind, .node = node, .offset = bytes, .path = path});
}

void SimulatedDisk::SyncData(uint64_t node, const std::string& path) {
  absl::MutexLock lock(&mutex_);
  Log({.kind = Kind::kSyncData, .node = node, .path = path});
}

absl::Status SimulatedDisk::CreateDirectory(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<Place> place = Resolve(path, "create directory");
  if (absl::IsFailedPrecondition(place.status()) && Resolve(path.substr(0, path.find_last_not_of('/') + 1), "").ok()) {
    return ErrnoStatus(EEXIST, "create directory", path);
  }
  if (!place.ok()) return place.status();
  if (place->node != 0) return ErrnoStatus(EEXIST, "create directory", path);
  AddNode(Kind::kCreateDirectory, *place, path);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<DirectoryEntry>> SimulatedDisk::ListDirectory(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<uint64_t> directory = FindDirectory(path, "open directory");
  if (!directory.ok()) return directory.status();
  std::vector<DirectoryEntry> entries;
  for (const auto& [name, node] : disk_.node(*directory).names) {
    entries.push_back({.name = name, .type = disk_.node(node).type});
  }
  return entries;
}

absl::StatusOr<FileType> SimulatedDisk::TypeOf(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<Place> place = Find(path, "stat");
  if (!place.ok()) return place.status();
  return place->type;
}

absl::StatusOr<DirectoryStamp> SimulatedDisk::StampDirectory(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<Place> place = Find(path, "stat");
  if (!place.ok()) return place.status();
  if (place->type != FileType::kDirectory) {
    return absl::FailedPreconditionError(fmt::format("stamp directory {}: it is none", path));
  }
  const DiskImage::Node& directory = disk_.node(place->node);
  const auto subdirectories = std::count_if(directory.names.begin(), directory.names.end(), [&](const auto& entry) {
    mutex_.AssertHeld();
    return disk_.node(entry.second).type == FileType::kDirectory;
  });
  return DirectoryStamp{.inode = place->node,
                        .links = 2 + static_cast<uint64_t>(subdirectories),
                        .modified_unix_ns = static_cast<int64_t>(directory.changed),
                        .changed_unix_ns = static_cast<int64_t>(directory.changed)};
}

absl::StatusOr<std::unique_ptr<File>> SimulatedDisk::OpenForRead(const std::string& path, bool direct) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<Place> place = Find(path, "open");
  if (!place.ok()) return place.status();
  if (place->type == FileType::kOther) return ErrnoStatus(ELOOP, "open", path);
  if (place->type == FileType::kDirectory) {
    return absl::FailedPreconditionError(fmt::format("open {}: a directory, not a regular file", path));
  }
  if (!TryClaim(place->node, Claim::kShared)) {
    return absl::NotFoundError(fmt::format("open {}: what it held is gone, for it is being written anew", path));
  }
  return std::make_unique<OpenFile>(*this, place->node, path, direct, /*writable=*/false, Claim::kShared);
}

absl::StatusOr<std::unique_ptr<File>> SimulatedDisk::OpenForRewrite(const std::string& path, bool direct) {
  constexpr std::string_view kOperation = "open to write anew";
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<Place> place = Find(path, kOperation);
  if (!place.ok()) return place.status();
  if (place->type == FileType::kOther) return ErrnoStatus(ELOOP, kOperation, path);
  if (place->type == FileType::kDirectory) return ErrnoStatus(EISDIR, kOperation, path);
  if (!TryClaim(place->node, Claim::kExclusive)) return ErrnoStatus(EAGAIN, "lock to write anew", path);
  return std::make_unique<OpenFile>(*this, place->node, path, direct, /*writable=*/true, Claim::kExclusive);
}

absl::StatusOr<std::unique_ptr<File>> SimulatedDisk::Create(const std::string& path, bool direct) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<Place> place = Resolve(path, "create");
  if (!place.ok()) return place.status();
  if (place->node != 0) return ErrnoStatus(EEXIST, "create", path);
  if (place->slash) return ErrnoStatus(EISDIR, "create", path);
  const uint64_t node = AddNode(Kind::kCreateFile, *place, path);
  return std::make_unique<OpenFile>(*this, node, path, direct, /*writable=*/true, Claim::kNone);
}

absl::StatusOr<std::unique_ptr<File>> SimulatedDisk::CreateReadable(const std::string& path) {
  return Create(path, /*direct=*/false);
}

absl::Status SimulatedDisk::CheckRename(const Place& from, const Place& to, std::string_view operation,
                                        const std::string& path) {
  if (from.name.empty() || to.name.empty()) return ErrnoStatus(EBUSY, operation, path);
  const bool directory = from.type == FileType::kDirectory;
  const auto& above = to.directories;
  if (directory && std::find(above.begin(), above.end(), from.node) != above.end()) {
    return ErrnoStatus(EINVAL, operation, path);
  }
  if (to.slash && !directory) return ErrnoStatus(ENOTDIR, operation, path);
  if (to.node == 0 || to.node == from.node) return absl::OkStatus();
  if (directory && to.type != FileType::kDirectory) return ErrnoStatus(ENOTDIR, operation, path);
  if (!disk_.node(to.node).names.empty()) return ErrnoStatus(directory ? ENOTEMPTY : EISDIR, operation, path);
  if (!directory && to.type == FileType::kDirectory) return ErrnoStatus(EISDIR, operation, path);
  return absl::OkStatus();
}

absl::Status SimulatedDisk::Rename(const std::string& from, const std::string& to) {
  absl::MutexLock lock(&mutex_);
  const std::string operation = fmt::format("rename {} to", from);
  absl::StatusOr<Place> old_place = Resolve(from, operation);
  absl::StatusOr<Place> new_place = Resolve(to, operation);
  if (old_place.ok() && old_place->node == 0) old_place = absl::NotFoundError("");
  for (const auto* place : {&old_place, &new_place}) {
    if (place->ok()) continue;
    return absl::IsNotFound(place->status()) ? ErrnoStatus(ENOENT, operation, to) : ErrnoStatus(ENOTDIR, operation, to);
  }
  if (absl::Status status = CheckRename(*old_place, *new_place, operation, to); !status.ok()) return status;
  if (old_place->node == new_place->node) return absl::OkStatus();
  Log({.kind = Kind::kRename,
       .node = old_place->node,
       .parent = old_place->parent(),
       .new_parent = new_place->parent(),
       .replaced = new_place->node,
       .name = old_place->name,
       .new_name = new_place->name,
       .path = from,
       .new_path = to});
  return absl::OkStatus();
}

absl::Status SimulatedDisk::RemoveFile(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<Place> place = Find(path, "remove");
  if (!place.ok()) return place.status();
  if (place->type == FileType::kDirectory) return ErrnoStatus(EISDIR, "remove", path);
  RemoveName(*place, path);
  return absl::OkStatus();
}

absl::Status SimulatedDisk::RemoveDirectory(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<Place> place = Find(path, "remove directory");
  if (!place.ok()) return place.status();
  if (place->type != FileType::kDirectory) return ErrnoStatus(ENOTDIR, "remove directory", path);
  if (!disk_.node(place->node).names.empty()) return ErrnoStatus(ENOTEMPTY, "remove directory", path);
  if (place->name.empty()) return ErrnoStatus(EBUSY, "remove directory", path);
  RemoveName(*place, path);
  return absl::OkStatus();
}

absl::Status SimulatedDisk::SyncDirectory(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<uint64_t> directory = FindDirectory(path, "open directory");
  if (!directory.ok()) return directory.status();
  Log({.kind = Kind::kSyncDirectory, .node = *directory, .path = path});
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<FileLock>> SimulatedDisk::TryLock(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<Place> place = Resolve(path, "open lock file");
  if (!place.ok()) return place.status();
  if (place->node == 0 && place->slash) return ErrnoStatus(EISDIR, "open lock file", path);
  if (place->node != 0 && place->type == FileType::kDirectory) return ErrnoStatus(EISDIR, "open lock file", path);
  if (place->node != 0 && place->type == FileType::kOther) return ErrnoStatus(ELOOP, "open lock file", path);
  const uint64_t node = place->node != 0 ? place->node : AddNode(Kind::kCreateFile, *place, path);
  if (!TryClaim(node, Claim::kExclusive)) {
    std::string note = NoteOf(node).substr(0, kNoteShownMax);
    for (char& c : note) {
      if (c < ' ' || c > '~') c = '?';
    }
    return absl::UnavailableError(
        fmt::format("lock {}: held by {}", path, note.empty() ? "a process that left no note" : note));
  }
  LogResize(Kind::kTruncate, node, path, 0);
  return std::make_unique<HeldLock>(*this, node, path);
}

absl::StatusOr<std::string> SimulatedDisk::ReadNote(const std::string& path, size_t bytes_max) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<Place> place = Find(path, "open lock file");
  if (!place.ok()) return place.status();
  if (place->type == FileType::kOther) return ErrnoStatus(ELOOP, "open lock file", path);
  if (place->type == FileType::kDirectory) {
    return absl::FailedPreconditionError(fmt::format("open lock file {}: not a regular file", path));
  }
  std::string note = NoteOf(place->node);
  if (note.size() > bytes_max) {
    return absl::ResourceExhaustedError(
        fmt::format("read note in {}: more than {} bytes, where fewer are expected", path, bytes_max));
  }
  return note;
}

std::string SimulatedDisk::NoteOf(uint64_t node) const { return disk_.contents(node).ToString(); }

absl::StatusOr<std::unique_ptr<IoQueue>> SimulatedDisk::NewIoQueue(IoQueueKind kind, size_t depth) {
  if (depth < 1 || depth > kDepthMax) {
    return absl::InvalidArgumentError(fmt::format("I/O queue of depth {}: 1 to {} are possible", depth, kDepthMax));
  }
  if (kind == IoQueueKind::kUring) return absl::UnavailableError(kNoUring);
  return std::make_unique<SimulatedQueue>(depth, kind == IoQueueKind::kAuto ? kNoUring : "");
}

}  // namespace tidemark::storage
