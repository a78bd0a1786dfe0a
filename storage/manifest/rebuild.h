// Rebuilds a manifest from the shards, when RocksDB's files are gone or cannot be read.

#ifndef TIDEMARK_STORAGE_MANIFEST_REBUILD_H_
#define TIDEMARK_STORAGE_MANIFEST_REBUILD_H_

#include <functional>
#include <string_view>

#include "absl/status/status.h"
#include "storage/io/file_system.h"
#include "storage/manifest/manifest.h"
#include "storage/manifest/store_change.h"
#include "storage/manifest/store_layout.h"
#include "storage/shard/shard_reader.h"

namespace tidemark::storage {

// Writes a new manifest beside the old one from every complete attempt in steps/, reads it back, and only then puts it
// in the old one's place, which is kept as manifest.broken-<id>. Attempts that are incomplete or damaged go to
// quarantine/: without the old manifest nobody knows whether they were committed; one that a complete attempt refers to
// stays. Attempts of other stores and newer versions are left alone. Evaluations are those whose reports lie with the
// attempts; one that cannot be used is left out, with a warning. Pinned steps stay so, also where a
// later attempt at them was never committed. A deleted one whose files are still there stays deleted if its folder has
// a deletion mark; one that nobody had come to mark is committed again. Lost for good: records of failed saves, of
// deleted steps whose files are gone and of those that were only evaluated, and marks of damage (a restore finds damage
// again).
//
// kFailedPrecondition: no attempt is complete, and there are some of another store, so that it may be `store` that is
// wrong. Any error of reading an attempt but kNotFound and kDataLoss is returned before anything is moved. After an
// error the old manifest is in place, or nothing is. Precondition: the lock is held and the old manifest is closed.
absl::Status RebuildManifest(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                             const ShardReadOptions& read, const std::function<void(std::string_view)>& warn,
                             const OnStoreChange& on_change);

// The reading back. kDataLoss: the manifest at `path` does not hold just this record of its step; the message says
// where they part.
absl::Status CheckHolds(const Manifest& manifest, std::string_view path, const StepRecord& expected);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_MANIFEST_REBUILD_H_
