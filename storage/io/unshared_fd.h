// A descriptor whose open file a forked child does not share with its parent.
//
// flock(2) locks an open file, and fork(2) hands that very file to the child. Without this class a child that outlives
// its parent, such as a worker that loads data, would keep the parent's locks for as long as it lives. A child that is
// made past the C library, by clone(2), is not noticed.

#ifndef TIDEMARK_STORAGE_IO_UNSHARED_FD_H_
#define TIDEMARK_STORAGE_IO_UNSHARED_FD_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "storage/io/unique_fd.h"

namespace tidemark::storage {

// Thread-compatible; a fork may come at any time, on any thread. At the fork, the child opens a file anew, without the
// lock, if it is open for reading only. If that fails, and for every other file, the child's copy is closed, and the
// object is not valid in the child. Destruction closes.
class UnsharedFd {
 public:
  UnsharedFd();
  explicit UnsharedFd(UniqueFd fd);
  UnsharedFd(UnsharedFd&& other) noexcept;
  UnsharedFd& operator=(UnsharedFd&& other) noexcept;
  ~UnsharedFd();

  // Wraps the result of `open`, an absl::StatusOr<UniqueFd>. If the process was forked meanwhile, `open` is called
  // again, because the child has the first file too. So a lock on the returned file belongs to this process alone.
  template <typename Open>
  static absl::StatusOr<UnsharedFd> Take(const Open& open) {
    for (;;) {
      const uint64_t forks = Forks();
      absl::StatusOr<UniqueFd> fd = open();
      if (!fd.ok()) return fd.status();
      UnsharedFd unshared(*std::move(fd));
      if (Forks() == forks) return unshared;
    }
  }

  bool valid() const { return get() >= 0; }
  int get() const;
  int Release();

  // An entry of the list that the fork handlers go through.
  struct Entry;

 private:
  // The number of forks of this process; waits for the end of a fork in progress.
  static uint64_t Forks();

  std::unique_ptr<Entry> entry_;  // null: no descriptor
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_UNSHARED_FD_H_
