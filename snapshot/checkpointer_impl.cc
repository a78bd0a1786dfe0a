#include "snapshot/checkpointer_impl.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/const_init.h"
#include "absl/strings/cord.h"
#include "absl/synchronization/mutex.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "snapshot/checkpointer_options.h"
#include "snapshot/closed_error.h"
#include "snapshot/guarded.h"
#include "snapshot/resolved_future.h"
#include "snapshot/restore/restore_catalog.h"
#include "snapshot/stopwatch.h"
#include "storage/io/exception_status.h"

namespace tidemark {

AsyncCheckpointer::Impl::Impl(const Machine& machine, CheckpointerOptions given)
    : options(std::move(given)),
      now(machine.now),
      read_options(ReadOptions(options.tuning)),
      files_owner(machine.files),
      files(*files_owner),
      scrub_pass_interval(machine.scrub_pass_interval),
      listeners(options.observer),
      stager(options, machine.available_memory, [this](std::string_view line) { listeners.Warn(line); }) {}

absl::Status AsyncCheckpointer::Impl::OpenStore() {
  storage::StoreOptions store_options = {
      .directory = options.directory,
      .warn = [this](std::string_view line) { listeners.Warn(line); },
      .note = [this](std::string_view line) { listeners.SaveLine(std::string(line)); },
      .read = read_options,
      .create = options.create,
      .awaits_inspect = true};
  if (options.ranks.world_size > 1) {
    if (absl::Status status = OpenRanks(std::move(store_options)); !status.ok()) return status;
    return exchange->Agree("Open (the end)", Guarded("Open", [this] { return OpenRest(); }));
  }
  auto opened = storage::Store::Open(files, std::move(store_options));
  if (!opened.ok()) return opened.status();
  store = *std::move(opened);
  return OpenRest();
}

absl::Status AsyncCheckpointer::Impl::OpenRest() {
  const auto warn = [this](std::string_view line) { listeners.Warn(line); };
  LeaveOutStaticDestructorsInChildren();
  sequence_at_open = store->catalog().last_sequence();
  // Says now, and not in the background of the first save, that io_uring was asked for and is not to be had.
  auto queue = files.NewIoQueue(read_options.io, read_options.io_depth);
  if (!queue.ok()) return queue.status();
  claims =
      std::make_unique<EvaluationClaims>(files_owner, *store, read_options, [this] { persister->ForgetCommitted(); });
  if (store->is_holder()) {
    if (absl::Status status = RecordRetentionModes(); !status.ok()) return status;
  }
  auto started = Housekeeper::Start({.files = files,
                                     .store = *store,
                                     .listeners = listeners,
                                     .statistics = statistics,
                                     .read_statistics = [this] { return Statistics(); },
                                     .claims = [this] { return claims->Get(); }},
                                    {.retention = store->is_holder() ? options.retention : RetentionOptions(),
                                     .poll_interval = options.tuning.poll_interval,
                                     .metrics_file = store->is_holder() ? options.metrics_file : ""});
  if (!started.ok()) return started.status();
  housekeeper = *std::move(started);
  storage::AttemptSink* attempts = store.get();
  if (ranked_attempts != nullptr) attempts = ranked_attempts.get();
  persister = std::make_unique<Persister>(files, *store, *attempts, companions, WriterOptions(options), options.reuse,
                                          warn, [this](SaveOutcome outcome) { EndSave(std::move(outcome)); });
  stream = std::make_unique<SnapshotStream>();
  stager.set_make_room([this](int64_t step) {
    persister->Hurry();
    return stream->MakeRoom(step);
  });
  stager.set_only_evaluators_are_left([this] { return stream->ConsumersAreIdle(); });
  if (absl::Status status = stream->AddConsumer(persister.get()); !status.ok()) return status;
  if (absl::Status status = StartScrubber(); !status.ok()) return status;
  if (options.save_timeout < absl::InfiniteDuration()) {
    auto deadlines = SaveDeadlines::Start(options.save_timeout, [this](int64_t, const absl::Status& status) {
      listeners.Warn(std::string(status.message()));
    });
    if (!deadlines.ok()) return deadlines.status();
    save_deadlines = *std::move(deadlines);
  }
  save_interval_steps = options.save_interval_steps;
  last_save = now();
  absl::StatusOr<std::optional<int64_t>> latest = store->catalog().LatestCommitted();
  if (!latest.ok()) return latest.status();
  last_saved_step = *latest;
  return absl::OkStatus();
}

absl::Status AsyncCheckpointer::Impl::CheckOpen() const {
  if (absl::Status status = process.Check(); !status.ok()) return status;
  return closed ? ClosedError() : absl::OkStatus();
}

// If a mode cannot be recorded, for example on a full disk, the training goes on with it and with the recorded ones.
storage::BestModes AsyncCheckpointer::Impl::RecordBestModes(const storage::BestModes& modes) {
  absl::StatusOr<storage::BestModes> all = store->AddBestModes(modes);
  if (all.ok()) return *std::move(all);
  listeners.Warn(
      fmt::format("the best modes of metrics could not be recorded: {}", std::string(all.status().message())));
  storage::BestModes known = modes;
  const absl::StatusOr<storage::BestModes> recorded = store->catalog().RecordedBestModes();
  if (recorded.ok()) known.insert(recorded->begin(), recorded->end());
  return known;
}

absl::Status AsyncCheckpointer::Impl::RecordRetentionModes() {
  RetentionOptions retention = options.retention;
  storage::BestModes given;
  for (const KeepBest& rule : retention.keep_best) {
    if (rule.mode && !rule.score) given.insert_or_assign(rule.metric, *rule.mode);
  }
  return storage::ResolveBestModes(RecordBestModes(given), retention);
}

absl::Status AsyncCheckpointer::Impl::CheckBestModes(const storage::BestModes& modes) const {
  for (const KeepBest& rule : options.retention.keep_best) {
    const auto found = modes.find(rule.metric);
    if (rule.score || !rule.mode || found == modes.end() || found->second == *rule.mode) continue;
    return absl::InvalidArgumentError(
        fmt::format("EvaluatorOptions::best says that the {} value of '{}' is the best, and "
                    "RetentionOptions::keep_best keeps the {}",
                    BestModeName(found->second), rule.metric, BestModeName(*rule.mode)));
  }
  return absl::OkStatus();
}

absl::Status AsyncCheckpointer::Impl::CheckSave(int64_t step, const SaveRequest& save, const State* last) const {
  // INT64_MAX is refused, because a loop has no next step after it.
  constexpr int64_t kStepMax = std::numeric_limits<int64_t>::max() - 1;
  if (step < 0 || step > kStepMax) {
    return absl::InvalidArgumentError(fmt::format("step {} is outside of 0 to {}", step, kStepMax));
  }
  if (absl::Status status = ValidateUserMetadata(save.user_metadata); !status.ok()) return status;
  const std::string_view owner = save.persist ? "SaveOptions::metrics" : "EvaluateOptions::metrics";
  if (absl::Status status = ValidateMetrics(owner, save.metrics); !status.ok()) return status;
  if (save.overwrite) return absl::OkStatus();
  if (open_saves.IsInFlight(step)) return absl::AlreadyExistsError(fmt::format("step {} is being saved", step));
  absl::StatusOr<std::optional<storage::StepRecord>> record = store->catalog().Find(step);
  if (!record.ok()) return record.status();
  if (record->has_value() && (*record)->info.state == StepState::kCommitted && !store->is_holder()) {
    // Rank 0 may have deleted it.
    if (absl::Status looked = store->LookAfresh(); !looked.ok()) return looked;
    record = store->catalog().Find(step);
    if (!record.ok()) return record.status();
  }
  if (record->has_value() && (*record)->info.state == StepState::kCommitted) {
    // What was rolled back must not stand in the way of what was trained instead. The last save, which nobody may judge
    // any more, must not wash out a verdict on the same state.
    // Another rank may not know the verdict, and would not save.
    const bool replaces = exchange == nullptr && (last == nullptr || WasRolledBackBehind((*record)->info, *last));
    if (save.persist && replaces && !WhyUnhealthy((*record)->info).empty()) return absl::OkStatus();
    return absl::AlreadyExistsError(fmt::format("step {} is committed; SaveOptions::overwrite would replace it", step));
  }
  return absl::OkStatus();
}

absl::Status AsyncCheckpointer::Impl::AwaitSave(int64_t step, const State& state, const SaveRequest& save,
                                                const Deadline* last_chance, SavePhases* phases) {
  if (last_chance != nullptr) {
    persister->Hurry();
    // First, for one that is in flight is to be waited for as a whole, and not only its copying.
    if (absl::Status status = CheckSave(step, save, &state); !status.ok()) return status;
    const SavePhases::Time begin = SavePhases::Now();
    const bool read = WaitUntilTensorsAreRead(*last_chance);
    phases->AddWait("earlier save", kTrainerLane, begin, SavePhases::Now());
    if (read) return absl::OkStatus();
    return absl::DeadlineExceededError(
        fmt::format("step {} was not saved: an earlier save was still copying the state at the deadline", step));
  }
  const SavePhases::Time begin = SavePhases::Now();
  WaitUntilTensorsAreRead();
  phases->AddWait("earlier save", kTrainerLane, begin, SavePhases::Now());
  return CheckSave(step, save);
}

Future AsyncCheckpointer::Impl::EarlierFailure() {
  const auto tell = [this](int64_t step, const absl::Status& failure) {
    listeners.Warn(fmt::format("the save of step {} failed, and its result has not been read: {}", step,
                               std::string(failure.message())));
  };
  return open_saves.FirstUnseenFailure(tell).value_or(Future());
}

absl::StatusOr<std::unique_ptr<StagedSnapshot>> AsyncCheckpointer::Impl::BeginSnapshot(
    int64_t step, State& state, const SaveRequest& save, absl::Time created, SavePhases phases,
    const Deadline* last_chance, HeldTimes* held) {
  if (last_chance == nullptr) {
    const SavePhases::Time begin = SavePhases::Now();
    const WaitEnd end = AwaitUnlessCancelled(save.cancelled, Deadline::Never(), [&](const Deadline& until) {
      return stream->AwaitEvaluators(step, save.persist, until);
    });
    if (end == WaitEnd::kCancelled) {
      return absl::CancelledError(fmt::format("step {} was not saved: the wait for an evaluator was cancelled", step));
    }
    phases.AddWait("consumers", kTrainerLane, begin, SavePhases::Now());
  }
  absl::StatusOr<std::unique_ptr<StagedSnapshot>> begun =
      stager.Begin(step, state, save, created, &phases, last_chance);
  held->consumers = phases.Took("consumers");
  held->room = phases.Took("room");
  if (begun.ok() && *begun != nullptr) (*begun)->set_phases(std::move(phases));
  return begun;
}

bool AsyncCheckpointer::Impl::WasRolledBackBehind(const StepInfo& info, const State& state) const {
  if (!last_restore || last_restore->state != &state || last_restore->info.step >= info.step) return false;
  if (info.sequence > last_restore->last_sequence) return false;
  // By now more may be known against it.
  const absl::StatusOr<std::optional<storage::StepRecord>> record = store->catalog().Find(last_restore->info.step);
  if (!record.ok()) return false;
  const bool is_there = record->has_value() && (*record)->info.attempt == last_restore->info.attempt;
  return WhyUnhealthy(is_there ? (*record)->info : last_restore->info).empty();
}

void AsyncCheckpointer::Impl::NoteRestore(const State& state, const RestoreOptions& restore,
                                          const absl::StatusOr<RestoreReport>& report) {
  last_restore.reset();
  if (!report.ok() || !restore.only.empty() || !report->missing.empty()) return;
  last_restore = {.state = &state, .info = report->info, .last_sequence = store->catalog().last_sequence()};
}

void AsyncCheckpointer::Impl::Settle() {
  persister->Hurry();
  if (staging_thread != nullptr) staging_thread->Drain();
  stream->Drain();
}

absl::StatusOr<std::vector<EarlierStep>> AsyncCheckpointer::Impl::StepsThatAwait(const EvaluatorOptions& evaluator) {
  std::vector<AwaitEvaluation> rules = options.retention.keep_unevaluated_until;
  std::erase_if(rules, [&](const AwaitEvaluation& rule) { return rule.evaluator != evaluator.name; });
  std::vector<EarlierStep> earlier;
  if (rules.empty()) return earlier;
  Settle();
  // Reports of its name that have come count. One that cannot be recorded now replaces the row that is made here.
  housekeeper->Flush().IgnoreError();
  absl::StatusOr<storage::CommittedSteps> committed = store->catalog().Committed();
  if (!committed.ok()) return committed.status();
  for (const auto& shared : *committed) {
    const StepInfo& info = *shared;
    const bool awaited = std::any_of(rules.begin(), rules.end(),
                                     [&](const AwaitEvaluation& rule) { return storage::IsAwaited(rule, info); });
    if (!awaited || info.step % evaluator.every_steps != 0) continue;
    // One on which it failed has its row, and is evaluated again by who drops nothing.
    if (info.evaluated_by(evaluator.name) && evaluator.when_lagging != WhenLagging::kQueue) continue;
    earlier.push_back({.save = housekeeper->PendingSaveOf(info),
                       .reason = info.sequence <= sequence_at_open ? "the process ended before it was evaluated"
                                                                   : "it was saved before the evaluator was added"});
  }
  return earlier;
}

bool AsyncCheckpointer::Impl::WaitUntilTensorsAreRead(const Deadline& deadline) {
  return last_overlapped == nullptr || last_overlapped->WaitUntilEndedBy(deadline);  // its future has the error
}

absl::Status AsyncCheckpointer::Impl::StartStagingThread() {
  if (staging_thread != nullptr) return absl::OkStatus();
  auto thread = SerialExecutor::Create();
  if (!thread.ok()) return thread.status();
  staging_thread = *std::move(thread);
  return absl::OkStatus();
}

absl::StatusOr<SaveHandle> AsyncCheckpointer::Impl::SkipSave(int64_t step, absl::Duration blocked, SaveHandle handle) {
  const absl::Status no_room = absl::ResourceExhaustedError(fmt::format(
      "step {} was not saved: earlier snapshots hold {} of {} bytes of staging memory, too much for this one", step,
      stager.arena().bytes_in_use(), stager.arena().bytes_max()));
  statistics.AddSkipped("no room");
  listeners.SaveLine(SkippedSaveLine(step, blocked, std::string(no_room.message())));
  if (options.when_full == WhenFull::kFail) return no_room;
  handle.step_ = step;
  handle.skipped_ = true;
  handle.staged_ = handle.committed_ = ResolvedFuture(no_room);
  return handle;
}

std::string AsyncCheckpointer::Impl::WhyUnhealthy(const StepInfo& info) const {
  std::string why = info.unhealthy();
  return why.empty() ? housekeeper->UnrecordedVerdict(info) : why;
}

void AsyncCheckpointer::Impl::AwaitVerdicts(absl::Duration timeout) {
  std::vector<std::string> running;
  if (!stream->DrainUntil(Deadline::After(timeout), &running)) {
    listeners.Warn(fmt::format("restoring without a verdict from: {}", fmt::join(running, ", ")));
  }
}

RestoreWalk AsyncCheckpointer::Impl::NewRestoreWalk(const RestoreOptions& restore) {
  if (restore.healthy_only) {
    // An own report that cannot be recorded now counts for this restore, and is lost if the process ends before it is.
    if (absl::Status looked = housekeeper->Flush(); !looked.ok()) {
      listeners.Warn(fmt::format("the newest reports may be missing: {}", std::string(looked.message())));
    }
  }
  return RestoreWalk(
      files, std::make_unique<HeldStoreCatalog>(*store), read_options, companions.all(),
      [this](const StepInfo& info) { return WhyUnhealthy(info); },
      [this](std::string_view line) { listeners.Warn(line); }, [this] { persister->ForgetCommitted(); },
      exchange.get());
}

absl::StatusOr<RestoreReport> AsyncCheckpointer::Impl::RestoreSelected(const StepSelector& step, State& state,
                                                                       const RestoreOptions& given) {
  absl::StatusOr<storage::BestModes> recorded = storage::BestModes();
  if (step.kind() == StepSelector::Kind::kBest) recorded = store->catalog().RecordedBestModes();
  if (!recorded.ok()) return recorded.status();
  const absl::StatusOr<StepSelector> with_mode = step.WithMode(*recorded);
  if (!with_mode.ok()) return with_mode.status();
  RestoreOptions restore = given;
  restore.healthy_only = restore.healthy_only || step.kind() == StepSelector::Kind::kLatestHealthy;
  // A restore of a named step does not wait for evaluations of other steps.
  if (restore.healthy_only && step.kind() != StepSelector::Kind::kStep) AwaitVerdicts(restore.evaluations_timeout);
  const Housekeeper::RetentionPause pause(*housekeeper);
  return NewRestoreWalk(restore).Selected(
      *with_mode, [this] { return Steps(); }, state, restore);
}

absl::StatusOr<std::vector<StepInfo>> AsyncCheckpointer::Impl::Steps() const {
  std::vector<StepInfo> steps;
  absl::Status status = store->catalog().ForEach([&](storage::StepRecord record) {
    steps.push_back(std::move(record.info));
    return true;
  });
  if (!status.ok()) return status;
  return steps;
}

CheckpointerStatistics AsyncCheckpointer::Impl::Statistics() const {
  CheckpointerStatistics all = statistics.Get();
  all.staging_bytes_in_use = stager.arena().bytes_in_use();
  all.staging_bytes_max = stager.arena().bytes_max();
  return all;
}

absl::Status AsyncCheckpointer::Impl::StillRunning(std::string_view call, const std::vector<std::string>& running,
                                                   size_t saves) {
  absl::Status status = absl::DeadlineExceededError(fmt::format("{}still running: {}", call, fmt::join(running, ", ")));
  if (saves > 0) status.SetPayload(kSaveRunsPayload, absl::Cord());
  return status;
}

absl::Status AsyncCheckpointer::Impl::Close(const Deadline& drained, const Deadline& released) {
  if (absl::Status status = process.Check(); !status.ok()) return status;
  if (OnOwnThread()) {
    return absl::FailedPreconditionError(
        fmt::format("close {}: called by a callback or an evaluator, which it would wait for", options.directory));
  }
  closed = true;
  close_ran_out = true;
  if (!closed_down) {
    persister->Hurry();
    housekeeper->RefuseReports();
    std::vector<std::string> running;
    size_t saves = 0;
    if (!stream->DrainUntil(drained, &running, &saves)) {
      return StillRunning(fmt::format("close {}: ", options.directory), running, saves);
    }
    if (absl::Status status = StartClosing(); !status.ok()) return status;
  }
  if (!closed_down->WaitUntil(released.as_time()).ok()) {
    return absl::DeadlineExceededError(fmt::format(
        "close {}: still running: the record of what was evaluated, and the release of the store", options.directory));
  }
  close_ran_out = false;
  absl::Status first = open_saves.TakeFailure();
  for (absl::Status more = open_saves.TakeFailure(); !more.ok(); more = open_saves.TakeFailure()) {
    storage::BestEffort([&] { listeners.Warn(std::string(more.message())); });
  }
  // Of this there was a warning.
  first.Update(std::exchange(lost, absl::OkStatus()));
  return first;
}

void AsyncCheckpointer::Impl::CloseAndLeave() {
  // An earlier wait ran out of time: do not wait again.
  const Deadline drained = close_ran_out ? Deadline::Passed() : Deadline::After(options.close_timeout);
  const Deadline released = close_ran_out ? Deadline::After(kReleaseTimeout) : drained;
  const absl::Status status = Guarded("Close", [&] { return Close(drained, released); });
  if (!status.ok()) storage::BestEffort([&] { listeners.Warn(std::string(status.message())); });
  if (!closed_down || !closed_down->ready()) Abandon();
}

absl::Status AsyncCheckpointer::Impl::CheckMayAwaitEvaluators() const {
  if (absl::Status status = CheckOpen(); !status.ok()) return status;
  if (!OnOwnThread()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "wait until evaluated: called by a callback or an evaluator, which it would wait for");
}

bool AsyncCheckpointer::Impl::OnOwnThread() const {
  if (housekeeper->OnOwnThread()) return true;
  if (save_deadlines != nullptr && save_deadlines->OnOwnThread()) return true;
  if (scrubber != nullptr && scrubber->OnOwnThread()) return true;
  if (closed_down) return false;  // the other threads have ended, or belong to the closing thread
  return stream->OnOwnThread() || (staging_thread != nullptr && staging_thread->OnOwnThread());
}

absl::Status AsyncCheckpointer::Impl::StartClosing() {
  try {
    auto done = std::make_shared<Promise>();
    const Future future = done->future();
    std::thread([self = shared_from_this(), done]() mutable {
      self->CloseDown();
      self.reset();
      done->Set(absl::OkStatus());
    }).detach();
    closed_down = future;
    return absl::OkStatus();
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(fmt::format("close {}: start a thread: {}", options.directory, error.what()));
  } catch (...) {
    return storage::ExceptionStatus("close", options.directory);
  }
}

void AsyncCheckpointer::Impl::LeaveToItself(std::shared_ptr<Impl> impl) {
  static absl::Mutex mutex(absl::kConstInit);
  static Impl* last = nullptr;
  absl::MutexLock lock(&mutex);
  Impl* const left = impl.get();
  left->left_before = std::exchange(last, left);
  left->left_to_itself = std::move(impl);
}

// Throws nothing: what it calls drops what there is no memory for.
void AsyncCheckpointer::Impl::CloseDown() {
  if (scrubber != nullptr) scrubber->Stop();
  Settle();
  staging_thread.reset();
  stream.reset();
  persister.reset();
  ranked_attempts.reset();
  lost = housekeeper->Stop();
  // They are of no use to a restore, so a failure is not told.
  storage::BestEffort([&] { store->RecordNotedPhases().IgnoreError(); });
  store.reset();
}

void AsyncCheckpointer::Impl::Abandon() {
  bool saves_are_settled = false;
  if (!closed_down) {
    // What evaluators have yet to say is not known to be good, nor bad, and with them goes who knows of which steps.
    housekeeper->EndRetention();
    stream->StopEvaluators();
    storage::BestEffort([&] {
      std::vector<std::string> running;
      saves_are_settled = stream->DrainUntil(Deadline::Passed(), &running);
    });
    // Without a thread to leave it to, it is done here, however long it takes: nothing that was saved is dropped.
    if (!Guarded("Close", [&] { return StartClosing(); }).ok()) return CloseDown();
  }
  // Where only evaluators were in the way, the store is free when the checkpointer is gone.
  if (saves_are_settled) {
    storage::BestEffort([&] { closed_down->WaitUntil(Deadline::After(kReleaseTimeout).as_time()).IgnoreError(); });
  }
}

}  // namespace tidemark
