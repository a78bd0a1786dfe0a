// A FileSystem in which chosen calls fail, and everything else goes to another one.

#ifndef TIDEMARK_TESTS_STORAGE_IO_FAILING_FILE_SYSTEM_H_
#define TIDEMARK_TESTS_STORAGE_IO_FAILING_FILE_SYSTEM_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "storage/io/file_system.h"

namespace tidemark::storage {

// Counts every call that can fail: its own, those of its files and locks ("ReadAt", "WriteAt", "SyncData", ...), and
// the requests that are submitted to its queues ("QueueRead", "QueueWrite"). A call that fails by a rule is not
// forwarded, but for Close, which closes and then fails. Counting is by the order of calls, so a failure is
// reproducible where the calls come from one thread.
//
// Thread-safe. Outlives its files, locks and queues.
class FailingFileSystem final : public FileSystem {
 public:
  struct Call {
    size_t index = 0;       // 0 for the first call
    std::string operation;  // the method's name, or QueueRead, QueueWrite
    std::string path;       // the new one for Rename, RenameToNew and HardLink, empty for NewIoQueue
    uint64_t bytes = 0;     // of ReadAt, WriteAt, QueueRead and QueueWrite
  };
  // What the call is to answer; ok: what the other file system answers. Called with a lock held.
  using Rule = std::function<absl::Status(const Call&)>;
  // What a call must pass before it is counted: may wait, for no lock is held.
  using Gate = std::function<void(const std::string& operation, const std::string& path)>;

  explicit FailingFileSystem(FileSystem& other) : other_(other) {}

  // Null: none. Calls that are in the gate before it stay in there.
  void SetGate(Gate gate);

  // Each replaces the rule before it. None counts calls anew.
  void SetRule(Rule rule);
  // The call of that index fails.
  void FailCall(size_t index, absl::Status status);
  // It and all after it fail, as if the process had been cut off from its disk.
  void FailFrom(size_t index, absl::Status status);
  // The call of that name fails that has `before` others of that name before it, from now on.
  void FailOperation(std::string operation, absl::Status status, size_t before = 0);

  // What its queues answer to RegisterMemory and RegisterFile from now on. Those are no calls that rules see, since
  // nothing fails when they do.
  void RefuseRegistration(absl::Status status);

  // Forgets the rule, the refusal and all calls, and leaves the gate.
  void Reset();
  std::vector<Call> calls() const;
  // "Create", "WriteAt", ...: for a look at the order.
  std::vector<std::string> operations() const;

  absl::Status CreateDirectory(const std::string& path) override;
  absl::StatusOr<std::vector<DirectoryEntry>> ListDirectory(const std::string& path) override;
  absl::StatusOr<FileType> TypeOf(const std::string& path) override;
  absl::StatusOr<FileId> Identify(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<File>> OpenForRead(const std::string& path, bool direct) override;
  absl::StatusOr<std::unique_ptr<File>> OpenForRewrite(const std::string& path, bool direct) override;
  absl::StatusOr<std::unique_ptr<File>> Create(const std::string& path, bool direct) override;
  absl::StatusOr<std::unique_ptr<File>> CreateReadable(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status RenameToNew(const std::string& from, const std::string& to) override;
  absl::Status HardLink(const std::string& path, const std::string& new_path) override;
  absl::Status RemoveFile(const std::string& path) override;
  absl::Status RemoveDirectory(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& path) override;
  // Its Sync is a call of the name SyncDirectory, too.
  absl::StatusOr<std::unique_ptr<Directory>> OpenDirectory(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<FileLock>> TryLock(const std::string& path) override;
  absl::StatusOr<std::string> ReadNote(const std::string& path, size_t bytes_max) override;
  absl::StatusOr<std::unique_ptr<IoQueue>> NewIoQueue(IoQueueKind kind, size_t depth) override;

 private:
  class FailingFile;
  class FailingLock;
  class FailingQueue;

  absl::Status Admit(std::string operation, const std::string& path, uint64_t bytes = 0);
  absl::Status registration_refusal() const;
  Gate gate() const;
  absl::StatusOr<std::unique_ptr<File>> Wrap(absl::StatusOr<std::unique_ptr<File>> file);

  FileSystem& other_;

  mutable absl::Mutex mutex_;
  Gate gate_ ABSL_GUARDED_BY(mutex_);
  Rule rule_ ABSL_GUARDED_BY(mutex_);
  absl::Status registration_refusal_ ABSL_GUARDED_BY(mutex_);
  std::vector<Call> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_IO_FAILING_FILE_SYSTEM_H_
