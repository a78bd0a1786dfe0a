// StepReader: the entries of one committed step, read in whatever order and pieces.

#ifndef TIDEMARK_STEP_READER_H_
#define TIDEMARK_STEP_READER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
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

// A shard of another step, in which chunks of this one lie. Its file stays as long as this step does.
struct ReferencedShard {
  int64_t step = 0;
  std::string attempt;  // 32 hexadecimal digits
  std::string path;
  uint64_t chunk_count = 0;   // of this step that lie in it
  uint64_t stored_bytes = 0;  // of these chunks
};

struct StoredEntry {
  EntrySpec spec;
  uint64_t bytes = 0;         // of the held box
  uint64_t stored_bytes = 0;  // after compression; 0 for an entry tied to an earlier one
  uint64_t reused_bytes = 0;  // the part of them that lies in earlier steps' files
  uint32_t rank = 0;          // whose shard holds it
  std::string tied_to;        // the earlier entry with the very same bytes, or empty
  // 32 hexadecimal digits, of the held bytes: two entries with the same digest have the same bytes, in whatever step or
  // store. Two with different digests may have the same, too, if their shards have chunks of different sizes.
  std::string digest;
};

// Everything that the index of a step's shards says.
struct StepContents {
  StepInfo info;
  std::vector<ShardInfo> shards;
  std::vector<ReferencedShard> references;  // by step and path, each once
  std::vector<StoredEntry> entries;
  // How it was staged and written. Always: "library_version"; "staging": "blocking", "overlapped", "on_device",
  // "imported", or "blocking: " and why it was not on the device; "staging_memory": "locked", "pinned" or "not locked:
  // " and why; "compression": "throughput", "space" or "none"; "chunk_bytes" as in the options; "reuse": "step 12",
  // to whose chunks it could refer, or "none"; "direct_io": "true" or "false"; "io": "io_uring" or "threads".
  // "io_registered": "true", or why the kernel does not keep memory and file at hand; with compression, "vectors":
  // "avx512", "avx2" or "portable". Where it is so: "io_reason": why the kernel refused io_uring; "allocate": "false";
  // "nice", "idle_io" and "write_bytes_per_second_max" as in the options; "priority": why the kernel refused one. Which
  // threads compressed the phases' record says.
  std::map<std::string, std::string> properties;
};

// Made by StoreReader::OpenStep, which it outlives. Immutable and thread-safe. Holds the step's own shards open, so
// these can be read to the end even if a trainer lets the step go meanwhile.
class StepReader {
 public:
  ~StepReader();

  const StepContents& contents() const;

  // The bytes [offset, offset + destination.size()) of contents().entries[entry]. Row-major, as in ReadEntry.
  struct Window {
    size_t entry = 0;
    uint64_t offset = 0;
    std::span<std::byte> destination;
  };

  // Reads at depth and decodes straight into the destinations, every chunk verified; the more bytes a call has, the
  // faster. Destinations may not overlap. kOutOfRange: a window that does not lie in its entry. kInvalidArgument: no
  // such entry. kDataLoss: damaged. kNotFound: a file of another step that this one refers to is gone. The first error
  // is returned; destinations then hold anything.
  absl::Status Read(std::span<const Window> windows) const;

  // A chunk is read and decoded as a whole. Windows that begin and end at multiples of this, or at the end of the
  // entry, have none read twice.
  uint64_t chunk_bytes() const;

 private:
  friend class StoreReader;
  StepReader();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidemark

#endif  // TIDEMARK_STEP_READER_H_
