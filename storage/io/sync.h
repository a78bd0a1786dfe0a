// Syncs that are believed only of a file system that is still up. Nothing else in the library calls fsync(2) or
// fdatasync(2).
//
// XFS shuts itself down when it cannot write its log, or when its device goes. From then on fsync(2) of a directory
// answers 0, though the names that it was asked for were never written; and so does a sync of a file if the shutdown
// comes while it runs (seen on Linux 6.18). fstat(2) answers EIO of every file there, so each sync asks that
// afterwards.

#ifndef TIDEMARK_STORAGE_IO_SYNC_H_
#define TIDEMARK_STORAGE_IO_SYNC_H_

namespace tidemark::storage {

// Both answer 0, or -1 with errno set. Not to be tried again after EINTR either: a sync that comes after a failed one
// may report success for pages that were lost. Thread-safe.

// What a file holds, and its size.
int SyncFileData(int file);

// The names in a directory.
int SyncDirectoryNames(int directory);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_SYNC_H_
