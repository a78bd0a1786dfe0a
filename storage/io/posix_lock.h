// flock(2) on a file that carries a note on its holder.

#ifndef TIDEMARK_STORAGE_IO_POSIX_LOCK_H_
#define TIDEMARK_STORAGE_IO_POSIX_LOCK_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/io/link_free_path.h"
#include "storage/io/unshared_fd.h"

namespace tidemark::storage {

// Thread-compatible. A forked child does not hold the lock: its calls on its copy change nothing for the parent.
class PosixLock final : public FileLock {
 public:
  // As FileSystem::TryLock. `held`: see link_free_path.h. An earlier note is erased. On return the lock is on the file
  // that `path` names, unless a process removes or renames the file without the lock.
  static absl::StatusOr<std::unique_ptr<FileLock>> TryLock(const std::string& path,
                                                           const HeldDirectory* held = nullptr);

  // As FileSystem::ReadNote.
  static absl::StatusOr<std::string> ReadNote(const std::string& path, size_t bytes_max,
                                              const HeldDirectory* held = nullptr);

  ~PosixLock() override;
  absl::Status WriteNote(std::string_view note) override;

 private:
  PosixLock(UnsharedFd fd, std::string path);

  // Constant after construction.
  const std::string path_;
  const UnsharedFd fd_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_POSIX_LOCK_H_
