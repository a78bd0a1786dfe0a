// OwnedSnapshot: a snapshot in memory of its own, outside of the staging arena.

#ifndef TIDEMARK_SNAPSHOT_STAGING_OWNED_SNAPSHOT_H_
#define TIDEMARK_SNAPSHOT_STAGING_OWNED_SNAPSHOT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "storage/shard/format/name_table.h"
#include "tidemark/snapshot.h"

namespace tidemark {

// Immutable once whoever made it has filled it.
class OwnedSnapshot final : public Snapshot {
 public:
  struct Contents {
    int64_t step = 0;
    std::vector<EntrySpec> entries;
    // By entry: the earlier one whose bytes it shares, or -1.
    std::vector<int64_t> alias_of;
    std::map<std::string, double> metrics;
    std::string user_metadata = "{}";
  };

  // With room for the bytes of all entries. kResourceExhausted: the system has no memory. Precondition: the entries are
  // valid, and their names unique.
  static absl::StatusOr<std::shared_ptr<OwnedSnapshot>> Create(Contents contents);

  int64_t step() const override { return contents_.step; }
  std::span<const EntrySpec> entries() const override { return contents_.entries; }
  std::span<const std::byte> bytes(size_t index) const override { return places_[index]; }
  std::shared_ptr<const void> memory() const override { return memory_; }
  std::optional<size_t> Find(std::string_view name) const override;
  const std::map<std::string, double>& metrics() const override { return contents_.metrics; }
  const std::string& user_metadata() const override { return contents_.user_metadata; }

  // Where the bytes of an entry go: at a multiple of 64; of one that has as many at a multiple of 4096, so that they
  // can be read to it directly.
  std::span<std::byte> place(size_t index) { return places_[index]; }
  // Whether it is another entry's place.
  bool is_alias(size_t index) const { return contents_.alias_of[index] >= 0; }

 private:
  explicit OwnedSnapshot(Contents contents);

  Contents contents_;
  std::shared_ptr<std::byte> memory_;
  std::vector<std::span<std::byte>> places_;  // by entry
  storage::NameMap<size_t> by_name_;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_STAGING_OWNED_SNAPSHOT_H_
