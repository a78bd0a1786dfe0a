#include "tidemark/async_checkpointer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "fmt/format.h"
#include "snapshot/checkpointer_impl.h"
#include "snapshot/checkpointer_options.h"
#include "snapshot/deadline.h"
#include "snapshot/resolved_future.h"
#include "snapshot/stopwatch.h"
#include "storage/io/link_free_path.h"

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

// A clock that was set back says nothing about how long ago it was; then it was too long.
bool IsOver(absl::Duration interval, absl::Time since, absl::Time now) {
  return now < since || now - since >= interval;
}

}  // namespace

AsyncCheckpointer::AsyncCheckpointer() = default;

AsyncCheckpointer::~AsyncCheckpointer() {
  if (impl_ == nullptr) return;
  // What was waited for in vain is not waited for again.
  const absl::Status status =
      impl_->close_ran_out ? impl_->Close(Deadline::Passed(), Deadline::After(Impl::kReleaseTimeout)) : Close();
  if (!status.ok()) impl_->listeners.Warn(status.ToString());
  if (!impl_->closed_down || !impl_->closed_down->ready()) impl_->Abandon();
}

absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> AsyncCheckpointer::Open(CheckpointerOptions options) {
  options.directory = storage::FollowLinks(options.directory);
  if (!options.metrics_file.empty()) options.metrics_file = storage::FollowLinksToFile(options.metrics_file);
  return OpenOn(storage::PosixFileSystem(), std::move(options));
}

absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> AsyncCheckpointer::OpenOn(storage::FileSystem& files,
                                                                             CheckpointerOptions options) {
  if (absl::Status status = ValidateOptions(options); !status.ok()) return status;
  std::unique_ptr<AsyncCheckpointer> checkpointer(new AsyncCheckpointer());
  auto impl = std::make_shared<Impl>(files, std::move(options));
  if (absl::Status status = impl->OpenStore(); !status.ok()) return status;
  checkpointer->impl_ = std::move(impl);
  return checkpointer;
}

bool AsyncCheckpointer::ShouldSave(int64_t step) const {
  const CheckpointerOptions& options = impl_->options;
  if (impl_->closed || step < 0) return false;
  const bool any_rule =
      options.save_interval_steps > 0 || !options.save_on_steps.empty() || options.save_interval_seconds > 0;
  const bool due =
      !any_rule || (options.save_interval_steps > 0 && step % options.save_interval_steps == 0) ||
      std::find(options.save_on_steps.begin(), options.save_on_steps.end(), step) != options.save_on_steps.end() ||
      (options.save_interval_seconds > 0 &&
       IsOver(absl::Seconds(options.save_interval_seconds), impl_->last_save, options.now()));
  return due && !absl::IsAlreadyExists(impl_->CheckSave(step, {}));
}

absl::StatusOr<SaveHandle> AsyncCheckpointer::Save(int64_t step, State& state, SaveOptions options) {
  return SaveBy(nullptr, step, state, options);
}

absl::StatusOr<SaveHandle> AsyncCheckpointer::SaveBy(const Deadline* last_chance, int64_t step, State& state,
                                                     const SaveOptions& options) {
  const Stopwatch blocked;
  SavePhases phases;
  if (impl_->closed) return ClosedError();
  const absl::Time created = impl_->options.now();
  if (absl::Status status = impl_->AwaitSave(step, state, options, last_chance, &phases); !status.ok()) return status;

  const Staging wanted = options.staging.value_or(impl_->options.staging);
  if (wanted != Staging::kBlocking) {
    if (absl::Status status = impl_->StartStagingThread(); !status.ok()) return status;
  }
  const auto held = std::make_shared<HeldTimes>();
  absl::StatusOr<std::unique_ptr<StagedSnapshot>> begun =
      impl_->BeginSnapshot(step, state, options, created, std::move(phases), last_chance, held.get());
  if (!begun.ok()) return begun.status();
  if (*begun == nullptr) return impl_->SkipSave(step, blocked.elapsed());
  SaveHandle handle;
  handle.step_ = step;
  handle.staging_ = wanted;
  const SavePhases::Time copy_begin = SavePhases::Now();
  std::shared_ptr<StagedSnapshot> snapshot = *std::move(begun);
  snapshot->set_staging(StagingName(wanted));
  std::unique_ptr<State::DeviceImage> image;
  if (wanted == Staging::kOnDevice) {
    std::string why_not;
    auto taken = impl_->TakeImage(state, snapshot->plan(), &why_not);
    if (!taken.ok()) return taken.status();
    image = *std::move(taken);
    if (image == nullptr) {
      handle.staging_ = Staging::kBlocking;
      snapshot->set_staging("blocking: " + why_not);
    }
  }
  impl_->last_plan = snapshot->shared_plan();
  impl_->last_progress = snapshot->progress();
  handle.committed_ = snapshot->committed()->future();
  impl_->BeginSave(*snapshot, held);
  // From here on the snapshot is written as its bytes arrive, and whatever happens is the consumers' to report too.
  snapshot->set_published(SavePhases::Now());
  impl_->stream->Publish(snapshot);
  const auto note_times = [&](uint64_t copied_bytes) {
    held->total = blocked.elapsed();
    held->copy = absl::FromChrono(SavePhases::Now() - copy_begin);
    if (copied_bytes > 0) snapshot->NoteCopied(kTrainerLane, copy_begin, copied_bytes);
    snapshot->set_held(*held);
  };
  if (handle.staging_ == Staging::kOverlapped) {
    note_times(0);
    handle.staged_ = impl_->StageBehind(state, std::move(snapshot));
  } else {
    const absl::Status status = image == nullptr ? impl_->stager.CopyTensors(state, *snapshot)
                                                 : impl_->stager.CopyHostTensors(state, *snapshot);
    note_times(snapshot->plan().host_bytes() + (image == nullptr ? snapshot->plan().device_bytes() : 0));
    if (image != nullptr && status.ok()) {
      impl_->DrainBehind(std::move(image), std::move(snapshot));
    } else {
      Impl::EndStaging(std::move(snapshot), status);
    }
    if (!status.ok()) {
      impl_->last_staged = ResolvedFuture(status);
      return status;
    }
  }
  impl_->last_save = impl_->options.now();
  impl_->last_staged = handle.staged_;
  impl_->open_saves.Add(step, handle.staged_, handle.committed_, options.persist);
  return handle;
}

absl::Status AsyncCheckpointer::WaitUntilStaged() {
  if (impl_->closed) return ClosedError();
  return impl_->last_staged.Wait();
}

absl::Status AsyncCheckpointer::WaitUntilStaged(std::string_view entry) {
  if (impl_->closed) return ClosedError();
  if (impl_->last_plan == nullptr) return absl::NotFoundError("nothing has been saved yet");
  const int64_t index = impl_->last_plan->Find(entry);
  if (index < 0) return absl::NotFoundError(fmt::format("the last save has no entry '{}'", entry));
  if (impl_->last_staged.ready()) return impl_->last_staged.Wait();
  const StagingPlan::Placement& place = impl_->last_plan->placements()[static_cast<size_t>(index)];
  return impl_->last_progress->WaitFor(place.offset + place.bytes);
}

absl::Status AsyncCheckpointer::Prepare(State& state) {
  if (impl_->closed) return ClosedError();
  impl_->WaitUntilTensorsAreRead();
  return impl_->stager.Prepare(state);
}

absl::Status AsyncCheckpointer::WaitUntilCommitted() {
  if (impl_->closed) return ClosedError();
  impl_->Settle();
  return impl_->open_saves.TakeFailure();
}

Future AsyncCheckpointer::Committed(int64_t step) const {
  if (impl_->closed) return ResolvedFuture(ClosedError());
  if (std::optional<Future> in_flight = impl_->open_saves.CommittedOf(step)) return *std::move(in_flight);
  absl::StatusOr<std::optional<storage::StepRecord>> record = impl_->store->manifest().Find(step);
  if (!record.ok()) return ResolvedFuture(record.status());
  if (record->has_value() && (*record)->info.state == StepState::kCommitted) return ResolvedFuture(absl::OkStatus());
  return ResolvedFuture(absl::NotFoundError(fmt::format("step {} is neither committed nor being saved", step)));
}

absl::Status AsyncCheckpointer::CheckForErrors() { return impl_->open_saves.TakeFailure(); }

absl::StatusOr<RestoreReport> AsyncCheckpointer::RestoreLatest(State& state, const RestoreOptions& options) {
  if (impl_->closed) return ClosedError();
  impl_->Settle();
  if (options.healthy_only) impl_->AwaitVerdicts(options.evaluations_timeout);
  const Housekeeper::RetentionPause pause(*impl_->housekeeper);
  impl_->last_restore.reset();  // also where options.accept throws
  absl::StatusOr<RestoreReport> report = impl_->NewRestoreWalk(options).Latest(state, options);
  impl_->NoteRestore(state, options, report);
  return report;
}

absl::StatusOr<RestoreReport> AsyncCheckpointer::Restore(int64_t step, State& state, const RestoreOptions& options) {
  if (impl_->closed) return ClosedError();
  impl_->Settle();
  const Housekeeper::RetentionPause pause(*impl_->housekeeper);
  impl_->last_restore.reset();
  absl::StatusOr<RestoreReport> report = impl_->NewRestoreWalk(options).At(step, state, options);
  impl_->NoteRestore(state, options, report);
  return report;
}

absl::StatusOr<StepInfo> AsyncCheckpointer::LatestStep() const {
  if (impl_->closed) return ClosedError();
  for (int64_t at_most = std::numeric_limits<int64_t>::max(); at_most >= 0;) {
    absl::StatusOr<std::optional<storage::StepRecord>> record = impl_->store->manifest().FindAtOrBelow(at_most);
    if (!record.ok()) return record.status();
    if (!record->has_value()) break;
    if ((*record)->info.state == StepState::kCommitted) return (*record)->info;
    at_most = (*record)->info.step - 1;
  }
  return absl::NotFoundError(fmt::format("no step is committed in {}", impl_->store->layout().directory()));
}

absl::StatusOr<StepInfo> AsyncCheckpointer::BestStep(std::string_view metric, BestMode mode) const {
  if (impl_->closed) return ClosedError();
  absl::StatusOr<std::optional<storage::StepRecord>> record = impl_->store->manifest().FindBest(metric, mode);
  if (!record.ok()) return record.status();
  if (record->has_value()) return (*record)->info;
  return absl::NotFoundError(fmt::format("no committed step in {} that is healthy has a finite metric '{}'",
                                         impl_->store->layout().directory(), metric));
}

absl::StatusOr<std::vector<StepInfo>> AsyncCheckpointer::Steps() const {
  if (impl_->closed) return ClosedError();
  std::vector<StepInfo> steps;
  absl::Status status = impl_->store->manifest().ForEach([&](storage::StepRecord record) {
    steps.push_back(std::move(record.info));
    return true;
  });
  if (!status.ok()) return status;
  return steps;
}

absl::Status AsyncCheckpointer::AddEvaluator(EvaluatorOptions options, EvaluatorFunction function) {
  if (impl_->closed) return ClosedError();
  if (absl::Status status = ValidateEvaluatorOptions(options); !status.ok()) return status;
  absl::StatusOr<std::vector<EarlierStep>> earlier = impl_->StepsThatAwait(options);
  if (!earlier.ok()) return earlier.status();
  const auto held_max = static_cast<uint64_t>(options.max_pending);
  absl::Status status = impl_->stream->AddEvaluator(
      std::move(options), std::move(function),
      {.sink = impl_->housekeeper.get(), .shelf = impl_->claims.get(), .now = impl_->options.now}, *std::move(earlier));
  if (status.ok()) impl_->stager.AddRoomFor(held_max);
  return status;
}

absl::Status AsyncCheckpointer::AddCompanion(std::shared_ptr<Companion> companion) {
  if (impl_->closed) return ClosedError();
  impl_->Settle();
  return impl_->companions.Add(std::move(companion));
}

Future AsyncCheckpointer::ReportMetrics(int64_t step, std::string evaluator, Metrics metrics) {
  Evaluation evaluation;
  evaluation.evaluator = std::move(evaluator);
  evaluation.worker = "trainer";
  evaluation.metrics = std::move(metrics);
  evaluation.reported = impl_->options.now();
  return impl_->housekeeper->ReportMetrics(step, std::move(evaluation));
}

absl::Status AsyncCheckpointer::Pin(int64_t step, std::string note) {
  return impl_->housekeeper->Run([&](storage::Store& store) { return store.Pin(step, note); });
}

absl::Status AsyncCheckpointer::Unpin(int64_t step) {
  return impl_->housekeeper->Run([&](storage::Store& store) { return store.Unpin(step); });
}

absl::Status AsyncCheckpointer::WaitUntilEvaluated() {
  if (impl_->closed) return ClosedError();
  impl_->Settle();
  impl_->stream->DrainEvaluators();
  return impl_->housekeeper->Flush();
}

absl::Status AsyncCheckpointer::Tidy() { return impl_->housekeeper->Tidy(); }

absl::StatusOr<std::vector<RetentionDecision>> AsyncCheckpointer::RetentionPlan() const {
  return impl_->housekeeper->Plan();
}

CheckpointerStatistics AsyncCheckpointer::statistics() const { return impl_->Statistics(); }

absl::Status AsyncCheckpointer::Close() {
  const Deadline deadline = Deadline::After(impl_->options.close_timeout);
  return impl_->Close(deadline, deadline);
}

absl::Status AsyncCheckpointer::Close(absl::Time time) {
  const Deadline deadline = Deadline::At(time);
  return impl_->Close(deadline, deadline);
}

absl::Status AsyncCheckpointer::CloseBy(const Deadline& drained, const Deadline& released) {
  return impl_->Close(drained, released);
}

}  // namespace tidemark
