// StepReader: reads entries of one committed step, in any order and in pieces.

#ifndef TIDEMARK_STEP_READER_H_
#define TIDEMARK_STEP_READER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "tidemark/entry.h"
#include "tidemark/step_info.h"

namespace tidemark {

// One shard: the file that one rank wrote.
struct ShardInfo {
  std::string path;
  uint32_t rank = 0;
  uint64_t file_bytes = 0;
  uint64_t chunk_count = 0;
};

// A shard of another step that holds chunks of this one. Its file is kept as long as this step is.
struct ReferencedShard {
  int64_t step = 0;
  std::string attempt;  // 32 hexadecimal digits
  std::string path;
  uint64_t chunk_count = 0;   // chunks of this step in it
  uint64_t stored_bytes = 0;  // of these chunks
};

struct StoredEntry {
  EntrySpec spec;
  uint64_t bytes = 0;         // of the held box
  uint64_t stored_bytes = 0;  // after compression; 0 for an entry tied to an earlier one
  uint64_t reused_bytes = 0;  // the part of stored_bytes that lies in earlier steps' files
  uint32_t rank = 0;          // of the shard that holds it
  std::string tied_to;        // the earlier entry that shares its bytes, or empty
  // 32 hexadecimal digits, of the held bytes. Entries with the same digest have the same bytes, in any step and store.
  // Entries with different digests may have the same bytes if their shards have different chunk sizes.
  std::string digest;
};

// The contents of the indices of a step's shards.
struct StepContents {
  StepInfo info;
  std::vector<ShardInfo> shards;
  std::vector<ReferencedShard> references;  // by step and path, each once
  std::vector<StoredEntry> entries;
  // How the step was staged and written. Always present:
  //   "library_version"
  //   "staging"         "blocking", "overlapped", "on_device", "imported", or "blocking: " and why not on the device
  //   "staging_memory"  "locked", "pinned", or "not locked: " and why
  //   "compression"     "auto", "throughput", "space" or "none"
  //   "chunk_bytes"     as in the options
  //   "reuse"           "step 12", to whose chunks it may refer, or "none"
  //   "direct_io"       "true" or "false"
  //   "io"              "io_uring" or "threads"
  //   "io_registered"   "true", or why memory and file are not registered with the ring
  // Present where they apply:
  //   "vectors"         with compression: "avx512", "avx2" or "portable"
  //   "replicated"      "true": entries that all ranks have alike were written by one of them (RankOptions::replicated)
  //   "io_reason"       why the kernel refused io_uring
  //   "allocate"        "false": the file system cannot preallocate
  //   "nice", "idle_io", "write_bytes_per_second_max"  as in the options
  //   "priority"        why the kernel refused one of these
  std::map<std::string, std::string> properties;
};

// How the entries of a step are shown that were saved in parts: by several ranks, or as several boxes by one rank.
enum class StepView {
  kParts,   // each rank's part or parts of an entry, one after the other
  kWholes,  // a tensor is made of all ranks' parts; any other value is the lowest rank's
};

// Made by StoreReader::OpenStep; may outlive the StoreReader. Immutable and thread-safe. Holds the step's own shards
// open, so that they can be read to the end even if a trainer deletes the step meanwhile.
class StepReader {
 public:
  ~StepReader();

  // With kWholes, `rank` is that of the first part, stored_bytes and reused_bytes are sums, and two that are split in
  // different ways have different digests.
  const StepContents& contents() const;

  // The bytes [offset, offset + destination.size()) of contents().entries[entry]. Row-major, as in ReadEntry.
  struct Window {
    size_t entry = 0;
    uint64_t offset = 0;
    std::span<std::byte> destination;
  };

  // Reads with several requests in flight and decodes straight into the destinations. Every chunk is verified. Calls
  // with more bytes are faster. Returns the first error; the destinations' contents are unspecified then.
  //
  // kOutOfRange: a window leaves its entry. kInvalidArgument: no such entry, or destinations that overlap. kDataLoss:
  // damaged, or the ranks have not saved all of a whole. kNotFound: a file of another step that this one refers to is
  // gone.
  absl::Status Read(std::span<const Window> windows) const;

  // The elements [offset[d], offset[d] + extent[d]) of each dimension d of the entry of that name, row-major, wherever
  // the ranks that saved it had them. If several ranks had an element, it is read from one of them. A value that is no
  // tensor is the lowest rank's. Reads only chunks that hold some of the elements, as a rule each once, and verifies
  // these. `destination`: as many bytes as the box has; unspecified after an error.
  //
  // kNotFound: no such entry, or a file of another step is gone. kOutOfRange: the box leaves the entry's shape.
  // kInvalidArgument: a destination of another size. kDataLoss: damaged; the ranks disagree on dtype or shape; or no
  // rank has saved some of the elements. kResourceExhausted: no memory, or the ranks' boxes overlap or leave
  // holes so that they cut this one into too many parts.
  absl::Status ReadBox(std::string_view name, std::span<const int64_t> offset, std::span<const int64_t> extent,
                       std::span<std::byte> destination) const;

  // A chunk is read and decoded as a whole. Windows that begin and end at multiples of this, or at the end of the
  // entry, read no chunk twice, unless the entry is a whole of several parts.
  uint64_t chunk_bytes() const;

 private:
  friend class StoreReader;
  StepReader();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidemark

#endif  // TIDEMARK_STEP_READER_H_
