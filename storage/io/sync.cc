#include "storage/io/sync.h"

#include <sys/stat.h>
#include <unistd.h>

namespace tidemark::storage {
namespace {

int CheckThatItIsUp(int fd) {
  struct stat info = {};
  return fstat(fd, &info);
}

}  // namespace

int SyncFileData(int file) { return fdatasync(file) == 0 ? CheckThatItIsUp(file) : -1; }

int SyncDirectoryNames(int directory) { return fsync(directory) == 0 ? CheckThatItIsUp(directory) : -1; }

}  // namespace tidemark::storage
