// A file system that breaks the rules by which things must get to the disk: chosen operations are left out, or done too
// late, and answered with ok all the same, or tried again where a failure is final. Everything else goes to another
// file system.

#ifndef TIDEMARK_TESTS_CRASH_DISORDERED_DISK_H_
#define TIDEMARK_TESTS_CRASH_DISORDERED_DISK_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "storage/io/file_system.h"
#include "storage/io/forwarding_file_system.h"

namespace tidemark::crash {

// Thread-safe, but rules are given first. Outlives its files, locks and queues.
class DisorderedDisk final : public storage::ForwardingFileSystem {
 public:
  enum class Operation { kWrite, kSyncData, kSyncDirectory, kRemove };
  using Match = std::function<bool(Operation, const std::string& path)>;

  explicit DisorderedDisk(storage::FileSystem& other) : ForwardingFileSystem(other) {}

  // What matches is never done. A rule is asked once about each operation that no earlier rule has taken, in their
  // order.
  void Drop(Match what) { Delay(std::move(what), nullptr); }
  // What matches is done right after the next operation that `until` matches.
  void Delay(Match what, Match until);
  // What matches and fails is done again, and once more: a directory that was opened before a failed sync tells of it
  // at its next one. The answer is that of the last try.
  void Repeat(Match what);

  absl::StatusOr<std::unique_ptr<storage::File>> OpenForRead(const std::string& path, bool direct) override;
  absl::StatusOr<std::unique_ptr<storage::File>> OpenForRewrite(const std::string& path, bool direct) override;
  absl::StatusOr<std::unique_ptr<storage::File>> Create(const std::string& path, bool direct) override;
  absl::StatusOr<std::unique_ptr<storage::File>> CreateReadable(const std::string& path) override;
  absl::Status RemoveFile(const std::string& path) override;
  absl::Status RemoveDirectory(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<storage::Directory>> OpenDirectory(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<storage::IoQueue>> NewIoQueue(storage::IoQueueKind kind, size_t depth) override;

 private:
  class DisorderedFile;
  class DisorderedQueue;

  struct Rule {
    Match what;
    Match until;                                     // null: never
    std::vector<std::function<absl::Status()>> due;  // delayed
  };

  absl::StatusOr<std::unique_ptr<storage::File>> Wrap(absl::StatusOr<std::unique_ptr<storage::File>> file,
                                                      bool rewrites = false);
  // Does `work`, which is `operation`, or what the rules say.
  absl::Status Do(Operation operation, const std::string& path, const std::function<absl::Status()>& work);

  absl::Mutex mutex_;
  std::vector<Rule> rules_ ABSL_GUARDED_BY(mutex_);
  std::vector<Match> repeated_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidemark::crash

#endif  // TIDEMARK_TESTS_CRASH_DISORDERED_DISK_H_
