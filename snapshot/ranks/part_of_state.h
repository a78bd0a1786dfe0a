// PartOfState: what one rank saves of a state whose entries the ranks of a job share.

#ifndef TIDEMARK_SNAPSHOT_RANKS_PART_OF_STATE_H_
#define TIDEMARK_SNAPSHOT_RANKS_PART_OF_STATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/bytes/ids.h"
#include "tidemark/ranks.h"
#include "tidemark/state.h"

namespace tidemark {

// A State for saving alone: the entries of another one but those that another rank writes. What it is asked to do is
// done by that one, which is not owned; it may be gone between saves. Threads: as State.
class PartOfState final : public State {
 public:
  PartOfState(State& whole, const RankOptions& ranks);

  const State* whole() const { return &whole_; }

  // Takes the entries of the whole as they are now; Refresh does that too.
  void Look();

  // As of the last look.
  bool LeavesOut(std::string_view name) const { return names_left_out_.contains(std::string(name)); }
  // By entry of the whole.
  const std::vector<bool>& left_out() const { return left_out_; }
  // Of the entries that the ranks share; the same on all ranks, or the save fails.
  const storage::Digest128& structure() const { return structure_; }
  // Patterns of RankOptions::replicated that match no entry.
  const std::vector<std::string>& patterns_without_entry() const { return patterns_without_entry_; }

  absl::Status Refresh() override;
  absl::Status BeginStaging() override { return whole_.BeginStaging(); }
  absl::StatusOr<std::unique_ptr<DeviceImage>> CopyOnDevice(std::span<const size_t> entries,
                                                            uint64_t bytes_max) override;
  std::shared_ptr<std::byte> AllocateStaging(uint64_t bytes) override { return whole_.AllocateStaging(bytes); }
  absl::Status CopyToHost(std::span<const CopyRequest> requests) override;

 private:
  State& whole_;
  const int32_t rank_;
  const int32_t world_size_;
  const std::vector<std::string> replicated_;
  uint64_t known_version_ = 0;    // of the whole; 0: none yet
  std::vector<size_t> in_whole_;  // by own entry: its index in the whole
  std::vector<bool> left_out_;
  absl::flat_hash_set<std::string> names_left_out_;
  storage::Digest128 structure_;
  std::vector<std::string> patterns_without_entry_;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_RANKS_PART_OF_STATE_H_
