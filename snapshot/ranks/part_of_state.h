// PartOfState: what one rank saves of a state whose entries the ranks of a job share.

#ifndef TIDEMARK_SNAPSHOT_RANKS_PART_OF_STATE_H_
#define TIDEMARK_SNAPSHOT_RANKS_PART_OF_STATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/bytes/ids.h"
#include "tidemark/ranks.h"
#include "tidemark/state.h"

namespace tidemark {

// The entries of `whole` without those that another rank writes, in the same order. For saving; it restores nothing.
//
// `whole` is not owned. It may be destroyed after a save, and another State may then have its address: the next Look or
// Refresh takes what is there, since no two States have the same structure_version. Threads: as State, so CopyToHost
// may run on the staging thread, which holds this object.
class PartOfState final : public State {
 public:
  // The entries that are left out: by name the index of the last own entry that is staged before it, -1 if there is
  // none.
  using LeftOut = absl::flat_hash_map<std::string, int64_t>;

  PartOfState(State& whole, const RankOptions& ranks);

  const State* whole() const { return &whole_; }

  // Takes the entries of `whole` as its last Refresh found them.
  void Look();
  // Refreshes `whole`, and looks.
  absl::Status Refresh() override;

  // As of the last look.
  std::shared_ptr<const LeftOut> left_out_by_name() const { return left_out_by_name_; }
  // By entry of `whole`.
  const std::vector<bool>& left_out() const { return left_out_; }
  // Of the entries that one rank writes for all. With another one on another rank the save fails.
  const storage::Digest128& structure() const { return structure_; }
  // Patterns of RankOptions::replicated that match no entry.
  const std::vector<std::string>& patterns_without_entry() const { return patterns_without_entry_; }

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
  std::shared_ptr<const LeftOut> left_out_by_name_ = std::make_shared<const LeftOut>();
  storage::Digest128 structure_;
  std::vector<std::string> patterns_without_entry_;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_RANKS_PART_OF_STATE_H_
