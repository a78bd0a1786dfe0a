#include "tests/storage/io/system_calls.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <utility>

namespace tidemark::storage {
namespace {

thread_local SystemCallFault* fault_of_this_thread = nullptr;
thread_local bool lists_without_types = false;

bool Fails(const char* name) { return fault_of_this_thread != nullptr && fault_of_this_thread->Fails(name); }

size_t Shortened(size_t bytes) {
  return fault_of_this_thread == nullptr ? bytes : std::min(bytes, fault_of_this_thread->transfer_bytes_max());
}

}  // namespace

SystemCallFault::SystemCallFault() { fault_of_this_thread = this; }

SystemCallFault::SystemCallFault(size_t index, int error) : by_index_(true), index_(index), error_(error) {
  fault_of_this_thread = this;
}

SystemCallFault::SystemCallFault(std::string name, int error, size_t times)
    : name_(std::move(name)), error_(error), times_(times) {
  fault_of_this_thread = this;
}

SystemCallFault::~SystemCallFault() { fault_of_this_thread = nullptr; }

ListingWithoutTypes::ListingWithoutTypes() { lists_without_types = true; }
ListingWithoutTypes::~ListingWithoutTypes() { lists_without_types = false; }

SystemCallFault* SystemCallFault::OfThisThread() { return fault_of_this_thread; }

bool SystemCallFault::Fails(const char* name) {
  calls_.emplace_back(name);
  const bool fails = by_index_ ? calls_.size() - 1 == index_ : times_ > 0 && name_ == name;
  if (!fails) return false;
  if (!by_index_) --times_;
  failed_ = name;
  errno = error_;
  return true;
}

}  // namespace tidemark::storage

using tidemark::storage::Fails;
using tidemark::storage::Shortened;

extern "C" {

int __real_openat(int folder, const char* path, int flags, ...);
long __real_syscall(long number, ...);
int __real_close(int fd);
int __real_fcntl(int fd, int command, ...);
ssize_t __real_pread(int fd, void* data, size_t size, off_t offset);
ssize_t __real_pwrite(int fd, const void* data, size_t size, off_t offset);
int __real_fallocate(int fd, int mode, off_t offset, off_t size);
int __real_ftruncate(int fd, off_t size);
int __real_fdatasync(int fd);
int __real_fsync(int fd);
int __real_flock(int fd, int operation);
int __real_fstat(int fd, struct stat* info);
int __real_fstatat(int fd, const char* path, struct stat* info, int flags);
int __real_mkdirat(int folder, const char* path, mode_t mode);
int __real_renameat(int old_folder, const char* from, int new_folder, const char* to);
int __real_renameat2(int old_folder, const char* from, int new_folder, const char* to, unsigned flags);
int __real_linkat(int old_folder, const char* from, int new_folder, const char* to, int flags);
int __real_unlinkat(int folder, const char* path, int flags);
DIR* __real_fdopendir(int fd);
struct dirent* __real_readdir(DIR* directory);
void* __real_mmap(void* address, size_t size, int protection, int flags, int fd, off_t offset);
int __real_madvise(void* address, size_t size, int advice);
int __real_mlock2(const void* address, size_t size, unsigned int flags);

int __wrap_openat(int folder, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return Fails("openat") ? -1 : __real_openat(folder, path, flags, mode);
}

// No call has more arguments. One that has fewer leaves the others as they are, which AddressSanitizer calls a read of
// foreign memory.
__attribute__((no_sanitize_address)) long __wrap_syscall(long number, ...) {
  va_list rest;
  va_start(rest, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(rest, long);
  va_end(rest);
  if (number == SYS_openat2 && Fails("openat2")) return -1;
  return __real_syscall(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}

// The descriptor is gone all the same.
int __wrap_close(int fd) {
  if (!Fails("close")) return __real_close(fd);
  const int error = errno;
  __real_close(fd);
  errno = error;
  return -1;
}

int __wrap_fcntl(int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  const long argument = va_arg(rest, long);
  va_end(rest);
  return Fails("fcntl") ? -1 : __real_fcntl(fd, command, argument);
}

ssize_t __wrap_pread(int fd, void* data, size_t size, off_t offset) {
  return Fails("pread") ? -1 : __real_pread(fd, data, Shortened(size), offset);
}
ssize_t __wrap_pwrite(int fd, const void* data, size_t size, off_t offset) {
  return Fails("pwrite") ? -1 : __real_pwrite(fd, data, Shortened(size), offset);
}
int __wrap_fallocate(int fd, int mode, off_t offset, off_t size) {
  return Fails("fallocate") ? -1 : __real_fallocate(fd, mode, offset, size);
}
int __wrap_ftruncate(int fd, off_t size) { return Fails("ftruncate") ? -1 : __real_ftruncate(fd, size); }
int __wrap_fdatasync(int fd) { return Fails("fdatasync") ? -1 : __real_fdatasync(fd); }
int __wrap_fsync(int fd) { return Fails("fsync") ? -1 : __real_fsync(fd); }
int __wrap_flock(int fd, int operation) { return Fails("flock") ? -1 : __real_flock(fd, operation); }
int __wrap_fstat(int fd, struct stat* info) { return Fails("fstat") ? -1 : __real_fstat(fd, info); }
int __wrap_fstatat(int fd, const char* path, struct stat* info, int flags) {
  return Fails("fstatat") ? -1 : __real_fstatat(fd, path, info, flags);
}
int __wrap_mkdirat(int folder, const char* path, mode_t mode) {
  return Fails("mkdirat") ? -1 : __real_mkdirat(folder, path, mode);
}
int __wrap_renameat(int old_folder, const char* from, int new_folder, const char* to) {
  return Fails("renameat") ? -1 : __real_renameat(old_folder, from, new_folder, to);
}
int __wrap_renameat2(int old_folder, const char* from, int new_folder, const char* to, unsigned flags) {
  return Fails("renameat2") ? -1 : __real_renameat2(old_folder, from, new_folder, to, flags);
}
int __wrap_linkat(int old_folder, const char* from, int new_folder, const char* to, int flags) {
  return Fails("linkat") ? -1 : __real_linkat(old_folder, from, new_folder, to, flags);
}
int __wrap_unlinkat(int folder, const char* path, int flags) {
  return Fails("unlinkat") ? -1 : __real_unlinkat(folder, path, flags);
}
DIR* __wrap_fdopendir(int fd) { return Fails("fdopendir") ? nullptr : __real_fdopendir(fd); }
struct dirent* __wrap_readdir(DIR* directory) {
  struct dirent* entry = Fails("readdir") ? nullptr : __real_readdir(directory);
  if (entry != nullptr && tidemark::storage::lists_without_types) entry->d_type = DT_UNKNOWN;
  return entry;
}
void* __wrap_mmap(void* address, size_t size, int protection, int flags, int fd, off_t offset) {
  return Fails("mmap") ? MAP_FAILED : __real_mmap(address, size, protection, flags, fd, offset);
}
int __wrap_madvise(void* address, size_t size, int advice) {
  return Fails("madvise") ? -1 : __real_madvise(address, size, advice);
}
int __wrap_mlock2(const void* address, size_t size, unsigned int flags) {
  return Fails("mlock2") ? -1 : __real_mlock2(address, size, flags);
}

}  // extern "C"
