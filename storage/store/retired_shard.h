// The file of an attempt that was removed, kept for the next attempt to write over: a disk takes blocks that are there
// and have been written to 1.3 to 2 times as fast as those that have only been reserved.
//
// There is one at most, as long as the store is open. It need not be synced when it is taken or given: the attempt that
// it was part of is deleted in the journal before it is taken, and the one that it becomes part of counts as incomplete
// until its header says otherwise. But before that one is committed both the directory that it came from and the one
// that it came to must be synced, for power loss may undo a rename that only one of them has on disk.

#ifndef TIDEMARK_STORAGE_STORE_RETIRED_SHARD_H_
#define TIDEMARK_STORAGE_STORE_RETIRED_SHARD_H_

#include <string>

#include "storage/io/file_system.h"
#include "storage/store/store_layout.h"

namespace tidemark::storage {

// Takes the first shard of an attempt that is about to be removed, in the place of one that was taken before. Where
// that fails, it is removed with the rest.
void RetireShard(FileSystem& files, const StoreLayout& layout, const std::string& attempt_folder);

// Gives the retired shard the name `path`. False: there is none.
bool RecycleShard(FileSystem& files, const StoreLayout& layout, const std::string& path);

// Removes it, if there is one.
void DropRetiredShard(FileSystem& files, const StoreLayout& layout);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_RETIRED_SHARD_H_
