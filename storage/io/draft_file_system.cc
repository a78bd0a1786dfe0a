#include "storage/io/draft_file_system.h"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <map>
#include <optional>

#include "fmt/format.h"
#include "storage/io/check.h"
#include "storage/io/draft_contents.h"
#include "storage/io/errno_status.h"
#include "storage/io/lock_note.h"

namespace tidemark::storage {

class DraftFileSystem::MemoryFile final : public File {
 public:
  MemoryFile(std::string path, std::shared_ptr<DraftContents> contents, bool writable)
      : path_(std::move(path)), contents_(std::move(contents)), writable_(writable) {}

  const std::string& path() const override { return path_; }
  bool direct() const override { return false; }
  absl::StatusOr<uint64_t> Size() override { return contents_->Size(); }
  absl::Status ReadAt(uint64_t offset, std::span<std::byte> out) override {
    if (contents_->Read(offset, out)) return absl::OkStatus();
    return absl::DataLossError(
        fmt::format("read {}: {} bytes at {}, but the file ends at {}", path_, out.size(), offset, contents_->Size()));
  }
  absl::Status WriteAt(uint64_t offset, std::span<const std::byte> data) override {
    if (!writable_) return ErrnoStatus(EBADF, "write", path_);
    contents_->Write(offset, data);
    return absl::OkStatus();
  }
  absl::Status Allocate(uint64_t bytes) override {
    if (!writable_) return ErrnoStatus(EBADF, "allocate", path_);
    contents_->Grow(bytes);
    return absl::OkStatus();
  }
  absl::Status Truncate(uint64_t bytes) override {
    if (!writable_) return ErrnoStatus(EBADF, "truncate", path_);
    contents_->Resize(bytes);
    return absl::OkStatus();
  }
  absl::Status SyncData() override { return absl::OkStatus(); }
  absl::Status Close() override { return absl::OkStatus(); }

 private:
  const std::string path_;
  const std::shared_ptr<DraftContents> contents_;
  const bool writable_;
};

struct DraftFileSystem::Node {
  FileType type = FileType::kDirectory;
  std::string base_path;                    // where the base has it, wherever it is now; empty: it was made here
  std::shared_ptr<DraftContents> contents;  // of a file; null: as in the base
  std::map<std::string, NodePtr> names;     // of a directory: those that were looked for or changed; null: removed
  bool names_loaded = false;                // `names` has all that the base has
  bool locked = false;
  size_t links = 1;  // names of a file
};

// Transfers of what was written here are done at once, all others by a queue of the base.
class DraftFileSystem::Queue final : public IoQueue {
 public:
  Queue(FileSystem& base, IoQueueKind kind, size_t depth) : base_(base), kind_(kind), depth_(depth) {}

  std::string_view name() const override { return queue_ == nullptr ? "threads" : queue_->name(); }
  size_t depth() const override { return depth_; }
  size_t in_flight() const override { return done_.size() + (queue_ == nullptr ? 0 : queue_->in_flight()); }

  void Submit(const IoRequest& request) override {
    Check(in_flight() < depth_, "a transfer was submitted to a full I/O queue");
    const bool reads = request.kind == IoRequest::Kind::kRead;
    if (dynamic_cast<MemoryFile*>(request.file) != nullptr) {
      done_.push_back({request.tag, reads ? request.file->ReadAt(request.offset, {request.data, request.size})
                                          : request.file->WriteAt(request.offset, {request.data, request.size})});
      return;
    }
    if (queue_ == nullptr) {
      absl::StatusOr<std::unique_ptr<IoQueue>> queue = base_.NewIoQueue(kind_, depth_);
      if (!queue.ok()) {
        done_.push_back({request.tag, queue.status()});
        return;
      }
      queue_ = *std::move(queue);
    }
    queue_->Submit(request);
  }

  IoCompletion Wait() override {
    if (done_.empty()) return queue_->Wait();
    IoCompletion completion = std::move(done_.front());
    done_.pop_front();
    return completion;
  }

  std::optional<IoCompletion> Poll() override {
    if (!done_.empty()) return Wait();
    return queue_ == nullptr ? std::nullopt : queue_->Poll();
  }

 private:
  FileSystem& base_;
  const IoQueueKind kind_;
  const size_t depth_;
  std::unique_ptr<IoQueue> queue_;  // made when it is needed
  std::deque<IoCompletion> done_;
};

class DraftFileSystem::Lock final : public FileLock {
 public:
  Lock(absl::Mutex& mutex, NodePtr node) : mutex_(mutex), node_(std::move(node)) {}
  ~Lock() override {
    absl::MutexLock lock(&mutex_);
    node_->locked = false;
  }
  absl::Status WriteNote(std::string_view note) override {
    node_->contents->Replace(std::string(note));
    return absl::OkStatus();
  }

 private:
  absl::Mutex& mutex_;
  const NodePtr node_;
};

DraftFileSystem::DraftFileSystem(FileSystem& base, std::string directory)
    : base_(base), directory_(std::move(directory)) {}

DraftFileSystem::~DraftFileSystem() = default;

bool DraftFileSystem::IsWithin(std::string_view path) const {
  return path.starts_with(directory_) && (path.size() == directory_.size() || path[directory_.size()] == '/');
}

absl::StatusOr<DraftFileSystem::NodePtr> DraftFileSystem::Root() {
  if (root_ != nullptr) return root_;
  absl::StatusOr<FileType> type = base_.TypeOf(directory_);
  if (!type.ok()) return type.status();
  root_ = std::make_shared<Node>(Node{.type = *type, .base_path = directory_});
  return root_;
}

// kNotFound if there is none; the message is the caller's to make.
absl::StatusOr<DraftFileSystem::NodePtr> DraftFileSystem::Child(const NodePtr& parent, const std::string& name) {
  const absl::Status missing = absl::NotFoundError(name);
  if (const auto known = parent->names.find(name); known != parent->names.end()) {
    if (known->second == nullptr) return missing;
    return known->second;
  }
  if (parent->names_loaded || parent->base_path.empty()) return missing;
  const std::string path = parent->base_path + "/" + name;
  absl::StatusOr<FileType> type = base_.TypeOf(path);
  if (!type.ok()) return type.status();
  return parent->names[name] = std::make_shared<Node>(Node{.type = *type, .base_path = path});
}

absl::StatusOr<DraftFileSystem::NodePtr> DraftFileSystem::Find(std::string_view operation, const std::string& path) {
  absl::StatusOr<NodePtr> node = Root();
  for (size_t begin = directory_.size(); node.ok() && begin < path.size();) {
    size_t end = path.find('/', begin + 1);
    if (end == std::string::npos) end = path.size();
    const std::string name = path.substr(begin + 1, end - begin - 1);
    begin = end;
    if (name.empty()) continue;
    if ((*node)->type != FileType::kDirectory) return ErrnoStatus(ENOTDIR, operation, path);
    node = Child(*node, name);
  }
  if (absl::IsNotFound(node.status())) return ErrnoStatus(ENOENT, operation, path);
  return node;
}

absl::StatusOr<DraftFileSystem::Place> DraftFileSystem::FindPlace(std::string_view operation, const std::string& path) {
  if (!IsWithin(path) || path.size() <= directory_.size() + 1) {
    return absl::FailedPreconditionError(
        fmt::format("{} {}: only what is below {} can be tried out", operation, path, directory_));
  }
  const size_t slash = path.find_last_of('/');
  absl::StatusOr<NodePtr> parent = Find(operation, path.substr(0, slash));
  if (!parent.ok()) return absl::IsNotFound(parent.status()) ? ErrnoStatus(ENOENT, operation, path) : parent.status();
  if ((*parent)->type != FileType::kDirectory) return ErrnoStatus(ENOTDIR, operation, path);
  return Place{*std::move(parent), path.substr(slash + 1)};
}

void DraftFileSystem::SetName(const Place& place, NodePtr node) { place.parent->names[place.name] = std::move(node); }

absl::Status DraftFileSystem::LoadNames(const NodePtr& directory) {
  if (directory->names_loaded || directory->base_path.empty()) return absl::OkStatus();
  absl::StatusOr<std::vector<DirectoryEntry>> entries = base_.ListDirectory(directory->base_path);
  if (!entries.ok()) return entries.status();
  for (const DirectoryEntry& entry : *entries) {
    if (directory->names.contains(entry.name)) continue;
    directory->names[entry.name] =
        std::make_shared<Node>(Node{.type = entry.type, .base_path = directory->base_path + "/" + entry.name});
  }
  directory->names_loaded = true;
  return absl::OkStatus();
}

absl::StatusOr<bool> DraftFileSystem::IsEmpty(const NodePtr& directory) {
  if (absl::Status status = LoadNames(directory); !status.ok()) return status;
  return std::all_of(directory->names.begin(), directory->names.end(),
                     [](const auto& name) { return name.second == nullptr; });
}

absl::Status DraftFileSystem::CreateDirectory(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<Place> place = FindPlace("create directory", path);
  if (!place.ok()) return place.status();
  absl::StatusOr<NodePtr> there = Child(place->parent, place->name);
  if (there.ok()) return ErrnoStatus(EEXIST, "create directory", path);
  if (!absl::IsNotFound(there.status())) return there.status();
  SetName(*place, std::make_shared<Node>());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<DirectoryEntry>> DraftFileSystem::ListDirectory(const std::string& path) {
  if (!IsWithin(path)) return base_.ListDirectory(path);
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<NodePtr> node = Find("open directory", path);
  if (!node.ok()) return node.status();
  if ((*node)->type != FileType::kDirectory) return ErrnoStatus(ENOTDIR, "open directory", path);
  if (absl::Status status = LoadNames(*node); !status.ok()) return status;
  std::vector<DirectoryEntry> entries;
  for (const auto& [name, child] : (*node)->names) {
    if (child != nullptr) entries.push_back({.name = name, .type = child->type});
  }
  return entries;
}

absl::StatusOr<FileType> DraftFileSystem::TypeOf(const std::string& path) {
  if (!IsWithin(path)) return base_.TypeOf(path);
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<NodePtr> node = Find("stat", path);
  if (!node.ok()) return node.status();
  return (*node)->type;
}

absl::StatusOr<FileId> DraftFileSystem::Identify(const std::string& path) {
  if (!IsWithin(path)) return base_.Identify(path);
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<NodePtr> node = Find("stat", path);
  if (!node.ok()) return node.status();
  // The base has no device of that number.
  return FileId{.device = ~uint64_t{0}, .inode = reinterpret_cast<uintptr_t>(node->get())};
}

absl::StatusOr<std::unique_ptr<File>> DraftFileSystem::OpenForRead(const std::string& path, bool direct) {
  std::string base_path = path;
  if (IsWithin(path)) {
    absl::MutexLock lock(&mutex_);
    absl::StatusOr<NodePtr> node = Find("open", path);
    if (!node.ok()) return node.status();
    if ((*node)->type == FileType::kDirectory && (*node)->base_path.empty()) {
      return absl::FailedPreconditionError(fmt::format("open {}: not a regular file", path));
    }
    if ((*node)->locked) {
      return absl::NotFoundError(fmt::format("open {}: its contents are gone: the file is locked", path));
    }
    if ((*node)->contents != nullptr) return std::make_unique<MemoryFile>(path, (*node)->contents, /*writable=*/false);
    base_path = (*node)->base_path;
  }
  return base_.OpenForRead(base_path, direct);
}

absl::StatusOr<std::shared_ptr<DraftContents>> DraftFileSystem::MakeFile(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<Place> place = FindPlace("create", path);
  if (!place.ok()) return place.status();
  absl::StatusOr<NodePtr> there = Child(place->parent, place->name);
  if (there.ok()) return ErrnoStatus(EEXIST, "create", path);
  if (!absl::IsNotFound(there.status())) return there.status();
  auto contents = std::make_shared<DraftContents>();
  SetName(*place, std::make_shared<Node>(Node{.type = FileType::kRegular, .contents = contents}));
  return contents;
}

absl::StatusOr<std::unique_ptr<File>> DraftFileSystem::Create(const std::string& path, bool) {
  absl::StatusOr<std::shared_ptr<DraftContents>> contents = MakeFile(path);
  if (!contents.ok()) return contents.status();
  return std::make_unique<MemoryFile>(path, *std::move(contents), /*writable=*/true);
}

absl::StatusOr<std::unique_ptr<File>> DraftFileSystem::CreateReadable(const std::string& path) {
  return Create(path, /*direct=*/false);
}

// The whole file, so that it can be written over.
absl::Status DraftFileSystem::Load(const NodePtr& file, const std::string& path) {
  if (file->type != FileType::kRegular) {
    return absl::FailedPreconditionError(fmt::format("open {}: not a regular file", path));
  }
  if (file->contents != nullptr) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<File>> opened = base_.OpenForRead(file->base_path, /*direct=*/false);
  if (!opened.ok()) return opened.status();
  absl::StatusOr<uint64_t> size = (*opened)->Size();
  if (!size.ok()) return size.status();
  std::string bytes(*size, '\0');
  if (absl::Status status = (*opened)->ReadAt(0, std::as_writable_bytes(std::span(bytes))); !status.ok()) return status;
  file->contents = std::make_shared<DraftContents>(std::move(bytes));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<File>> DraftFileSystem::OpenForRewrite(const std::string& path, bool) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<Place> place = FindPlace("open to overwrite", path);
  if (!place.ok()) return place.status();
  absl::StatusOr<NodePtr> node = Find("open to overwrite", path);
  if (!node.ok()) return node.status();
  if ((*node)->links > 1) {
    return absl::FailedPreconditionError(fmt::format("open to overwrite {}: it has {} names", path, (*node)->links));
  }
  if (absl::Status status = Load(*node, path); !status.ok()) return status;
  return std::make_unique<MemoryFile>(path, (*node)->contents, /*writable=*/true);
}

absl::Status DraftFileSystem::NameFile(const std::string& from, const std::string& to, Naming naming) {
  const std::string operation = fmt::format("{} {} to", naming == Naming::kSecond ? "link" : "rename", from);
  absl::StatusOr<Place> source = FindPlace(operation, from);
  if (!source.ok()) return source.status();
  absl::StatusOr<Place> target = FindPlace(operation, to);
  if (!target.ok()) return target.status();
  absl::StatusOr<NodePtr> node = Child(source->parent, source->name);
  if (absl::IsNotFound(node.status())) return ErrnoStatus(ENOENT, operation, to);
  if (!node.ok()) return node.status();
  if (naming == Naming::kSecond && (*node)->type != FileType::kRegular) {
    return absl::FailedPreconditionError(fmt::format("{} {}: {} is not a regular file", operation, to, from));
  }
  absl::StatusOr<NodePtr> replaced = Child(target->parent, target->name);
  if (!replaced.ok() && !absl::IsNotFound(replaced.status())) return replaced.status();
  if (replaced.ok()) {
    if (naming != Naming::kReplacing) return ErrnoStatus(EEXIST, operation, to);
    if (*replaced == *node) return absl::OkStatus();
    const bool directory = (*node)->type == FileType::kDirectory;
    if (((*replaced)->type == FileType::kDirectory) != directory) {
      return ErrnoStatus(directory ? ENOTDIR : EISDIR, operation, to);
    }
    if (directory) {
      absl::StatusOr<bool> empty = IsEmpty(*replaced);
      if (!empty.ok()) return empty.status();
      if (!*empty) return ErrnoStatus(ENOTEMPTY, operation, to);
    }
  }
  if (to.starts_with(from + "/")) return ErrnoStatus(EINVAL, operation, to);
  if (replaced.ok()) --(*replaced)->links;
  SetName(*target, *node);
  if (naming == Naming::kSecond) {
    ++(*node)->links;
  } else {
    SetName(*source, nullptr);
  }
  return absl::OkStatus();
}

absl::Status DraftFileSystem::RemoveFile(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<Place> place = FindPlace("remove", path);
  if (!place.ok()) return place.status();
  absl::StatusOr<NodePtr> node = Child(place->parent, place->name);
  if (absl::IsNotFound(node.status())) return ErrnoStatus(ENOENT, "remove", path);
  if (!node.ok()) return node.status();
  if ((*node)->type == FileType::kDirectory) return ErrnoStatus(EISDIR, "remove", path);
  --(*node)->links;
  SetName(*place, nullptr);
  return absl::OkStatus();
}

absl::Status DraftFileSystem::RemoveDirectory(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<Place> place = FindPlace("remove directory", path);
  if (!place.ok()) return place.status();
  absl::StatusOr<NodePtr> node = Child(place->parent, place->name);
  if (absl::IsNotFound(node.status())) return ErrnoStatus(ENOENT, "remove directory", path);
  if (!node.ok()) return node.status();
  if ((*node)->type != FileType::kDirectory) return ErrnoStatus(ENOTDIR, "remove directory", path);
  absl::StatusOr<bool> empty = IsEmpty(*node);
  if (!empty.ok()) return empty.status();
  if (!*empty) return ErrnoStatus(ENOTEMPTY, "remove directory", path);
  SetName(*place, nullptr);
  return absl::OkStatus();
}

absl::Status DraftFileSystem::SyncDirectory(const std::string& path) {
  if (!IsWithin(path)) return base_.TypeOf(path).status();
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<NodePtr> node = Find("sync directory", path);
  if (!node.ok()) return node.status();
  if ((*node)->type != FileType::kDirectory) return ErrnoStatus(ENOTDIR, "sync directory", path);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<FileLock>> DraftFileSystem::TryLock(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<Place> place = FindPlace("open lock file", path);
  if (!place.ok()) return place.status();
  absl::StatusOr<NodePtr> node = Child(place->parent, place->name);
  if (absl::IsNotFound(node.status())) {
    node = std::make_shared<Node>(Node{.type = FileType::kRegular, .contents = std::make_shared<DraftContents>()});
    SetName(*place, *node);
  }
  if (!node.ok()) return node.status();
  Node& file = **node;
  if (file.type != FileType::kRegular) {
    return absl::FailedPreconditionError(fmt::format("open lock file {}: not a regular file", path));
  }
  bool held = file.locked;
  std::string note = file.contents == nullptr ? "" : file.contents->Copy();
  if (!held && file.contents == nullptr) {
    // Readers share a lock that is kept off by the holder of this one; TryLock of the base waits out so short a look.
    absl::Status probe = base_.OpenForRead(file.base_path, /*direct=*/false).status();
    held = absl::IsNotFound(probe);
    if (!held && !probe.ok()) return probe;
    if (held) note = base_.ReadNote(file.base_path, kNoteBytesMax).value_or("");
  }
  if (held) return LockIsHeld(path, note);
  file.locked = true;
  file.contents = std::make_shared<DraftContents>();
  return std::make_unique<Lock>(mutex_, *node);
}

absl::StatusOr<std::string> DraftFileSystem::ReadNote(const std::string& path, size_t bytes_max) {
  std::string base_path = path;
  if (IsWithin(path)) {
    absl::MutexLock lock(&mutex_);
    absl::StatusOr<NodePtr> node = Find("open lock file", path);
    if (!node.ok()) return node.status();
    if ((*node)->contents != nullptr) {
      std::string note = (*node)->contents->Copy();
      if (note.size() <= bytes_max) return note;
      return absl::ResourceExhaustedError(
          fmt::format("read note in {}: more than {} bytes, where fewer are expected", path, bytes_max));
    }
    if ((*node)->base_path.empty()) {
      return absl::FailedPreconditionError(fmt::format("open lock file {}: not a regular file", path));
    }
    base_path = (*node)->base_path;
  }
  return base_.ReadNote(base_path, bytes_max);
}

absl::StatusOr<std::unique_ptr<IoQueue>> DraftFileSystem::NewIoQueue(IoQueueKind kind, size_t depth) {
  return std::make_unique<Queue>(base_, kind, depth);
}

}  // namespace tidemark::storage
