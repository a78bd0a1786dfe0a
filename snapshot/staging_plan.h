// StagingPlan: where each entry of a state lies in a snapshot. Made once for each structure of a state and shared by
// all snapshots of it.

#ifndef TIDEMARK_SNAPSHOT_STAGING_PLAN_H_
#define TIDEMARK_SNAPSHOT_STAGING_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tidemark/entry.h"
#include "tidemark/state.h"

namespace tidemark {

// Immutable.
class StagingPlan {
 public:
  // What one entry takes in the arena.
  struct Placement {
    uint64_t offset = 0;
    uint64_t bytes = 0;
    int64_t alias_of = -1;
  };
  // A run of one entry's host memory, small enough that several threads share a large tensor.
  struct CopyPiece {
    size_t entry = 0;
    uint64_t begin = 0;
    uint64_t bytes = 0;
  };

  explicit StagingPlan(const State& state);
  StagingPlan(const StagingPlan&) = delete;
  StagingPlan& operator=(const StagingPlan&) = delete;

  uint64_t structure_version() const { return structure_version_; }
  const std::vector<EntrySpec>& specs() const { return specs_; }
  const std::vector<Placement>& placements() const { return placements_; }
  uint64_t total_bytes() const { return total_bytes_; }

  // Tensors in host memory, tied ones once, in runs of about kCopyRunBytes: runs of small tensors have many pieces, and
  // runs of a large one have a part of it. pieces()[runs()[i]] to pieces()[runs()[i + 1] - 1] is run i.
  const std::vector<CopyPiece>& pieces() const { return pieces_; }
  const std::vector<size_t>& runs() const { return runs_; }

  // Tensors that only State::CopyToHost can reach.
  const std::vector<size_t>& device_tensors() const { return device_tensors_; }

  // What must be read while Save holds the trainer: everything that is no tensor, and State::Entry::changes_early.
  const std::vector<size_t>& early_entries() const { return early_entries_; }

  // Index of the entry of that name, or -1.
  int64_t Find(std::string_view name) const;

 private:
  uint64_t structure_version_;
  std::vector<EntrySpec> specs_;
  std::vector<Placement> placements_;
  uint64_t total_bytes_ = 0;
  std::vector<CopyPiece> pieces_;
  std::vector<size_t> runs_;
  std::vector<size_t> device_tensors_;
  std::vector<size_t> early_entries_;
  absl::flat_hash_map<std::string_view, size_t> by_name_;  // names lie in specs_
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_STAGING_PLAN_H_
