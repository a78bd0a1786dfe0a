// flock(2) on a file that carries a note on its holder.

#ifndef TIDEMARK_STORAGE_IO_POSIX_LOCK_H_
#define TIDEMARK_STORAGE_IO_POSIX_LOCK_H_

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/io/unique_fd.h"

namespace tidemark::storage {

// Thread-compatible. A child that was forked while the lock was held holds it too, until it ends, calls exec, or its
// parent destroys the lock; destroying the child's copy changes nothing for the parent.
class PosixLock final : public FileLock {
 public:
  // As FileSystem::TryLock. A note from before is erased. The lock is on the file that `path` names on return, as long
  // as nobody removes or renames it without holding the lock.
  static absl::StatusOr<std::unique_ptr<FileLock>> TryLock(const std::string& path);

  // As FileSystem::ReadNote.
  static absl::StatusOr<std::string> ReadNote(const std::string& path, size_t bytes_max);

  ~PosixLock() override;
  absl::Status WriteNote(std::string_view note) override;

 private:
  PosixLock(UniqueFd fd, std::string path);

  // Constant after construction.
  const std::string path_;
  const UniqueFd fd_;
  const pid_t holder_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_POSIX_LOCK_H_
