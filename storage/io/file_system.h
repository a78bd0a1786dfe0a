// The only door to the disk. Everything in storage/ that touches a file does it through FileSystem, File and IoQueue,
// so that a test can put a failing, forgetting or slow file system in their place.
//
// Errors carry operation, path, offset and the system's own words; errno_status.h has the mapping of errno to codes.

#ifndef TIDEMARK_STORAGE_IO_FILE_SYSTEM_H_
#define TIDEMARK_STORAGE_IO_FILE_SYSTEM_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tidemark::storage {

// What O_DIRECT asks of offsets, sizes and addresses, on every file system we know of (a 4 KiB-sector disk being the
// strictest).
inline constexpr size_t kDirectAlignment = 4096;

// An open regular file. Thread-safe for disjoint ranges; Close() may not run beside another call. Destruction closes
// it.
class File {
 public:
  virtual ~File() = default;

  virtual const std::string& path() const = 0;

  // Whether reads and writes bypass the page cache: offset, size and address must then be multiples of
  // kDirectAlignment, or some file systems answer kInvalidArgument. False where it was asked for and the file system
  // has none.
  virtual bool direct() const = 0;

  virtual absl::StatusOr<uint64_t> Size() = 0;

  // Fills all of `out`; kDataLoss if the file ends before that. After an error `out` holds anything.
  virtual absl::Status ReadAt(uint64_t offset, std::span<std::byte> out) = 0;

  // Writes all of `data`; kResourceExhausted if there is no room. After an error the range holds anything.
  virtual absl::Status WriteAt(uint64_t offset, std::span<const std::byte> data) = 0;

  // Reserves disk blocks for [0, bytes) and makes the file that long, unless it is longer. `bytes` is at least 1.
  // kUnimplemented where the file system cannot, the file then being as before; kResourceExhausted if there is no room,
  // the size then being anything up to `bytes`.
  virtual absl::Status Allocate(uint64_t bytes) = 0;

  // Makes the file exactly this long. What is added reads as zeros.
  virtual absl::Status Truncate(uint64_t bytes) = 0;

  // fdatasync. After a failure the file's contents are unknown: it must be abandoned, never synced again.
  virtual absl::Status SyncData() = 0;

  // Reports what close(2) reports; later calls and the destructor do nothing.
  virtual absl::Status Close() = 0;
};

struct IoRequest {
  enum class Kind { kRead, kWrite };
  Kind kind = Kind::kRead;
  File* file = nullptr;  // of the queue's own FileSystem; stays open until the completion is reaped
  uint64_t offset = 0;
  std::byte* data = nullptr;  // stays in place, untouched, until the completion is reaped
  size_t size = 0;
  uint64_t tag = 0;  // handed back
};

struct IoCompletion {
  uint64_t tag = 0;
  absl::Status status;  // ok: every byte was transferred. kDataLoss: the file ended before that.
};

// Transfers in flight. Owned by one thread: the one that submits first, be it or not the one that made the queue. That
// thread must live until nothing is in flight any more; then any thread may destroy the queue. Short transfers and
// EINTR/EAGAIN are continued inside. Destruction waits for what is in flight. A broken precondition ends the process.
class IoQueue {
 public:
  virtual ~IoQueue() = default;

  virtual std::string_view name() const = 0;  // "io_uring" or "threads"
  // Why the kernel refused io_uring, where IoQueueKind::kAuto had to take threads; else empty.
  virtual std::string_view note() const { return {}; }
  virtual size_t depth() const = 0;
  virtual size_t in_flight() const = 0;

  // Starts the transfer; whatever goes wrong is in its completion. Precondition: in_flight() < depth().
  virtual void Submit(const IoRequest& request) = 0;

  // Blocks for one completion, in any order. Precondition: in_flight() > 0.
  virtual IoCompletion Wait() = 0;

  // One completion, if there is one by now.
  virtual std::optional<IoCompletion> Poll() = 0;

  // What follows makes later requests cheaper where the kernel can, and changes nothing else: a status that is not ok
  // says why it cannot. Called by the owner, with nothing in flight.

  // Has the kernel look up the pages of `memory` now, and not at every request that lies in it; it keeps them until
  // they are unregistered. Memory that is unmapped or given back to the system while it is registered is therefore not
  // free, and what is mapped at its address later is not what a request would write: unregister it first. Nothing
  // happens if that very span is registered already.
  virtual absl::Status RegisterMemory(std::span<const std::byte> memory);
  virtual void UnregisterMemory(std::span<const std::byte> memory);

  // The same for a file of the queue's own FileSystem, one at a time. It must be unregistered before it is closed.
  virtual absl::Status RegisterFile(File* file);
  virtual void UnregisterFile();
};

enum class IoQueueKind { kAuto, kUring, kThreads };

enum class FileType { kRegular, kDirectory, kOther };

struct DirectoryEntry {
  std::string name;
  FileType type = FileType::kOther;
};

// The identity of a file or directory, for as long as it exists. No other file of the file system has the same.
struct FileId {
  uint64_t device = 0;
  uint64_t inode = 0;
  friend bool operator==(const FileId&, const FileId&) = default;
};

// A lock that the process holds on a file; the kernel drops it when the process dies. Children that it forks do not
// hold it. Destruction releases it and leaves the file. Thread-compatible.
class FileLock {
 public:
  virtual ~FileLock() = default;
  // Replaces the contents of the lock file: a note on who holds it, one printable line, for whoever finds it locked.
  // Synced, so that who shares the file system from another machine sees it too.
  virtual absl::Status WriteNote(std::string_view note) = 0;
};

// An open directory. Thread-compatible; destruction closes it.
class Directory {
 public:
  virtual ~Directory() = default;
  // As FileSystem::SyncDirectory. It also fails if a sync by anybody has failed since this was opened: the kernel
  // reports a failed write-back once to each descriptor that was open, and to none that is opened later.
  virtual absl::Status Sync() = 0;
};

// Thread-safe. No path is ever followed through a symbolic link, wherever on it that is (link_free_path.h says why, and
// what is done about those on the way to a store). Failures of every call: kNotFound if something on the way to the
// name is missing, kFailedPrecondition if it is of the wrong type (a link where a file or directory is asked for
// included), kPermissionDenied, kResourceExhausted for want of room or descriptors, kInternal where the disk fails. A
// call that fails has changed nothing, but for SyncDirectory.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Mode 0700. kAlreadyExists if there is anything of that name.
  virtual absl::Status CreateDirectory(const std::string& path) = 0;

  // Names but "." and "..", in byte order.
  virtual absl::StatusOr<std::vector<DirectoryEntry>> ListDirectory(const std::string& path) = 0;

  // kNotFound if there is nothing of that name.
  virtual absl::StatusOr<FileType> TypeOf(const std::string& path) = 0;

  // The identity of the file or directory that has the name. kFailedPrecondition: the file system holds a directory
  // (PosixFileSystemAt), and the path from the root leads to another one. The directory was moved or replaced.
  virtual absl::StatusOr<FileId> Identify(const std::string& path) = 0;

  // An existing regular file for reading; kFailedPrecondition if it is not a regular file. `direct`: O_DIRECT if the
  // file system has it. kNotFound also while it is open by OpenForRewrite: its earlier contents are gone.
  virtual absl::StatusOr<std::unique_ptr<File>> OpenForRead(const std::string& path, bool direct) = 0;

  // A new file, mode 0600, for reading and writing; kAlreadyExists if there is anything of that name.
  virtual absl::StatusOr<std::unique_ptr<File>> Create(const std::string& path, bool direct) = 0;

  // The same for a file that other users are to read: mode 0644, less what the umask takes from it. Not direct.
  virtual absl::StatusOr<std::unique_ptr<File>> CreateReadable(const std::string& path) = 0;

  // An existing regular file for reading and writing, as it is. kUnavailable while anybody has it open by OpenForRead,
  // in whatever process, who must not see it change, or where that cannot be found out. kFailedPrecondition if the file
  // has a second name (HardLink), whose contents would change as well.
  virtual absl::StatusOr<std::unique_ptr<File>> OpenForRewrite(const std::string& path, bool direct) = 0;

  // In one step; a file of the new name is replaced, a directory only if it is empty (else kAlreadyExists).
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;

  // The same for a regular file, and only to a name that there is not: else kAlreadyExists. Of several callers one gets
  // the name. On a file system without such a call (NFS) a crash, and an error that is reported as ok, may leave both
  // names.
  virtual absl::Status RenameToNew(const std::string& from, const std::string& to) = 0;

  // Gives a regular file a second name, in the same file system; kAlreadyExists if there is anything of that name. A
  // rename of one name of a file onto another one of the same file does nothing, and both names stay. kPermissionDenied
  // or kUnimplemented where the file system has no such names, kResourceExhausted if the file has too many.
  virtual absl::Status HardLink(const std::string& path, const std::string& new_path) = 0;

  // Anything but a directory.
  virtual absl::Status RemoveFile(const std::string& path) = 0;

  // kAlreadyExists if it is not empty.
  virtual absl::Status RemoveDirectory(const std::string& path) = 0;

  // Makes creations, renames and removals in the directory survive power loss. After a failure any of them may be lost.
  virtual absl::Status SyncDirectory(const std::string& path) = 0;

  // For a sync that must not miss a failure before it: open the directory before what is to be synced.
  virtual absl::StatusOr<std::unique_ptr<Directory>> OpenDirectory(const std::string& path) = 0;

  // Takes the lock on the file, creating it (mode 0600) if need be, and erases the note of an earlier holder. Waits for
  // no holder, be it this very process: kUnavailable, with its note. Who has the file open by OpenForRead, and no lock,
  // is waited for, for a fifth of a second at most. Only its holder may remove the file.
  virtual absl::StatusOr<std::unique_ptr<FileLock>> TryLock(const std::string& path) = 0;

  // What FileLock::WriteNote left in the file, whoever holds the lock: OpenForRead would find the file locked, and keep
  // others from locking it. Of a note that is just being replaced it may be a part. kResourceExhausted if it is longer
  // than `bytes_max`.
  virtual absl::StatusOr<std::string> ReadNote(const std::string& path, size_t bytes_max) = 0;

  // kAuto: io_uring if the kernel lets us, else threads, and the queue's note() says why. kUring: kUnavailable, with
  // the kernel's reason, if it does not. kInvalidArgument unless `depth` is 1 to 256.
  virtual absl::StatusOr<std::unique_ptr<IoQueue>> NewIoQueue(IoQueueKind kind, size_t depth) = 0;
};

// The real one. Never destroyed.
FileSystem& PosixFileSystem();

// The same, and it holds `directory`: the one that has that name at the first call that finds it. Names in it are
// looked up from its descriptor. So calls follow the directory when it is moved, and never go to another one in its
// place. Identify reports such a change. `directory`: absolute, without links (FollowLinks), and without a slash at its
// end.
std::unique_ptr<FileSystem> PosixFileSystemAt(std::string directory);

// A directory whose syncs are calls of `sync`.
std::unique_ptr<Directory> NewDirectory(std::function<absl::Status()> sync);

// Makes the directory and whichever of its parents are missing, each synced into its own parent. kFailedPrecondition: it
// is there and is no directory.
absl::Status CreateDirectories(FileSystem& files, const std::string& path);

// A whole small file. kResourceExhausted if it is larger than `bytes_max`; kDataLoss if it shrinks meanwhile.
absl::StatusOr<std::string> ReadSmallFile(FileSystem& files, const std::string& path, size_t bytes_max);

// Creates or replaces `path` so that after power loss it has the old contents or the new: temporary file beside it,
// fdatasync, rename, directory sync. Ok means: survives power loss. After an error the old contents are in place; only
// if it was the directory's sync that failed, the new ones are, and power loss decides. The temporary file is `path`
// with ".tmp" behind it; one that a crash left is replaced, so a path has one writer at a time.
absl::Status WriteFileDurably(FileSystem& files, const std::string& path, std::string_view contents);

// The same for a path that may have several writers, each of which has a temporary file of its own in the same
// directory.
absl::Status WriteFileDurably(FileSystem& files, const std::string& path, const std::string& temporary,
                              std::string_view contents);

// Removes the directory, or whatever has that name, and everything below it; nothing there is ok. Links are removed,
// never followed. Stops at the first error. Does not sync the parent.
absl::Status RemoveTree(FileSystem& files, const std::string& path);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_FILE_SYSTEM_H_
