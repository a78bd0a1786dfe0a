// Room that is set aside on the store's disk. On a full one steps could not be deleted to make room: to mark them takes
// a few blocks itself, and so does opening the manifest, or opening it anew after a write that failed.
//
// It is a file that means nothing, and nothing depends on whether there is one.

#ifndef TIDEMARK_STORAGE_MANIFEST_DISK_RESERVE_H_
#define TIDEMARK_STORAGE_MANIFEST_DISK_RESERVE_H_

#include <cstdint>

#include "storage/io/file_system.h"
#include "storage/manifest/store_layout.h"

namespace tidemark::storage {

// Opening the manifest writes what its log holds into a table, and four small files: up to 512 KiB, and the last batch,
// which has Store::kNotedBytesMax and one record where it deletes steps.
inline constexpr uint64_t kDiskReserveBytes = 1 << 20;

// Makes the file, or makes one that is too short what it should be, if the file system can set room aside. False: the
// disk has no room for it, so that it may later.
bool SetRoomAside(FileSystem& files, const StoreLayout& layout);

// Removes it, and the retired shard, which is only room as well. False: there was neither.
bool GiveUpRoom(FileSystem& files, const StoreLayout& layout);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_MANIFEST_DISK_RESERVE_H_
