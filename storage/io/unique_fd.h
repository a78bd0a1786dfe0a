// A file descriptor with one owner.

#ifndef TIDEMARK_STORAGE_IO_UNIQUE_FD_H_
#define TIDEMARK_STORAGE_IO_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace tidemark::storage {

// Thread-compatible. Destruction closes, and drops what close(2) says; who needs to know calls Release() and closes.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.Release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    UniqueFd old(std::exchange(fd_, other.Release()));
    return *this;
  }
  ~UniqueFd() {
    if (fd_ >= 0) close(fd_);
  }

  bool valid() const { return fd_ >= 0; }
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_UNIQUE_FD_H_
