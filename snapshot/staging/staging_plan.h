// StagingPlan: where each entry of a state lies in a snapshot. Made once for each structure of a state and shared by
// all snapshots of it. Strings and bytes may change their length from save to save. They lie behind everything else,
// and each snapshot has places of its own for them.

#ifndef TIDEMARK_SNAPSHOT_STAGING_STAGING_PLAN_H_
#define TIDEMARK_SNAPSHOT_STAGING_STAGING_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "storage/shard/format/name_table.h"
#include "tidemark/entry.h"
#include "tidemark/state.h"

namespace tidemark {

// The entries in the order in which they are staged: each followed by those that are staged with it.
std::vector<size_t> StagingOrder(std::span<const State::Entry> entries);

// A trainer has one state, or a few that take turns. What is made for one is kept for so many.
inline constexpr size_t kStatesMax = 4;

// Immutable.
class StagingPlan {
 public:
  // What one entry takes in the arena.
  struct Placement {
    uint64_t offset = 0;  // 0 for a sized value
    uint64_t bytes = 0;   // 0 for a sized value
    int64_t alias_of = -1;
    int64_t sized_value = -1;  // index in sized_values(); -1: it has the same place in every snapshot
  };
  // Where the sized values of one snapshot lie.
  struct SizedPlace {
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };
  struct SizedPlaces {
    std::vector<SizedPlace> of_values;  // in the order of sized_values()
    uint64_t value_bytes = 0;           // of the values themselves
    uint64_t total_bytes = 0;           // of the whole snapshot; some more than it needs, so that it seldom changes
  };
  // A part of one entry that the host can reach, small enough that several threads share a large tensor.
  struct CopyPiece {
    size_t entry = 0;
    uint64_t begin = 0;
    uint64_t bytes = 0;
  };
  // Neighbours in the snapshot that are copied as one: many small tensors, or a part of a large one. On the host:
  // pieces()[first] to pieces()[last - 1]; else that range of device_tensors().
  struct Run {
    bool on_host = true;
    size_t first = 0;
    size_t last = 0;
    uint64_t begin = 0;  // offset of its first byte in the snapshot; ascending from run to run
  };

  explicit StagingPlan(const State& state);
  StagingPlan(const StagingPlan&) = delete;
  StagingPlan& operator=(const StagingPlan&) = delete;

  uint64_t structure_version() const { return structure_version_; }
  const std::vector<EntrySpec>& specs() const { return specs_; }
  const std::vector<Placement>& placements() const { return placements_; }
  uint64_t fixed_bytes() const { return fixed_bytes_; }  // without sized values

  // Strings and bytes: entries whose length is known at each save. They are read while Save holds the trainer.
  const std::vector<size_t>& sized_values() const { return sized_values_; }
  // Precondition: `entries` have the structure of this plan.
  SizedPlaces PlaceSizedValues(std::span<const State::Entry> entries) const;

  // What is copied while the trainer leaves its tensors alone, tied tensors once, in the order in which it lies in the
  // snapshot: that of the entries, each followed by those that are staged with it.
  const std::vector<Run>& runs() const { return runs_; }
  const std::vector<CopyPiece>& pieces() const { return pieces_; }

  // Tensors that only State::CopyToHost can reach.
  const std::vector<size_t>& device_tensors() const { return device_tensors_; }
  uint64_t device_bytes() const { return device_bytes_; }
  uint64_t host_bytes() const { return host_bytes_; }  // of the pieces

  // What must be read while Save holds the trainer, besides sized values: everything else that is no tensor, and
  // State::Entry::changes_early.
  const std::vector<size_t>& early_entries() const { return early_entries_; }
  uint64_t early_bytes() const { return early_bytes_; }

  // Where each run begins.
  std::vector<uint64_t> RunBegins() const;

  // Index of the entry of that name, or -1.
  int64_t Find(std::string_view name) const;

 private:
  void Place(size_t entry, const State::Entry& value);
  void AddToRuns(bool on_host, size_t index, uint64_t begin, uint64_t bytes);

  uint64_t structure_version_;
  std::vector<EntrySpec> specs_;
  std::vector<Placement> placements_;
  uint64_t fixed_bytes_ = 0;
  uint64_t last_run_bytes_ = 0;
  std::vector<CopyPiece> pieces_;
  std::vector<Run> runs_;
  std::vector<size_t> device_tensors_;
  uint64_t device_bytes_ = 0;
  uint64_t host_bytes_ = 0;
  std::vector<size_t> sized_values_;
  std::vector<size_t> early_entries_;
  uint64_t early_bytes_ = 0;
  storage::NameMap<size_t> by_name_;  // names lie in specs_
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_STAGING_STAGING_PLAN_H_
