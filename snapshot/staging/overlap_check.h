// OverlapCheck: whether tensors changed between an overlapped Save and their copy. See Tuning::check_overlapped_saves.

#ifndef TIDEMARK_SNAPSHOT_STAGING_OVERLAP_CHECK_H_
#define TIDEMARK_SNAPSHOT_STAGING_OVERLAP_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "snapshot/staging/staging_plan.h"
#include "storage/bytes/ids.h"

namespace tidemark {

// Of one save. First the Note functions are called for all that the plan copies, then the Compare functions. Each of
// these may run on several threads at once, for different indices.
class OverlapCheck {
 public:
  explicit OverlapCheck(std::shared_ptr<const StagingPlan> plan);

  // `bytes`: what StagingPlan::pieces()[piece], or the tensor device_tensors()[index], held when Save was called.
  void NotePiece(size_t piece, std::span<const std::byte> bytes) { pieces_[piece] = storage::DigestOf(bytes); }
  void NoteDeviceTensor(size_t index, std::span<const std::byte> bytes) {
    device_tensors_[index] = storage::DigestOf(bytes);
  }

  // `bytes`: the copy of it.
  void ComparePiece(size_t piece, std::span<const std::byte> bytes);
  void CompareDeviceTensor(size_t index, std::span<const std::byte> bytes);

  // kAborted: copies differ. The message has the step, the number of tensors, the names of the first ones, and what to
  // do.
  absl::Status Result(int64_t step) const;

 private:
  void AddChanged(size_t entry);

  const std::shared_ptr<const StagingPlan> plan_;
  std::vector<storage::Digest128> pieces_;          // by index in the plan
  std::vector<storage::Digest128> device_tensors_;  // by index in the plan
  mutable absl::Mutex mutex_;
  std::set<size_t> changed_ ABSL_GUARDED_BY(mutex_);  // entries
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_STAGING_OVERLAP_CHECK_H_
