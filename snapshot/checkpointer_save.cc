// AsyncCheckpointer::Save: from the call to the moment at which the trainer goes on, the copying behind it, and the
// end of the save.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "fmt/format.h"
#include "snapshot/checkpointer_impl.h"
#include "snapshot/guarded.h"
#include "snapshot/resolved_future.h"
#include "snapshot/staging/open_staging.h"
#include "snapshot/stopwatch.h"
#include "storage/io/exception_status.h"

namespace tidemark {
namespace {

std::string StagingName(Staging staging) {
  switch (staging) {
    case Staging::kBlocking:
      return "blocking";
    case Staging::kOverlapped:
      return "overlapped";
    case Staging::kOnDevice:
      return "on_device";
  }
  return "";
}

}  // namespace

absl::StatusOr<SaveHandle> AsyncCheckpointer::Impl::Save(const Deadline* last_chance, int64_t step, State& state,
                                                         const SaveRequest& request) {
  if (absl::Status status = CheckOpen(); !status.ok()) return status;
  const absl::Time created = now();
  bool published = false;
  absl::StatusOr<SaveHandle> handle =
      Guarded("Save", [&] { return SaveHere(last_chance, step, state, request, created, &published); });
  // The other ranks need not wait for a save that this one could not begin.
  if (ranked_attempts != nullptr && request.persist && !published) {
    const absl::Status why = handle.ok() ? handle->committed().Wait() : handle.status();
    storage::BestEffort([&] { stream->PublishRefusal(step, created, why); });
  }
  return handle;
}

absl::StatusOr<SaveHandle> AsyncCheckpointer::Impl::SaveHere(const Deadline* last_chance, int64_t step, State& state,
                                                             const SaveRequest& request, absl::Time created,
                                                             bool* published) {
  const Stopwatch blocked;
  SavePhases phases;
  SaveHandle handle;
  if (absl::Status status = AwaitSave(step, state, request, last_chance, &phases); !status.ok()) return status;
  if (last_chance == nullptr) handle.earlier_ = EarlierFailure();

  // Skipped saves are due as well.
  const SavePhases::Time called = phases.called();
  const SavePhases::Time compress_all_until = request.persist ? compression_time.EndFor(called) : called;
  const Staging wanted = request.staging.value_or(options.staging);
  if (wanted != Staging::kBlocking) {
    if (absl::Status status = StartStagingThread(); !status.ok()) return status;
  }
  const auto held = std::make_shared<HeldTimes>();
  const std::shared_ptr<PartOfState> part = PartToStage(state);
  State& staged_state = part == nullptr ? state : *part;
  absl::StatusOr<std::unique_ptr<StagedSnapshot>> begun =
      BeginSnapshot(step, staged_state, request, created, std::move(phases), last_chance, held.get());
  if (!begun.ok()) return begun.status();
  if (*begun == nullptr) return SkipSave(step, blocked.elapsed(), std::move(handle));
  handle.step_ = step;
  handle.staging_ = wanted;
  const SavePhases::Time copy_begin = SavePhases::Now();
  std::shared_ptr<StagedSnapshot> snapshot = *std::move(begun);
  snapshot->set_compress_all_until(last_chance == nullptr ? compress_all_until : called);
  snapshot->set_staging(StagingName(wanted));
  NoteSharedEntries(state, part, *snapshot);
  Image image;
  if (wanted == Staging::kOnDevice) {
    std::string why_not;
    auto taken = TakeImage(staged_state, snapshot->plan(), &why_not);
    if (!taken.ok()) return taken.status();
    image = *std::move(taken);
    if (image.copies == nullptr) {
      handle.staging_ = Staging::kBlocking;
      snapshot->set_staging("blocking: " + why_not);
    }
  }
  std::shared_ptr<OverlapCheck> check;
  if (wanted == Staging::kOverlapped && options.tuning.check_overlapped_saves) {
    auto read = Guarded("the reading of the state", [&] { return stager.ReadForCheck(staged_state, *snapshot); });
    if (!read.ok()) return read.status();
    check = *std::move(read);
  }
  last_plan = snapshot->shared_plan();
  last_left_out = part == nullptr ? nullptr : part->left_out_by_name();
  last_progress = snapshot->progress();
  handle.committed_ = snapshot->committed()->future();
  open_saves.Reserve();
  if (request.deadline.left() < absl::InfiniteDuration())
    save_deadlines->Watch(snapshot->pending_save(), request.deadline);
  // From here on the snapshot is written as its bytes arrive, and whatever happens is the consumers' to report too.
  const std::shared_ptr<OpenStaging> staging = Publish(std::move(snapshot), held);
  *published = true;
  const auto note_times = [&](uint64_t copied_bytes) {
    held->total = blocked.elapsed();
    held->copy = absl::FromChrono(SavePhases::Now() - copy_begin);
    storage::BestEffort([&] {
      if (copied_bytes > 0) staging->snapshot().NoteCopied(kTrainerLane, copy_begin, copied_bytes);
    });
    staging->snapshot().set_held(*held);
  };
  if (handle.staging_ == Staging::kOverlapped) {
    note_times(0);
    handle.staged_ = StageBehind(state, part, staging, std::move(check));
  } else {
    const bool all = image.copies == nullptr;
    const absl::Status status = Guarded("the copying of the state", [&] {
      return all ? stager.CopyTensors(staged_state, staging->snapshot())
                 : stager.CopyHostTensors(staged_state, staging->snapshot());
    });
    const StagingPlan& plan = staging->snapshot().plan();
    note_times(plan.host_bytes() + (all ? plan.device_bytes() : 0));
    if (!all && status.ok()) {
      DrainBehind(std::move(image), staging);
    } else {
      staging->End(status);
    }
    if (!status.ok()) {
      last_staged = ResolvedFuture(status);
      return status;
    }
  }
  if (request.persist) {
    last_save = now();
    last_saved_step = step;
  }
  last_staged = handle.staged_;
  open_saves.Add(step, handle.staged_, handle.committed_, request.persist);
  return handle;
}

absl::StatusOr<AsyncCheckpointer::Impl::Image> AsyncCheckpointer::Impl::TakeImage(State& state, const StagingPlan& plan,
                                                                                  std::string* why_not) {
  if (plan.device_tensors().empty()) {
    *why_not = "no tensor is on a device";
    return Image();
  }
  uint64_t budget = options.tuning.device_staging_bytes_max;
  if (budget != 0) {
    const uint64_t in_use = device_bytes_in_use;
    if (plan.device_bytes() + in_use > budget) {
      *why_not = fmt::format("{} bytes are on devices, device_staging_bytes_max is {}, and {} of them are in use",
                             plan.device_bytes(), budget, in_use);
      return Image();
    }
    budget -= in_use;
  }
  auto copies = Guarded("State::CopyOnDevice", [&] { return state.CopyOnDevice(plan.device_tensors(), budget); });
  if (!copies.ok()) return copies.status();
  if (*copies == nullptr) {
    *why_not = "no memory on the device, or device_staging_bytes_max is reached";
    return Image();
  }
  const absl::StatusOr<uint64_t> bytes = Guarded("State::DeviceImage::bytes", [&] { return (*copies)->bytes(); });
  if (!bytes.ok()) return bytes.status();
  return Image{.copies = *std::move(copies), .bytes = *bytes};
}

Future AsyncCheckpointer::Impl::StageBehind(State& state, std::shared_ptr<PartOfState> part,
                                            std::shared_ptr<OpenStaging> staging, std::shared_ptr<OverlapCheck> check) {
  auto staged = std::make_shared<Promise>();
  Future future = staged->future();
  last_overlapped = staging->snapshot().progress();
  state.NoteStaging(future);
  staging_thread->Add(
      [this, &state, part = std::move(part), staged, staging = std::move(staging), check = std::move(check)] {
        const SavePhases::Time begin = SavePhases::Now();
        StagedSnapshot& snapshot = staging->snapshot();
        const absl::Status status = Guarded("the copying of the state", [&] {
          return stager.CopyTensors(part == nullptr ? state : *part, snapshot, check.get());
        });
        storage::BestEffort([&] {
          snapshot.NoteCopied(kStagingLane, begin, snapshot.plan().host_bytes() + snapshot.plan().device_bytes());
        });
        staged->Set(status);
        staging->End(status);
      });
  return future;
}

void AsyncCheckpointer::Impl::DrainBehind(Image image, std::shared_ptr<OpenStaging> staging) {
  device_bytes_in_use += image.bytes;
  // Shared, because std::function copies what it holds.
  std::shared_ptr<State::DeviceImage> copies(image.copies.release(), [this, bytes = image.bytes](auto* held) {
    delete held;
    device_bytes_in_use -= bytes;
  });
  staging_thread->Add([copies = std::move(copies), staging = std::move(staging)]() mutable {
    const SavePhases::Time begin = SavePhases::Now();
    StagedSnapshot& snapshot = staging->snapshot();
    const absl::Status status =
        Guarded("the copying of the state", [&] { return Stager::DrainImage(*copies, snapshot); });
    storage::BestEffort([&] { snapshot.NoteCopied(kStagingLane, begin, snapshot.plan().device_bytes()); });
    copies.reset();
    staging->End(status);
  });
}

std::shared_ptr<OpenStaging> AsyncCheckpointer::Impl::Publish(std::shared_ptr<StagedSnapshot> snapshot,
                                                              const std::shared_ptr<HeldTimes>& held) {
  auto staging = std::make_shared<OpenStaging>(snapshot);
  const std::shared_ptr<const PendingSave> pending_save = snapshot->pending_save();
  try {
    BeginSave(*snapshot, held);
    snapshot->set_published(SavePhases::Now());
    persister->Published(pending_save);
    stream->Publish(std::move(snapshot));
  } catch (...) {
    // No consumer will tell of its end; of one that is not to be saved the pending save does.
    if (pending_save->persist()) {
      SaveOutcome outcome;
      outcome.save = pending_save->number();
      outcome.step = outcome.info.step = pending_save->step();
      outcome.status = storage::ExceptionStatus("the start of a save");
      EndSave(std::move(outcome));
    }
    throw;
  }
  return staging;
}

void AsyncCheckpointer::Impl::BeginSave(const StagedSnapshot& snapshot, const std::shared_ptr<HeldTimes>& held) {
  if (snapshot.persist()) {
    statistics.Begin();
    return housekeeper->BeginSave(snapshot.pending_save(), nullptr);
  }
  auto unsaved = std::make_shared<StepInfo>();
  unsaved->step = snapshot.step();
  unsaved->state = StepState::kUnsaved;
  unsaved->created = snapshot.created();
  unsaved->metrics = snapshot.metrics();
  unsaved->user_metadata = snapshot.user_metadata();
  unsaved->reason = "it was only evaluated";
  // An evaluator that never returns may release the snapshot after the checkpointer is destroyed.
  snapshot.committed()->Watch([weak = weak_from_this(), number = snapshot.pending_save()->number(),
                               step = snapshot.step(), held, begun = Stopwatch()](const absl::Status& status) {
    const std::shared_ptr<Impl> self = weak.lock();
    if (self == nullptr) return;
    SaveOutcome outcome;
    outcome.save = number;
    outcome.step = outcome.info.step = step;
    outcome.persist = false;
    outcome.status = status;
    outcome.held = *held;
    outcome.behind = std::max(absl::ZeroDuration(), begun.elapsed() - held->copy);
    self->EndSave(std::move(outcome));
  });
  statistics.Begin();
  housekeeper->BeginSave(snapshot.pending_save(), std::move(unsaved));
}

void AsyncCheckpointer::Impl::EndSave(SaveOutcome outcome) {
  if (outcome.persist && scrubber != nullptr) scrubber->SaveEnded();
  statistics.Settle(outcome, now());
  housekeeper->EndSave(outcome);
  storage::BestEffort([&] { listeners.SaveLine(SaveLine(outcome)); });
  if (!outcome.status.ok()) {
    listeners.Failed(outcome.step, outcome.status);
  } else if (outcome.persist) {
    listeners.Committed(outcome.info);
  }
}

}  // namespace tidemark
