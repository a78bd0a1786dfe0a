// What the tests of shards share: a directory, contents of every kind, and small tools on bytes.

#ifndef TIDEMARK_TESTS_STORAGE_SHARD_SHARD_TESTING_H_
#define TIDEMARK_TESTS_STORAGE_SHARD_SHARD_TESTING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "storage/shard/format/aligned_buffer.h"
#include "storage/shard/format/shard_format.h"
#include "storage/shard/read/shard_reader.h"
#include "storage/shard/write/shard_writer.h"

namespace tidemark::storage {

std::string ReadWhole(const std::string& path);
void WriteWhole(const std::string& path, std::string_view contents);

// Contents that own their bytes.
class TestContents {
 public:
  // Returns the entry's number. `data` must be as long as the entry.
  size_t Add(EntrySpec spec, std::vector<std::byte> data);
  size_t Tie(EntrySpec spec, size_t earlier);
  // As Add, with bytes that begin at a multiple of kDirectAlignment.
  size_t AddAligned(EntrySpec spec, const std::vector<std::byte>& data);

  ShardContents& operator*() { return contents_; }
  ShardContents* operator->() { return &contents_; }
  const ShardContents& get() const { return contents_; }
  // Of an entry, tied ones included.
  std::span<const std::byte> bytes(size_t entry) const;

 private:
  ShardContents contents_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> owned_;
  std::vector<AlignedBuffer> aligned_;
};

std::vector<std::byte> RandomBytes(size_t size, std::mt19937_64& random);
// Numbers as trained weights have them: normal, standard deviation 0.02.
std::vector<std::byte> Weights(Dtype dtype, size_t count, std::mt19937_64& random);

EntrySpec Tensor(std::string name, Dtype dtype, std::vector<int64_t> shape);

// Tensors of many dtypes and sizes, scalars, empty, tied, boxed, texts, metrics, metadata. `chunk_bytes` is the size to
// make multiples of, so that there are entries of several chunks.
TestContents MixedContents(uint32_t chunk_bytes, std::mt19937_64& random);

// The size of chunks where a test needs several of them and not their usual size.
inline constexpr uint32_t kTestChunkBytes = 65536;

ShardIdentity TestIdentity(int64_t step = 1000);
FileReference ReferenceTo(const ShardIdentity& identity);

// Writes with a writer of its own; the test fails if that fails.
WrittenShard WriteShard(const std::string& path, const ShardIdentity& identity, const ShardContents& contents,
                        const ShardWriterOptions& options);

// Reads every entry and expects the bytes of `contents`.
void ExpectReadsBack(const ShardReader& reader, const TestContents& contents, const ShardReadOptions& options = {});

// A whole shard from its parts; sets index offset, sizes and digest of the footer. `data` begins behind the header. The
// index is stored as a delta to `base` if that has a file.
std::string BuildShard(const ShardHeader& header, std::string_view data, const ShardIndex& index,
                       const IndexBase& base = {});

// Threads of this process. One that was joined may be listed for a moment longer: where there are more than `expected`
// this waits some seconds for fewer.
size_t CountThreads(size_t expected = 0);

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_SHARD_SHARD_TESTING_H_
