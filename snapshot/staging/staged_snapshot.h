// StagedSnapshot: the one implementation of Snapshot, and what the persister must know beside it.

#ifndef TIDEMARK_SNAPSHOT_STAGING_STAGED_SNAPSHOT_H_
#define TIDEMARK_SNAPSHOT_STAGING_STAGED_SNAPSHOT_H_

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "snapshot/saves/pending_save.h"
#include "snapshot/saves/save_outcome.h"
#include "snapshot/saves/save_phases.h"
#include "snapshot/staging/staging_arena.h"
#include "snapshot/staging/staging_plan.h"
#include "snapshot/staging/staging_progress.h"
#include "snapshot/stopwatch.h"
#include "storage/bytes/ids.h"
#include "tidemark/future.h"
#include "tidemark/snapshot.h"

namespace tidemark {

// Published as soon as it has its memory and the values are in it; the tensors' bytes follow, and nothing of an entry
// is to be read before progress() says that it is there. Immutable from then on.
class StagedSnapshot final : public Snapshot {
 public:
  StagedSnapshot(int64_t step, std::shared_ptr<const StagingPlan> plan, StagingPlan::SizedPlaces sized,
                 std::unique_ptr<StagingArena::Block> block, std::map<std::string, double> metrics,
                 std::string user_metadata, absl::Time created, bool persist = true)
      : plan_(std::move(plan)),
        sized_(std::move(sized)),
        progress_(std::make_shared<StagingProgress>(plan_->RunBegins(), plan_->fixed_bytes())),
        pending_save_(std::make_shared<PendingSave>(step, persist, progress_)),
        block_(std::move(block)),
        metrics_(std::move(metrics)),
        user_metadata_(std::move(user_metadata)),
        created_(created) {}

  int64_t step() const override { return pending_save_->step(); }
  std::span<const EntrySpec> entries() const override;
  std::span<const std::byte> bytes(size_t index) const override {
    const StagingPlan::SizedPlace place = PlaceOf(index);
    return {block_->data() + place.offset, static_cast<size_t>(place.bytes)};
  }
  std::shared_ptr<const void> memory() const override { return block_; }
  std::optional<size_t> Find(std::string_view name) const override {
    const int64_t index = plan_->Find(name);
    return index < 0 ? std::nullopt : std::optional<size_t>(static_cast<size_t>(index));
  }
  const std::map<std::string, double>& metrics() const override { return metrics_; }
  const std::string& user_metadata() const override { return user_metadata_; }

  const StagingPlan& plan() const { return *plan_; }
  const std::shared_ptr<const StagingPlan>& shared_plan() const { return plan_; }
  // entries()[index], without the others.
  EntrySpec SpecOf(size_t index) const;
  absl::Time created() const { return created_; }
  const std::shared_ptr<StagingProgress>& progress() const { return progress_; }
  const StagingArena::Block& block() const { return *block_; }

  // See SaveRequest::persist.
  bool persist() const { return pending_save_->persist(); }

  // Which save it is of.
  const std::shared_ptr<const PendingSave>& pending_save() const { return pending_save_; }

  // How it is staged: "blocking", "overlapped", "on_device", or "blocking: " and why it is not on the device.
  const std::string& staging() const { return staging_; }

  const storage::Digest128& structure() const { return structure_; }
  bool IsWrittenHere(size_t index) const { return written_elsewhere_.empty() || !written_elsewhere_[index]; }

  // How long Save held the trainer. Known when staging has ended.
  absl::Duration blocked() const { return held_.total; }
  const HeldTimes& held() const { return held_; }
  // What the trainer and who copied for it did, and when Save was called. Known when staging has ended.
  const SavePhases& phases() const { return phases_; }
  // When it was given to its consumers.
  SavePhases::Time published() const { return published_; }
  // Until when the save compresses everything (Compression::kAuto).
  SavePhases::Time compress_all_until() const { return compress_all_until_; }
  // How long ago the trainer went on.
  absl::Duration behind() const { return std::max(absl::ZeroDuration(), since_created_.elapsed() - held_.copy); }

  // Blocks until the first `end` bytes of an entry are there; the failure of staging, if that comes instead.
  absl::Status WaitFor(size_t index, uint64_t end) const {
    const StagingPlan::Placement& placement = plan_->placements()[index];
    // Sized values were read before the snapshot was published.
    return placement.sized_value >= 0 ? absl::OkStatus() : progress_->WaitFor(placement.offset + end);
  }

  // The pending save's. A snapshot that was published without persist() must be held until progress() has ended.
  const std::shared_ptr<Promise>& committed() const { return pending_save_->committed(); }

  // For whoever stages. Before it is published.
  void set_staging(std::string staging) { staging_ = std::move(staging); }
  void set_phases(SavePhases phases) { phases_ = std::move(phases); }
  // Of a job of several ranks: what they share (RankPart::structure), and by entry whether another rank writes it, if
  // any is such.
  void set_shared(const storage::Digest128& structure, std::vector<bool> written_elsewhere) {
    structure_ = structure;
    written_elsewhere_ = std::move(written_elsewhere);
  }
  void set_published(SavePhases::Time time) { published_ = time; }
  void set_compress_all_until(SavePhases::Time time) { compress_all_until_ = time; }
  // So many bytes of tensors have been copied since `begin`. Before progress() ends.
  void NoteCopied(std::string_view lane, SavePhases::Time begin, uint64_t bytes) {
    phases_.Add("copy", lane, begin, SavePhases::Now(), bytes);
  }
  // The same for their digests, on the trainer's thread.
  void NoteDigested(SavePhases::Time begin, uint64_t bytes) {
    phases_.Add("digest", kTrainerLane, begin, SavePhases::Now(), bytes);
  }
  // Where the bytes of an entry go.
  std::byte* data(size_t index) const { return block_->data() + PlaceOf(index).offset; }
  // Before progress() ends.
  void set_held(const HeldTimes& held) { held_ = held; }

 private:
  StagingPlan::SizedPlace PlaceOf(size_t index) const {
    const StagingPlan::Placement& placement = plan_->placements()[index];
    if (placement.sized_value >= 0) return sized_.of_values[static_cast<size_t>(placement.sized_value)];
    return {.offset = placement.offset, .bytes = placement.bytes};
  }

  const std::shared_ptr<const StagingPlan> plan_;
  const StagingPlan::SizedPlaces sized_;
  mutable std::once_flag specs_made_;
  mutable std::vector<EntrySpec> specs_;  // made by the first entries(); empty: as the plan's
  const std::shared_ptr<StagingProgress> progress_;
  const std::shared_ptr<const PendingSave> pending_save_;
  // After the pending save, so that the memory is free before that goes; unless memory() is held.
  const std::shared_ptr<const StagingArena::Block> block_;
  const std::map<std::string, double> metrics_;
  const std::string user_metadata_;
  const absl::Time created_;
  const Stopwatch since_created_;
  HeldTimes held_;
  SavePhases phases_;
  SavePhases::Time published_;
  SavePhases::Time compress_all_until_;
  std::string staging_;
  storage::Digest128 structure_;
  std::vector<bool> written_elsewhere_;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_STAGING_STAGED_SNAPSHOT_H_
