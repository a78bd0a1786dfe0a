// Reads boxes of a step's tensors from all shards that have parts of them.

#ifndef TIDEMARK_SNAPSHOT_RESTORE_BOX_READ_H_
#define TIDEMARK_SNAPSHOT_RESTORE_BOX_READ_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "snapshot/restore/box_plan.h"
#include "tidemark/step_reader.h"

namespace tidemark {

// A step whose entries can be read in windows. Thread-safe.
class WindowedStep {
 public:
  virtual ~WindowedStep() = default;
  virtual const StepContents& Contents() const = 0;
  // The size of chunks in the shard that has the entry. A chunk is read as a whole.
  virtual uint64_t ChunkBytes(size_t entry) const = 0;
  // As StepReader::Read.
  virtual absl::Status Read(std::span<const StepReader::Window> windows) const = 0;
};

// Where the parts of one entry are: of a tensor those of all ranks, of any other value that of the lowest rank. Those
// of different ranks may overlap. Then an element is read from one of them.
struct EntryParts {
  EntrySpec spec;              // of the whole
  uint64_t bytes = 0;          // of the whole
  std::vector<size_t> stored;  // of StepContents::entries
  std::vector<Box> boxes;      // of each of these
  absl::Status problem;        // kDataLoss: the ranks disagree on what it is
};

// All entries, in the order of their first parts.
std::vector<EntryParts> JoinEntries(const StepContents& step);

// kDataLoss: the ranks disagree on what the entry is, or no rank has saved some of the box. kResourceExhausted: its
// parts overlap or leave holes too often.
absl::Status CheckIsThere(const StepContents& step, const EntryParts& parts, const Box& box);

// 32 hexadecimal digits. Entries with the same ones have the same shape and bytes.
std::string DigestOfParts(const StepContents& step, const EntryParts& parts);

// A box of one entry, and where it goes. Precondition: it lies in the entry, and the destination is as long as it is.
struct BoxRead {
  const EntryParts* parts = nullptr;
  Box box;
  std::span<std::byte> destination;
};

// The bytes [offset, offset + destination.size()) of a box of one entry, row-major. Precondition: it has them.
struct RangeRead {
  const EntryParts* parts = nullptr;
  std::optional<Box> box;  // nullopt: all of it
  uint64_t offset = 0;
  std::span<std::byte> destination;
};

// Both read from the entries of `step`, in few calls of its Read. `on_read` may be null. It is called with the number
// of bytes that have been read since its last call. Errors: those of CheckIsThere and of WindowedStep::Read.
absl::Status ReadBoxes(const WindowedStep& step, std::span<const BoxRead> reads,
                       const std::function<void(uint64_t bytes)>& on_read = nullptr);
absl::Status ReadRanges(const WindowedStep& step, std::span<const RangeRead> reads,
                        const std::function<void(uint64_t bytes)>& on_read = nullptr);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_RESTORE_BOX_READ_H_
