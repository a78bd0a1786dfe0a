// Whether an index on the disk can be believed. RocksDB does not say whether any of its files has lost something, and
// its logs are not synced. So an index says how it was left, in the file "state" in its folder, which is not synced
// either:
//
//   "closed <digest>"   it was closed in good order; the digest is of the names and sizes of its files
//   "open <boot id> <device> <inode>"   it is open, or its process was killed; the numbers are those of its folder
//
// An index is believed if it is closed and the digest is right, or if it is open on this machine, which has not been
// started again since, and in this folder: a kill leaves what was written. Any other one is removed and made anew from
// the journal, be it after a power loss, as a copy of a live store, or beside a process of another machine. Where the
// system has no boot id, an open index is not believed.

#ifndef TIDEMARK_STORAGE_STORE_INDEX_STATE_H_
#define TIDEMARK_STORAGE_STORE_INDEX_STATE_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"

namespace tidemark::storage {

// `folder`: the index's; `boot`: BootId(). False: the index is not believed. An error is the disk's.
absl::StatusOr<bool> IsIndexBelieved(FileSystem& files, const std::string& folder, std::string_view boot);

// Before the index is opened to be written, or behind its making.
absl::Status MarkIndexOpen(FileSystem& files, const std::string& folder, std::string_view boot);

// After the index has been closed. Nothing is written unless the folder is the one that `opened` names.
absl::Status MarkIndexClosed(FileSystem& files, const std::string& folder, const FileId& opened);

// The index was found damaged: it is not believed any more.
absl::Status MarkIndexDamaged(FileSystem& files, const std::string& folder);

// Removes the index, its state first: a removal that is cut short leaves files that no opening believes.
absl::Status RemoveIndex(FileSystem& files, const std::string& folder);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_INDEX_STATE_H_
