// An attempt, as its shards alone tell it. What a rebuild and a reader without a journal see.

#ifndef TIDEMARK_STORAGE_STORE_ATTEMPT_READER_H_
#define TIDEMARK_STORAGE_STORE_ATTEMPT_READER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/records/manifest_records.h"
#include "storage/shard/read/shard_reader.h"
#include "storage/store/store_layout.h"

namespace tidemark::storage {

// All shards of one attempt, rank by rank.
struct Attempt {
  std::vector<std::unique_ptr<ShardReader>> shards;
  StepRecord record;  // made from their headers and indices; state kCommitted
};

// Reads header, footer and index of every shard. kNotFound: a shard is missing. kDataLoss: one is damaged or says that
// it belongs to another step, attempt or rank. kFailedPrecondition: it belongs to another store. kUnimplemented: it is
// of a newer version.
absl::StatusOr<Attempt> ReadAttempt(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                                    const StepFolder& folder);

// Whether an error of ReadAttempt says something about the attempt, as opposed to the disk or the permissions under it.
bool IsAboutAttempt(const absl::Status& status);

// One shard of it, with the same errors.
absl::StatusOr<std::unique_ptr<ShardReader>> ReadShard(FileSystem& files, const StoreLayout& layout,
                                                       const StoreId& store, const StepFolder& folder, uint32_t rank,
                                                       uint32_t world_size);

// As ReadAttempt, for the record alone. Holds one shard open at a time, however many there are.
absl::StatusOr<StepRecord> ReadAttemptRecord(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                                             const StepFolder& folder);

// The ranks that have a shard of that world size in the folder, ascending. Empty also if there is no such folder.
absl::StatusOr<std::vector<uint32_t>> FindRanks(FileSystem& files, const StoreLayout& layout, const StepFolder& folder,
                                                uint32_t world_size);

// kDataLoss: the attempt in `path` has other shards than those that were committed.
absl::Status CheckShards(const StepRecord& found, const StepRecord& committed, std::string_view path);

// The attempts in steps/, by name. Names that are no attempt's are appended to `*strangers`, if that is not null.
absl::StatusOr<std::vector<StepFolder>> ListAttempts(FileSystem& files, const StoreLayout& layout,
                                                     std::vector<std::string>* strangers = nullptr);

// The store id in the headers of the shards that can be read. kNotFound if there is none; kFailedPrecondition if they
// disagree. Any error but kNotFound, kDataLoss and kUnimplemented of any shard is returned.
absl::StatusOr<StoreId> FindStoreId(FileSystem& files, const StoreLayout& layout);

// Syncs the shards of the attempt that has this record, and their folders.
absl::Status SyncAttempt(FileSystem& files, const StoreLayout& layout, const StepRecord& record);

// Syncs these files and their folders. What a person has put back may not be synced.
absl::Status SyncReferences(FileSystem& files, const StoreLayout& layout, const std::vector<FileReference>& references);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_ATTEMPT_READER_H_
