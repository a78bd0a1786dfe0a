// The system calls of storage/io and of staging memory, one of which a test can make fail, or transfer less than it was
// asked to. A program that links these has every such call of its own go through them (--wrap of the linker), and
// nothing changes until a test says so.

#ifndef TIDEMARK_TESTS_STORAGE_IO_SYSTEM_CALLS_H_
#define TIDEMARK_TESTS_STORAGE_IO_SYSTEM_CALLS_H_

#include <cstddef>
#include <string>
#include <vector>

namespace tidemark::storage {

// While it lives, the calls of this thread are counted and fail as it was told to. One at a time in a thread.
class SystemCallFault {
 public:
  // Counts only.
  SystemCallFault();
  // The call of that index among all of them gets `error`. 0 is the first one.
  SystemCallFault(size_t index, int error);
  // The next `times` calls of that name ("pread", "mmap", ...) get `error`.
  SystemCallFault(std::string name, int error, size_t times);
  ~SystemCallFault();
  SystemCallFault(const SystemCallFault&) = delete;
  SystemCallFault& operator=(const SystemCallFault&) = delete;

  // From here on a pread or pwrite transfers so many bytes at most.
  void Shorten(size_t bytes) { transfer_bytes_max_ = bytes; }

  // The names of the calls so far, those that failed included.
  const std::vector<std::string>& calls() const { return calls_; }
  // The name of the last one that failed; empty: none has.
  const std::string& failed() const { return failed_; }

  // For the calls themselves. Sets errno.
  bool Fails(const char* name);
  size_t transfer_bytes_max() const { return transfer_bytes_max_; }
  static SystemCallFault* OfThisThread();

 private:
  const bool by_index_ = false;
  const size_t index_ = 0;
  const std::string name_;
  const int error_ = 0;
  size_t times_ = 0;
  size_t transfer_bytes_max_ = ~size_t{0};
  std::vector<std::string> calls_;
  std::string failed_;
};

// While it lives, directories that this thread lists do not tell the types of what is in them, as some file systems do
// not. One at a time in a thread.
class ListingWithoutTypes {
 public:
  ListingWithoutTypes();
  ~ListingWithoutTypes();
  ListingWithoutTypes(const ListingWithoutTypes&) = delete;
  ListingWithoutTypes& operator=(const ListingWithoutTypes&) = delete;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_IO_SYSTEM_CALLS_H_
