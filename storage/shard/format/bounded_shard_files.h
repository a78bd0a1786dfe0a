// The files of a store that a stranger made. Its shards may have smaller indices than those that docs/format.md allows,
// so that a small download cannot take a reader's memory.

#ifndef TIDEMARK_STORAGE_SHARD_FORMAT_BOUNDED_SHARD_FILES_H_
#define TIDEMARK_STORAGE_SHARD_FORMAT_BOUNDED_SHARD_FILES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/io/forwarding_file_system.h"

namespace tidemark::storage {

// What a shard's index may have. Room for 699,000 chunks.
struct IndexBounds {
  uint64_t bytes = 32 << 20;
  uint64_t text_bytes = 4 << 20;  // all but chunks, files and user metadata
  // Each takes many times as many bytes in memory as in the index.
  uint64_t entries = 100'000;
  uint64_t metrics = 10'000;
  uint64_t properties = 10'000;
};

// The files of another file system. OpenForRead of a shard (a name that ends in ".tmk") whose index is larger than the
// bounds is kResourceExhausted, and the message has the bound. It looks at the open file, so no file can be put in its
// place afterwards. A shard that is damaged is opened: its reader says what is wrong with it. Thread-safe.
class BoundedShardFiles final : public ForwardingFileSystem {
 public:
  // Precondition: `other` is not null.
  explicit BoundedShardFiles(std::unique_ptr<FileSystem> other, const IndexBounds& bounds = {})
      : ForwardingFileSystem(*other), other_(std::move(other)), bounds_(bounds) {}

  absl::StatusOr<std::unique_ptr<File>> OpenForRead(const std::string& path, bool direct) override;

 private:
  const std::unique_ptr<FileSystem> other_;
  const IndexBounds bounds_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_FORMAT_BOUNDED_SHARD_FILES_H_
