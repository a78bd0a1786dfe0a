// The file of a shard, and those of the shards that it refers to.

#ifndef TIDEMARK_STORAGE_SHARD_FORMAT_SHARD_FILES_H_
#define TIDEMARK_STORAGE_SHARD_FORMAT_SHARD_FILES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "storage/io/file_system.h"
#include "storage/shard/format/aligned_buffer.h"
#include "storage/shard/format/shard_format.h"

namespace tidemark::storage {

// `status` with "PREFIX: " before its message.
absl::Status WithPrefix(const absl::Status& status, std::string_view prefix);

// Reads [offset, offset + bytes) and the rest of its last block. kResourceExhausted: no memory for them. Precondition:
// `offset` is a multiple of kDirectAlignment.
absl::StatusOr<AlignedBuffer> ReadBlocks(File& file, uint64_t offset, uint64_t bytes);

// The size of a shard's file. kDataLoss if no shard can have it.
absl::StatusOr<uint64_t> ReadShardSize(File& file);

// Each reads and decodes one part; errors carry the path.
absl::StatusOr<ShardHeader> ReadShardHeader(File& file);
absl::StatusOr<ShardFooter> ReadShardFooter(File& file, uint64_t file_bytes);

// An index, and how the file has it.
struct StoredIndex {
  ShardIndex index;
  IndexBase base;
};

// Reads the index, and the index of its base, whose shard is in `steps_directory`. An error of the base's file names
// that file after `file`. `*failed_path`, unless it is null, is set to the path of the file that failed.
// - kDataLoss: one of the two is damaged, or the base is not the shard that the delta was made for.
// - kNotFound: the base's file is gone.
// - kUnimplemented, kFailedPrecondition: the base's file is of a newer version, or is no regular file.
// - kResourceExhausted: no memory for an index.
absl::StatusOr<StoredIndex> ReadShardIndex(FileSystem& files, const std::string& steps_directory, File& file,
                                           const ShardHeader& header, const ShardFooter& footer,
                                           std::string* failed_path = nullptr);

// kDataLoss, with both, if the header is not that of the shard that was looked for.
absl::Status CheckIdentity(std::string_view path, const ShardHeader& header, const ShardIdentity& expected);

// Opens the shards that an index refers to when they are first asked for, and keeps them open. Thread-safe.
class ReferencedShards {
 public:
  // `files` is not owned. `store` is that of the referring shard.
  ReferencedShards(FileSystem& files, std::string steps_directory, const StoreId& store,
                   std::vector<FileReference> references);

  const std::string& path(size_t reference) const { return paths_[reference]; }

  // The file, which stays open until this is destroyed. Its header carries the store, step, attempt and rank of the
  // reference, else kDataLoss. kNotFound: it is gone. Errors are not kept: the next call tries again.
  absl::StatusOr<File*> Get(size_t reference);

 private:
  FileSystem& files_;
  const StoreId store_;
  const std::vector<FileReference> references_;
  const std::vector<std::string> paths_;

  absl::Mutex mutex_;
  std::vector<std::unique_ptr<File>> open_ ABSL_GUARDED_BY(mutex_);  // null: not yet opened
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_FORMAT_SHARD_FILES_H_
