// Stager: makes a snapshot of a state. Owns the arena, the plans and the threads that copy.

#ifndef TIDEMARK_SNAPSHOT_STAGING_STAGER_H_
#define TIDEMARK_SNAPSHOT_STAGING_STAGER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "snapshot/deadline.h"
#include "snapshot/saves/save_phases.h"
#include "snapshot/saves/save_request.h"
#include "snapshot/staging/available_memory.h"
#include "snapshot/staging/copy_pool.h"
#include "snapshot/staging/overlap_check.h"
#include "snapshot/staging/staged_snapshot.h"
#include "snapshot/staging/staging_arena.h"
#include "snapshot/staging/staging_plan.h"
#include "tidemark/checkpointer_options.h"
#include "tidemark/state.h"

namespace tidemark {

// Thread-compatible: Begin and CopyTensors of one save are followed by those of the next. DrainImage of an earlier save
// may run beside them.
class Stager {
 public:
  // `available`: see StagingArena::Create. `warn` gets one line when it leaves no room for a second snapshot: what
  // becomes of saves then, by CheckpointerOptions::when_full.
  explicit Stager(const CheckpointerOptions& options, std::function<AvailableMemory()> available = nullptr,
                  std::function<void(std::string_view)> warn = nullptr);

  // What Begin calls, on its thread, where there is no room for the step: has somebody let go of a snapshot whose
  // memory then comes back, and says whether there was one.
  void set_make_room(std::function<bool(int64_t step)> make_room) { make_room_ = std::move(make_room); }

  // Whether waiting for room is of no use to a save that cannot be made later: only what may never end holds memory.
  void set_only_evaluators_are_left(std::function<bool()> left) { only_evaluators_are_left_ = std::move(left); }

  // An evaluator holds so many snapshots at most, for which an automatic staging_bytes_max is to have room.
  void AddRoomFor(uint64_t snapshots) { arena_->AddSnapshots(snapshots); }

  // On the trainer's thread: takes room for the state, notes the point in its devices' work after which tensors may be
  // copied, and copies what cannot wait. Null: no room at present, and the policy is not to wait. With a `last_chance`:
  // none until then, whatever the policy; where only evaluators are in the way, the budget is exceeded instead.
  // `phases`, which may be null, gets "refresh", "room" and "values". Errors: those of StagingArena::Acquire, and the
  // state's own.
  absl::StatusOr<std::unique_ptr<StagedSnapshot>> Begin(int64_t step, State& state, const SaveRequest& request,
                                                        absl::Time created, SavePhases* phases = nullptr,
                                                        const Deadline* last_chance = nullptr);

  // Reads the tensors as they are now. Tensors that the host cannot reach are first copied into the snapshot. Called
  // after Begin, on the trainer's thread, before others read the snapshot. Errors: the state's, those of CopyTensors.
  absl::StatusOr<std::unique_ptr<OverlapCheck>> ReadForCheck(State& state, StagedSnapshot& snapshot);

  // On any thread, while the trainer leaves the tensors alone: copies them, and says to the snapshot's progress what is
  // there. Not that staging has ended. With a `check`: kAborted if a copy is not what the check has read; everything is
  // copied then, too.
  absl::Status CopyTensors(State& state, StagedSnapshot& snapshot, OverlapCheck* check = nullptr);

  // The same in two parts: what the host can reach; and the rest from copies of it that the devices have.
  absl::Status CopyHostTensors(const State& state, StagedSnapshot& snapshot, OverlapCheck* check = nullptr);
  static absl::Status DrainImage(State::DeviceImage& image, StagedSnapshot& snapshot);

  // Takes and gives back the memory that a snapshot of the state needs.
  absl::Status Prepare(State& state);
  // The same for the entries as they are, and a little more; a thread touches it until the next Begin or Prepare, which
  // touches the rest. Page-locked memory, of a device's driver, is there when this returns. Where there is no memory,
  // or a thread already touches as much, it does nothing.
  void PrepareInBackground(State& state);

  const StagingArena& arena() const { return *arena_; }

 private:
  std::shared_ptr<const StagingPlan> PlanFor(const State& state);
  StagingArena::MemorySource SourceFor(State& state);
  // Whether a thread is touching, or has touched, as much memory as a snapshot of so many bytes takes.
  bool TouchesRoomFor(uint64_t bytes) const;
  // Ends what PrepareInBackground has begun: for `bytes` that fit in that memory by touching the rest, else by giving
  // it back.
  void FinishTouching(uint64_t bytes);
  // Waits as Begin does.
  absl::StatusOr<std::unique_ptr<StagingArena::Block>> RoomFor(int64_t step, State& state, uint64_t bytes,
                                                               const SaveRequest& request, const Deadline* last_chance);

  const WhenFull when_full_;
  const bool budget_is_automatic_;
  const std::shared_ptr<StagingArena> arena_;
  std::function<bool(int64_t step)> make_room_;     // null: nobody can
  std::function<bool()> only_evaluators_are_left_;  // null: nobody knows
  CopyPool pool_;
  std::unique_ptr<PageToucher> toucher_;  // of memory that is idle in the arena; null: all of that is touched
  std::vector<std::shared_ptr<const StagingPlan>> plans_;  // the last few used, newest last
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_STAGING_STAGER_H_
