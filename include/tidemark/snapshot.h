// Snapshot: an immutable copy of a state at one step, in host memory, shared by all consumers of the snapshot stream.

#ifndef TIDEMARK_SNAPSHOT_H_
#define TIDEMARK_SNAPSHOT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tidemark/entry.h"

namespace tidemark {

// Immutable and thread-safe. Held by shared_ptr: its memory returns to the staging arena when the last holder releases
// it. Holding one for long makes later saves wait for room.
class Snapshot {
 public:
  virtual ~Snapshot() = default;

  virtual int64_t step() const = 0;

  // In the order in which the trainer added them.
  virtual std::span<const EntrySpec> entries() const = 0;

  // The bytes of entries()[index], row-major; aligned to 64 bytes. Tied entries share the same bytes. Valid as long as
  // the snapshot, or what memory() returned.
  virtual std::span<const std::byte> bytes(size_t index) const = 0;

  // Keeps the bytes of all entries valid without the snapshot, for arrays that refer to them. Never null. To hold it
  // costs what holding the snapshot costs.
  virtual std::shared_ptr<const void> memory() const = 0;

  // The index of the entry of that name; of several boxes of one tensor, that of the first.
  virtual std::optional<size_t> Find(std::string_view name) const = 0;

  // Given with the save.
  virtual const std::map<std::string, double>& metrics() const = 0;

  // A JSON object, given with the save; "{}" if none was.
  virtual const std::string& user_metadata() const = 0;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_H_
