// The places in host memory to which a restore writes its tensors. Several tensors may share memory: tied weights, a
// tensor and a view of it, a view that begins inside of another.

#ifndef TIDEMARK_SNAPSHOT_RESTORE_DESTINATION_PLAN_H_
#define TIDEMARK_SNAPSHOT_RESTORE_DESTINATION_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/shard/read/shard_reader.h"

namespace tidemark {

// A tensor of the checkpoint, and the memory that it goes to. Not owned.
struct Destination {
  size_t saved = 0;             // index into the checkpoint's entries
  std::span<std::byte> memory;  // as long as that entry
  std::string_view name;        // its name in the state, for messages
};

// The bytes of a checkpoint's entries. An entry is named by its index.
class SavedBytes {
 public:
  virtual ~SavedBytes() = default;
  // Whether two entries have the same bytes.
  virtual bool AreSame(size_t one, size_t other) const = 0;
  // Fills the destinations. Each window lies in its entry.
  virtual absl::Status Read(std::span<const storage::EntryRead> reads) const = 0;
};

struct DestinationRead {
  size_t destination = 0;  // index into the destinations
  storage::EntryRead read;
};

// Reads that write every byte of the destinations once. If destinations share bytes, the checkpoint must have the same
// bytes for each of them; then the first one's are read. It never writes to a destination. It calls SavedBytes::Read
// only if destinations share a part of their memory. If they share all of it, it calls AreSame. Pure except for those
// reads.
//
// - kInvalidArgument: the checkpoint has different bytes for memory that two destinations share. The message names
// both.
// - kResourceExhausted: there is no memory for the comparison, which takes at most `bounce_bytes_max` at a time.
// - Other errors are SavedBytes::Read's.
absl::StatusOr<std::vector<DestinationRead>> PlanDestinations(const SavedBytes& saved,
                                                              std::span<const Destination> destinations,
                                                              uint64_t bounce_bytes_max);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_RESTORE_DESTINATION_PLAN_H_
