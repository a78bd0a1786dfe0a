#include "snapshot/checkpointer_impl.h"

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "snapshot/checkpointer_options.h"
#include "snapshot/resolved_future.h"
#include "snapshot/stopwatch.h"
#include "storage/manifest/inbox.h"

namespace tidemark {
namespace {

CheckpointerOptions WithDefaults(CheckpointerOptions options) {
  if (!options.now) options.now = absl::Now;
  return options;
}

}  // namespace

AsyncCheckpointer::Impl::Impl(storage::FileSystem& file_system, CheckpointerOptions given)
    : options(WithDefaults(std::move(given))),
      read_options(ReadOptions(options)),
      files(file_system),
      listeners(options),
      stager(options) {}

absl::Status AsyncCheckpointer::Impl::OpenStore() {
  const auto warn = [this](std::string_view line) { listeners.Warn(line); };
  auto opened = storage::Store::Open(files, {.directory = options.directory, .warn = warn, .read = read_options});
  if (!opened.ok()) return opened.status();
  store = *std::move(opened);
  sequence_at_open = store->manifest().last_sequence();
  // Says now, and not in the background of the first save, that io_uring was asked for and is not to be had.
  auto queue = files.NewIoQueue(read_options.io, read_options.io_depth);
  if (!queue.ok()) return queue.status();
  claims = std::make_unique<EvaluationClaims>(files, *store, read_options, [this] { persister->ForgetCommitted(); });
  auto started = Housekeeper::Start({.files = files,
                                     .store = *store,
                                     .listeners = listeners,
                                     .statistics = statistics,
                                     .read_statistics = [this] { return Statistics(); },
                                     .claims = [this] { return claims->Get(); }},
                                    {.retention = options.retention,
                                     .inbox_poll_interval = options.inbox_poll_interval,
                                     .metrics_file = options.metrics_file});
  if (!started.ok()) return started.status();
  housekeeper = *std::move(started);
  persister = std::make_unique<Persister>(files, *store, companions, WriterOptions(options), options.reuse, warn,
                                          [this](SaveOutcome outcome) { EndSave(std::move(outcome)); });
  stream = std::make_unique<SnapshotStream>();
  stager.set_make_room([this](int64_t step) { return stream->MakeRoom(step); });
  stager.set_only_evaluators_are_left([this] { return stream->ConsumersAreIdle(); });
  if (absl::Status status = stream->AddConsumer(persister.get()); !status.ok()) return status;
  last_save = options.now();
  return absl::OkStatus();
}

absl::Status AsyncCheckpointer::Impl::CheckSave(int64_t step, const SaveOptions& save, const State* last) const {
  if (step < 0) return absl::InvalidArgumentError(fmt::format("step {} is negative", step));
  if (absl::Status status = ValidateUserMetadata(save.user_metadata); !status.ok()) return status;
  if (absl::Status status = ValidateMetrics(save.metrics); !status.ok()) return status;
  if (save.overwrite && !save.persist) {
    return absl::InvalidArgumentError("SaveOptions::overwrite replaces a step, and without persist there is none");
  }
  if (save.overwrite) return absl::OkStatus();
  if (open_saves.IsInFlight(step)) return absl::AlreadyExistsError(fmt::format("step {} is being saved", step));
  absl::StatusOr<std::optional<storage::StepRecord>> record = store->manifest().Find(step);
  if (!record.ok()) return record.status();
  if (record->has_value() && (*record)->info.state == StepState::kCommitted) {
    // What was rolled back must not stand in the way of what was trained instead. The last save, which nobody may judge
    // any more, must not wash out a verdict on the same state.
    const bool replaces = last == nullptr || WasRolledBackBehind((*record)->info, *last);
    if (save.persist && replaces && !WhyUnhealthy((*record)->info).empty()) return absl::OkStatus();
    return absl::AlreadyExistsError(fmt::format("step {} is committed; SaveOptions::overwrite would replace it", step));
  }
  return absl::OkStatus();
}

absl::Status AsyncCheckpointer::Impl::AwaitSave(int64_t step, const State& state, const SaveOptions& save,
                                                const Deadline* last_chance, SavePhases* phases) {
  if (last_chance != nullptr) {
    // First, for one that is in flight is to be waited for as a whole, and not only its copying.
    if (absl::Status status = CheckSave(step, save, &state); !status.ok()) return status;
    const SavePhases::Time begin = SavePhases::Now();
    const bool read = WaitUntilTensorsAreRead(*last_chance);
    phases->AddWait("earlier save", kTrainerLane, begin, SavePhases::Now());
    if (read) return absl::OkStatus();
    return absl::DeadlineExceededError(
        fmt::format("step {} was not saved: an earlier save was still copying the state when its time was up", step));
  }
  const SavePhases::Time begin = SavePhases::Now();
  WaitUntilTensorsAreRead();
  phases->AddWait("earlier save", kTrainerLane, begin, SavePhases::Now());
  if (absl::Status failure = open_saves.TakeFailure(); !failure.ok()) {
    return absl::Status(failure.code(),
                        fmt::format("step {} was not saved, because an earlier failure had not been seen: {}", step,
                                    std::string(failure.message())));
  }
  return CheckSave(step, save);
}

absl::StatusOr<std::unique_ptr<StagedSnapshot>> AsyncCheckpointer::Impl::BeginSnapshot(
    int64_t step, State& state, const SaveOptions& save, absl::Time created, SavePhases phases,
    const Deadline* last_chance, HeldTimes* held) {
  if (last_chance == nullptr) {
    const SavePhases::Time begin = SavePhases::Now();
    stream->AwaitEvaluators(step, save.persist);
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
  const absl::StatusOr<std::optional<storage::StepRecord>> record = store->manifest().Find(last_restore->info.step);
  if (!record.ok()) return false;
  const bool is_there = record->has_value() && (*record)->info.attempt == last_restore->info.attempt;
  return WhyUnhealthy(is_there ? (*record)->info : last_restore->info).empty();
}

void AsyncCheckpointer::Impl::NoteRestore(const State& state, const RestoreOptions& restore,
                                          const absl::StatusOr<RestoreReport>& report) {
  last_restore.reset();
  if (!report.ok() || !restore.only.empty() || !report->missing.empty()) return;
  last_restore = {.state = &state, .info = report->info, .last_sequence = store->manifest().last_sequence()};
}

void AsyncCheckpointer::Impl::Settle() {
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
  absl::StatusOr<storage::CommittedSteps> committed = store->manifest().Committed();
  if (!committed.ok()) return committed.status();
  for (const auto& shared : *committed) {
    const StepInfo& info = *shared;
    const bool awaited = std::any_of(rules.begin(), rules.end(),
                                     [&](const AwaitEvaluation& rule) { return storage::IsAwaited(rule, info); });
    if (!awaited || info.step % evaluator.every_steps != 0) continue;
    // One on which it failed has its row, and is evaluated again by who drops nothing.
    if (info.evaluated_by(evaluator.name) && evaluator.when_lagging != WhenLagging::kQueue) continue;
    earlier.push_back({.save = housekeeper->TicketOf(info),
                       .reason = info.sequence <= sequence_at_open ? "the process ended before it was evaluated"
                                                                   : "it was saved before the evaluator was there"});
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

absl::StatusOr<SaveHandle> AsyncCheckpointer::Impl::SkipSave(int64_t step, absl::Duration blocked) {
  const absl::Status no_room = absl::ResourceExhaustedError(
      fmt::format("step {} was not saved: earlier snapshots hold {} of {} bytes of staging memory, and leave no room",
                  step, stager.arena().bytes_in_use(), stager.arena().bytes_max()));
  statistics.AddSkipped("no room");
  listeners.SaveLine(SkippedSaveLine(step, blocked, std::string(no_room.message())));
  if (options.when_full == WhenFull::kFail) return no_room;
  SaveHandle handle;
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
    listeners.Warn(
        fmt::format("a restore from healthy steps goes on without having heard of: {}", fmt::join(running, ", ")));
  }
  // What cannot be recorded now counts all the same, but only as long as this process lives.
  if (absl::Status status = housekeeper->Flush(); !status.ok()) listeners.Warn(std::string(status.message()));
}

RestoreWalk AsyncCheckpointer::Impl::NewRestoreWalk(const RestoreOptions& restore) {
  std::vector<storage::MetricReport> inbox;
  if (restore.healthy_only) {
    auto reports = storage::PeekInbox(files, store->layout(), store->id());
    if (reports.ok()) {
      inbox = *std::move(reports);
    } else {
      listeners.Warn(fmt::format("a restore from healthy steps goes on without workers' reports: {}",
                                 std::string(reports.status().message())));
    }
  }
  auto why_unhealthy = [this, inbox = std::move(inbox)](const StepInfo& info) {
    std::string why = WhyUnhealthy(info);
    for (const storage::MetricReport& report : inbox) {
      const bool of_it = report.step == info.step && storage::ToHex(report.attempt.bytes) == info.attempt;
      if (!why.empty() || !of_it || report.evaluation.unhealthy.empty()) continue;
      why = fmt::format("{}: {}", report.evaluation.evaluator, report.evaluation.unhealthy);
    }
    return why;
  };
  return RestoreWalk(
      files, *store, read_options, companions.all(), std::move(why_unhealthy),
      [this](std::string_view line) { listeners.Warn(line); }, [this] { persister->ForgetCommitted(); });
}

absl::StatusOr<std::unique_ptr<State::DeviceImage>> AsyncCheckpointer::Impl::TakeImage(State& state,
                                                                                       const StagingPlan& plan,
                                                                                       std::string* why_not) {
  if (plan.device_tensors().empty()) {
    *why_not = "no tensor is on a device";
    return nullptr;
  }
  uint64_t budget = options.device_staging_bytes_max;
  if (budget != 0) {
    const uint64_t in_use = device_bytes_in_use;
    if (plan.device_bytes() + in_use > budget) {
      *why_not = fmt::format("{} bytes are on devices, device_staging_bytes_max is {}, and {} of them are in use",
                             plan.device_bytes(), budget, in_use);
      return nullptr;
    }
    budget -= in_use;
  }
  auto image = state.CopyOnDevice(plan.device_tensors(), budget);
  if (image.ok() && *image == nullptr) *why_not = "no room on the device, or within device_staging_bytes_max";
  return image;
}

Future AsyncCheckpointer::Impl::StageBehind(State& state, std::shared_ptr<StagedSnapshot> snapshot) {
  auto staged = std::make_shared<Promise>();
  Future future = staged->future();
  last_overlapped = snapshot->progress();
  staging_thread->Add([this, &state, staged, snapshot = std::move(snapshot)]() mutable {
    const SavePhases::Time begin = SavePhases::Now();
    const absl::Status status = stager.CopyTensors(state, *snapshot);
    const StagingPlan& plan = snapshot->plan();
    snapshot->NoteCopied(kStagingLane, begin, plan.host_bytes() + plan.device_bytes());
    staged->Set(status);
    EndStaging(std::move(snapshot), status);
  });
  return future;
}

void AsyncCheckpointer::Impl::DrainBehind(std::unique_ptr<State::DeviceImage> image,
                                          std::shared_ptr<StagedSnapshot> snapshot) {
  const uint64_t bytes = image->bytes();
  device_bytes_in_use += bytes;
  std::shared_ptr<State::DeviceImage> shared = std::move(image);  // std::function copies what it holds
  staging_thread->Add([this, bytes, image = std::move(shared), snapshot = std::move(snapshot)]() mutable {
    const SavePhases::Time begin = SavePhases::Now();
    const absl::Status status = Stager::DrainImage(*image, *snapshot);
    snapshot->NoteCopied(kStagingLane, begin, snapshot->plan().device_bytes());
    image.reset();
    device_bytes_in_use -= bytes;
    EndStaging(std::move(snapshot), status);
  });
}

void AsyncCheckpointer::Impl::EndStaging(std::shared_ptr<StagedSnapshot> snapshot, const absl::Status& status) {
  const std::shared_ptr<StagingProgress> progress = snapshot->progress();
  snapshot.reset();
  progress->End(status);
}

void AsyncCheckpointer::Impl::BeginSave(const StagedSnapshot& snapshot, const std::shared_ptr<HeldTimes>& held) {
  statistics.Begin();
  if (snapshot.persist()) return housekeeper->BeginSave(snapshot.ticket(), nullptr);
  auto unsaved = std::make_shared<StepInfo>();
  unsaved->step = snapshot.step();
  unsaved->state = StepState::kUnsaved;
  unsaved->created = snapshot.created();
  unsaved->metrics = snapshot.metrics();
  unsaved->user_metadata = snapshot.user_metadata();
  unsaved->reason = "it was only evaluated";
  housekeeper->BeginSave(snapshot.ticket(), std::move(unsaved));
  // An evaluator that never returns may let go of it when the checkpointer is gone.
  snapshot.committed()->Watch([weak = weak_from_this(), number = snapshot.ticket()->number(), step = snapshot.step(),
                               held, behind = Stopwatch()](const absl::Status& status) {
    const std::shared_ptr<Impl> self = weak.lock();
    if (self == nullptr) return;
    SaveOutcome outcome;
    outcome.save = number;
    outcome.step = outcome.info.step = step;
    outcome.persist = false;
    outcome.status = status;
    outcome.held = *held;
    outcome.behind = std::max(absl::ZeroDuration(), behind.elapsed() - held->copy);
    self->EndSave(std::move(outcome));
  });
}

void AsyncCheckpointer::Impl::EndSave(SaveOutcome outcome) {
  statistics.Settle(outcome, options.now());
  housekeeper->EndSave(outcome);
  listeners.SaveLine(SaveLine(outcome));
  if (!outcome.status.ok()) {
    listeners.Failed(outcome.step, outcome.status);
  } else if (outcome.persist) {
    listeners.Committed(outcome.info);
  }
}

CheckpointerStatistics AsyncCheckpointer::Impl::Statistics() const {
  CheckpointerStatistics all = statistics.Get();
  all.staging_bytes_in_use = stager.arena().bytes_in_use();
  all.staging_bytes_max = stager.arena().bytes_max();
  return all;
}

absl::Status AsyncCheckpointer::Impl::Close(const Deadline& drained, const Deadline& released) {
  closed = true;
  close_ran_out = true;
  if (!closed_down) {
    housekeeper->RefuseReports();
    std::vector<std::string> running;
    if (!stream->DrainUntil(drained, &running)) {
      return absl::DeadlineExceededError(
          fmt::format("close {}: still running: {}", options.directory, fmt::join(running, ", ")));
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
    listeners.Warn(std::string(more.message()));
  }
  // Of this there was a warning.
  first.Update(std::exchange(lost, absl::OkStatus()));
  return first;
}

absl::Status AsyncCheckpointer::Impl::StartClosing() {
  auto done = std::make_shared<Promise>();
  const Future future = done->future();
  try {
    std::thread([self = shared_from_this(), done]() mutable {
      self->CloseDown();
      self.reset();
      done->Set(absl::OkStatus());
    }).detach();
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(fmt::format("close {}: start a thread: {}", options.directory, error.what()));
  }
  closed_down = future;
  return absl::OkStatus();
}

void AsyncCheckpointer::Impl::CloseDown() {
  Settle();
  staging_thread.reset();
  stream.reset();
  persister.reset();
  lost = housekeeper->Stop();
  store.reset();
}

void AsyncCheckpointer::Impl::Abandon() {
  bool saves_are_settled = false;
  if (!closed_down) {
    // What evaluators have yet to say is not known to be good, nor bad, and with them goes who knows of which steps.
    housekeeper->EndRetention();
    stream->StopEvaluators();
    std::vector<std::string> running;
    saves_are_settled = stream->DrainUntil(Deadline::Passed(), &running);
    // Without a thread to leave it to, it is done here, however long it takes: nothing that was saved is dropped.
    if (!StartClosing().ok()) return CloseDown();
  }
  // Where only evaluators were in the way, the store is free when the checkpointer is gone.
  if (saves_are_settled) closed_down->WaitUntil(Deadline::After(kReleaseTimeout).as_time()).IgnoreError();
}

}  // namespace tidemark
