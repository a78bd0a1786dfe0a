#include "tidemark/async_checkpointer.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "snapshot/checkpointer_impl.h"
#include "snapshot/checkpointer_options.h"
#include "snapshot/deadline.h"
#include "snapshot/guarded.h"
#include "snapshot/resolved_future.h"
#include "snapshot/saves/save_request.h"
#include "storage/bytes/byte_reader.h"
#include "storage/bytes/byte_writer.h"
#include "storage/io/exception_status.h"
#include "storage/io/link_free_path.h"

namespace tidemark {
namespace {

// A clock that was set back says nothing about how long ago it was; then it was too long.
bool IsOver(absl::Duration interval, absl::Time since, absl::Time now) {
  return now < since || now - since >= interval;
}

// Of options that cannot be: the other ranks need not wait for this one, if it can tell them.
absl::Status AgreeOnOptions(const CheckpointerOptions& options, const absl::Status& why) {
  const RankOptions& ranks = options.ranks;
  if (ranks.world_size < 2 || ranks.rank < 0 || ranks.rank >= ranks.world_size || !ranks.all_gather) return why;
  RankExchange(options.ranks).Agree("Open (the options)", why).IgnoreError();
  return why;
}

// What rank 0 has discarded, for all ranks.
absl::StatusOr<std::vector<int64_t>> ShareDiscarded(RankExchange& exchange,
                                                    const absl::StatusOr<std::vector<int64_t>>& own) {
  storage::ByteWriter writer;
  for (size_t i = 0; own.ok() && i < own->size(); ++i) writer.Put<int64_t>((*own)[i]);
  const absl::StatusOr<std::string> given = exchange.FromRank0("DiscardAfter", own.status(), writer.view());
  if (!given.ok()) return given.status();
  storage::ByteReader reader(storage::AsBytes(*given), "steps that rank 0 has discarded");
  std::vector<int64_t> discarded;
  while (reader.ok() && reader.remaining() > 0) discarded.push_back(reader.Get<int64_t>("step"));
  if (!reader.ok()) return reader.status();
  return discarded;
}

}  // namespace

AsyncCheckpointer::AsyncCheckpointer() = default;

AsyncCheckpointer::~AsyncCheckpointer() {
  if (impl_ == nullptr) return;
  if (!impl_->process.is_this()) {
    Impl::LeaveToItself(std::move(impl_));
    return;
  }
  if (!impl_->OnOwnThread()) {
    impl_->CloseAndLeave();
    return;
  }
  try {
    std::thread([impl = impl_] { impl->CloseAndLeave(); }).detach();
  } catch (const std::exception& error) {
    storage::BestEffort([&] {
      impl_->listeners.Warn(fmt::format("{} is not closed, and stays locked: start a thread: {}",
                                        impl_->options.directory, error.what()));
    });
    Impl::LeaveToItself(std::move(impl_));
  }
}

absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> AsyncCheckpointer::Open(CheckpointerOptions options) {
  return Guarded("Open", [&]() -> absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> {
    options.directory = storage::FollowLinks(options.directory);
    if (!options.metrics_file.empty()) options.metrics_file = storage::FollowLinksToFile(options.metrics_file);
    auto files = storage::PosixFileSystemAt(storage::StoreLayout(options.directory).directory());
    return OpenOn(Machine(std::move(files)), std::move(options));
  });
}

absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> AsyncCheckpointer::OpenOn(const Machine& machine,
                                                                             CheckpointerOptions options) {
  return Guarded("Open", [&]() -> absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> {
    if (absl::Status status = ValidateOptions(options); !status.ok()) return AgreeOnOptions(options, status);
    std::unique_ptr<AsyncCheckpointer> checkpointer(new AsyncCheckpointer());
    auto impl = std::make_shared<Impl>(machine, std::move(options));
    if (absl::Status status = impl->OpenStore(); !status.ok()) return status;
    checkpointer->impl_ = std::move(impl);
    return checkpointer;
  });
}

bool AsyncCheckpointer::ShouldSave(int64_t step) const {
  const absl::StatusOr<bool> should = Guarded("ShouldSave", [&]() -> absl::StatusOr<bool> {
    if (!impl_->CheckOpen().ok() || step < 0) return false;
    const CheckpointerOptions& options = impl_->options;
    // Clocks differ, and a function may see what only its rank has. Rank 0 decides.
    const bool may_differ = options.save_interval_seconds > 0 || options.save_when;
    if (impl_->exchange != nullptr && may_differ && !impl_->OnOwnThread()) {
      absl::StatusOr<bool> due = false;
      if (impl_->exchange->is_coordinator()) due = Guarded("ShouldSave", [&] { return impl_->IsDue(step); });
      // An unwanted save costs less than a missing one.
      const bool says_yes = !due.ok() || *due;
      const absl::StatusOr<std::string> given =
          impl_->exchange->FromRank0(fmt::format("ShouldSave({})", step), absl::OkStatus(), says_yes ? "due" : "");
      if (given.ok()) return due.ok() ? absl::StatusOr<bool>(!given->empty()) : due;
      // The ranks cannot agree any more. Saves go by files, so those are still possible.
      impl_->WarnOfLostExchange(given.status());
    }
    return impl_->IsDue(step);
  });
  if (should.ok()) return *should;
  // An unwanted save costs less than a missing one.
  storage::BestEffort([&] {
    impl_->listeners.Warn(fmt::format("step {} is to be saved, though that is not known: {}", step,
                                      std::string(should.status().message())));
  });
  return true;
}

absl::StatusOr<bool> AsyncCheckpointer::Impl::IsDue(int64_t step) const {
  const int64_t interval = save_interval_steps;
  const bool any_rule =
      interval > 0 || !options.save_on_steps.empty() || options.save_interval_seconds > 0 || options.save_when;
  const bool due =
      !any_rule || (interval > 0 && step % interval == 0) ||
      std::find(options.save_on_steps.begin(), options.save_on_steps.end(), step) != options.save_on_steps.end() ||
      (options.save_interval_seconds > 0 && IsOver(absl::Seconds(options.save_interval_seconds), last_save, now())) ||
      (options.save_when && options.save_when({.step = step,
                                               .last_saved = last_saved_step,
                                               .since_last = now() - last_save,
                                               .in_flight = open_saves.AnyInFlight()}));
  return due && !absl::IsAlreadyExists(CheckSave(step, {}));
}

absl::Status AsyncCheckpointer::SetSaveInterval(int64_t steps) {
  return Guarded("SetSaveInterval", [&]() -> absl::Status {
    if (absl::Status status = impl_->CheckOpen(); !status.ok()) return status;
    if (steps < 0) {
      return absl::InvalidArgumentError(fmt::format("a save interval of {} steps; it must be >= 0", steps));
    }
    impl_->save_interval_steps = steps;
    return absl::OkStatus();
  });
}

absl::StatusOr<SaveHandle> AsyncCheckpointer::Save(int64_t step, State& state, SaveOptions options) {
  return Guarded("Save", [&] {
    SaveRequest request = SaveRequest::Of(std::move(options));
    request.deadline = Deadline::After(impl_->options.save_timeout);
    return impl_->Save(nullptr, step, state, request);
  });
}

absl::StatusOr<SaveHandle> AsyncCheckpointer::Evaluate(int64_t step, State& state, EvaluateOptions options) {
  return Guarded("Evaluate", [&] { return impl_->Save(nullptr, step, state, SaveRequest::Of(std::move(options))); });
}

absl::Status AsyncCheckpointer::WaitUntilStaged() {
  return Guarded("WaitUntilStaged", [&]() -> absl::Status {
    if (absl::Status status = impl_->CheckOpen(); !status.ok()) return status;
    return impl_->last_staged.Wait();
  });
}

absl::Status AsyncCheckpointer::WaitUntilStaged(std::string_view entry) {
  return Guarded("WaitUntilStaged", [&]() -> absl::Status {
    if (absl::Status status = impl_->CheckOpen(); !status.ok()) return status;
    if (impl_->last_plan == nullptr) return absl::NotFoundError("nothing has been saved yet");
    int64_t index = impl_->last_plan->Find(entry);
    if (index < 0 && impl_->last_left_out != nullptr) {
      const auto left_out = impl_->last_left_out->find(std::string(entry));
      if (left_out != impl_->last_left_out->end()) {
        index = left_out->second;
        if (index < 0) return absl::OkStatus();
      }
    }
    if (index < 0) return absl::NotFoundError(fmt::format("the last save has no entry '{}'", entry));
    if (impl_->last_staged.ready()) return impl_->last_staged.Wait();
    const StagingPlan::Placement& place = impl_->last_plan->placements()[static_cast<size_t>(index)];
    return impl_->last_progress->WaitFor(place.offset + place.bytes);  // at once for a sized value, which Save has read
  });
}

absl::Status AsyncCheckpointer::Prepare(State& state) {
  return Guarded("Prepare", [&]() -> absl::Status {
    if (absl::Status status = impl_->CheckOpen(); !status.ok()) return status;
    impl_->WaitUntilTensorsAreRead();
    const std::shared_ptr<PartOfState> part = impl_->PartToStage(state);
    return impl_->stager.Prepare(part == nullptr ? state : *part);
  });
}

absl::Status AsyncCheckpointer::PrepareInBackground(State& state) {
  return Guarded("PrepareInBackground", [&]() -> absl::Status {
    if (absl::Status status = impl_->CheckOpen(); !status.ok()) return status;
    return impl_->PrepareInBackground(state, /*is_restored=*/false);
  });
}

absl::Status AsyncCheckpointer::WaitUntilCommitted() {
  return Guarded("WaitUntilCommitted", [&]() -> absl::Status {
    if (absl::Status status = impl_->CheckOpen(); !status.ok()) return status;
    if (impl_->save_deadlines == nullptr) {
      impl_->Settle();
    } else {
      impl_->persister->Hurry();
      impl_->open_saves.AwaitAll();  // a save whose time is up is settled, and its thread may stand still
    }
    return impl_->open_saves.TakeFailure();
  });
}

Future AsyncCheckpointer::Committed(int64_t step) const {
  return GuardedFuture("Committed", [&]() -> Future {
    if (absl::Status status = impl_->CheckOpen(); !status.ok()) return ResolvedFuture(status);
    if (std::optional<Future> in_flight = impl_->open_saves.CommittedOf(step)) return *std::move(in_flight);
    absl::StatusOr<std::optional<storage::StepRecord>> record = impl_->store->catalog().Find(step);
    if (!record.ok()) return ResolvedFuture(record.status());
    if (record->has_value() && (*record)->info.state == StepState::kCommitted) return ResolvedFuture(absl::OkStatus());
    return ResolvedFuture(absl::NotFoundError(fmt::format("step {} is neither committed nor being saved", step)));
  });
}

absl::Status AsyncCheckpointer::CheckForErrors() {
  return Guarded("CheckForErrors", [&]() -> absl::Status {
    if (absl::Status status = impl_->process.Check(); !status.ok()) return status;
    return impl_->open_saves.TakeFailure();
  });
}

absl::StatusOr<RestoreReport> AsyncCheckpointer::RestoreLatest(State& state, const RestoreOptions& options) {
  return Guarded("Restore", [&] { return Restore(StepSelector::Latest(), state, options); });
}

absl::StatusOr<RestoreReport> AsyncCheckpointer::Restore(const StepSelector& step, State& state,
                                                         const RestoreOptions& options) {
  return Guarded("Restore", [&]() -> absl::StatusOr<RestoreReport> {
    if (absl::Status status = impl_->CheckOpen(); !status.ok()) return status;
    if (impl_->exchange != nullptr && impl_->OnOwnThread()) {
      return absl::FailedPreconditionError("Restore: called by a callback or an evaluator, in a job of several ranks");
    }
    impl_->Settle();
    impl_->last_restore.reset();
    absl::StatusOr<RestoreReport> report = impl_->exchange == nullptr ? impl_->RestoreSelected(step, state, options)
                                                                      : impl_->RestoreRanks(step, state, options);
    impl_->NoteRestore(state, options, report);
    return report;
  });
}

absl::StatusOr<StepInfo> AsyncCheckpointer::LatestStep() const {
  return Guarded("LatestStep", [&]() -> absl::StatusOr<StepInfo> {
    if (absl::Status status = impl_->CheckOpen(); !status.ok()) return status;
    absl::StatusOr<std::optional<storage::StepRecord>> record =
        impl_->store->catalog().FindCommittedAtOrBelow(std::numeric_limits<int64_t>::max());
    if (!record.ok()) return record.status();
    if (record->has_value()) return (*record)->info;
    return absl::NotFoundError(fmt::format("no step is committed in {}", impl_->store->layout().directory()));
  });
}

absl::StatusOr<StepInfo> AsyncCheckpointer::BestStep(std::string_view metric, BestMode mode) const {
  return Guarded("BestStep", [&]() -> absl::StatusOr<StepInfo> {
    if (absl::Status status = impl_->CheckOpen(); !status.ok()) return status;
    absl::StatusOr<std::optional<storage::StepRecord>> record = impl_->store->catalog().FindBest(metric, mode);
    if (!record.ok()) return record.status();
    if (record->has_value()) return (*record)->info;
    return absl::NotFoundError(fmt::format("no committed step in {} that is healthy has a finite metric '{}'",
                                           impl_->store->layout().directory(), metric));
  });
}

absl::StatusOr<StepInfo> AsyncCheckpointer::BestStep(std::string_view metric) const {
  return Guarded("BestStep", [&]() -> absl::StatusOr<StepInfo> {
    if (absl::Status status = impl_->CheckOpen(); !status.ok()) return status;
    const absl::StatusOr<storage::BestModes> recorded = impl_->store->catalog().RecordedBestModes();
    if (!recorded.ok()) return recorded.status();
    const absl::StatusOr<BestMode> mode = storage::RequireBestMode(*recorded, metric);
    if (!mode.ok()) return mode.status();
    return BestStep(metric, *mode);
  });
}

absl::StatusOr<std::vector<StepInfo>> AsyncCheckpointer::Steps() const {
  return Guarded("Steps", [&]() -> absl::StatusOr<std::vector<StepInfo>> {
    if (absl::Status status = impl_->CheckOpen(); !status.ok()) return status;
    return impl_->Steps();
  });
}

absl::Status AsyncCheckpointer::AddEvaluator(EvaluatorOptions options, EvaluatorFunction function) {
  return Guarded("AddEvaluator", [&]() -> absl::Status {
    if (absl::Status status = impl_->CheckOpen(); !status.ok()) return status;
    if (absl::Status status = ValidateEvaluatorOptions(options); !status.ok()) return status;
    if (!impl_->CheckIsHolder().ok() && options.when_lagging == WhenLagging::kQueue) {
      return absl::UnimplementedError(fmt::format(
          "evaluator '{}': only rank 0 can keep steps until they are evaluated (WhenLagging::kQueue)", options.name));
    }
    storage::BestModes best;
    for (const auto& [metric, mode] : options.best) best.emplace(options.name + "/" + metric, mode);
    if (absl::Status status = impl_->CheckBestModes(best); !status.ok()) return status;
    // Its results could not be recorded.
    if (absl::Status status = impl_->store->CheckPlace(); !status.ok()) return status;
    absl::StatusOr<std::vector<EarlierStep>> earlier = impl_->StepsThatAwait(options);
    if (!earlier.ok()) return earlier.status();
    const auto held_max = static_cast<uint64_t>(options.max_pending);
    // First, so that no retention pass after the first report goes by another mode.
    if (!best.empty()) impl_->RecordBestModes(best);
    absl::Status status = impl_->stream->AddEvaluator(
        std::move(options), std::move(function),
        {.sink = impl_->housekeeper.get(), .shelf = impl_->claims.get(), .now = impl_->now}, *std::move(earlier));
    if (!status.ok()) return status;
    impl_->stager.AddRoomFor(held_max);
    return status;
  });
}

absl::Status AsyncCheckpointer::AddCompanion(std::shared_ptr<Companion> companion) {
  return Guarded("AddCompanion", [&]() -> absl::Status {
    if (absl::Status status = impl_->CheckOpen(); !status.ok()) return status;
    if (impl_->exchange != nullptr) {
      return absl::UnimplementedError("a job of several ranks saves no companions yet");
    }
    impl_->Settle();
    return Guarded("Companion::prefix", [&] { return impl_->companions.Add(std::move(companion)); });
  });
}

Future AsyncCheckpointer::ReportMetrics(int64_t step, std::string evaluator, Metrics metrics) {
  return GuardedFuture("ReportMetrics", [&]() -> Future {
    if (absl::Status status = impl_->process.Check(); !status.ok()) return ResolvedFuture(status);
    Evaluation evaluation;
    evaluation.evaluator = std::move(evaluator);
    evaluation.worker = "trainer";
    evaluation.metrics = std::move(metrics);
    evaluation.reported = impl_->now();
    return impl_->housekeeper->ReportMetrics(step, std::move(evaluation));
  });
}

absl::Status AsyncCheckpointer::Pin(int64_t step, std::string note) {
  return Guarded("Pin", [&]() -> absl::Status {
    if (absl::Status status = impl_->process.Check(); !status.ok()) return status;
    return impl_->housekeeper->Run([&](storage::Store& store) { return store.Pin(step, note); });
  });
}

absl::Status AsyncCheckpointer::Unpin(int64_t step) {
  return Guarded("Unpin", [&]() -> absl::Status {
    if (absl::Status status = impl_->process.Check(); !status.ok()) return status;
    return impl_->housekeeper->Run([&](storage::Store& store) { return store.Unpin(step); });
  });
}

absl::Status AsyncCheckpointer::Tag(int64_t step, std::string_view name) {
  return Guarded("Tag", [&]() -> absl::Status {
    if (absl::Status status = impl_->process.Check(); !status.ok()) return status;
    return impl_->housekeeper->Tag(step, name);
  });
}

absl::Status AsyncCheckpointer::Untag(std::string_view name) {
  return Guarded("Untag", [&]() -> absl::Status {
    if (absl::Status status = impl_->process.Check(); !status.ok()) return status;
    return impl_->housekeeper->Untag(name);
  });
}

absl::Status AsyncCheckpointer::Delete(int64_t step, std::string reason) {
  return Guarded("Delete", [&]() -> absl::Status {
    if (absl::Status status = impl_->process.Check(); !status.ok()) return status;
    if (absl::Status status = impl_->CheckIsHolder(); !status.ok()) return status;
    return impl_->housekeeper->Delete(step, std::move(reason));
  });
}

absl::StatusOr<std::vector<int64_t>> AsyncCheckpointer::DiscardAfter(int64_t step, std::string reason) {
  return Guarded("DiscardAfter", [&]() -> absl::StatusOr<std::vector<int64_t>> {
    if (absl::Status status = impl_->CheckOpen(); !status.ok()) return status;
    if (impl_->exchange != nullptr && impl_->OnOwnThread()) {
      return absl::FailedPreconditionError(
          "DiscardAfter: called by a callback or an evaluator, in a job of several ranks");
    }
    impl_->Settle();
    // The scrub must not miss a file that goes, and the next save must not refer to it.
    absl::StatusOr<std::vector<int64_t>> discarded = std::vector<int64_t>();
    if (impl_->store->is_holder()) {
      discarded = Guarded("DiscardAfter", [&] {
        return impl_->housekeeper->DiscardAfter(step, reason, [this] { impl_->persister->ForgetCommitted(); });
      });
    }
    if (impl_->exchange != nullptr) discarded = ShareDiscarded(*impl_->exchange, discarded);
    const bool deletes_nothing = discarded.ok() && discarded->empty();
    if (!impl_->store->is_holder() && !deletes_nothing) impl_->persister->ForgetCommitted();
    impl_->LookAsOtherRank();
    absl::StatusOr<std::optional<int64_t>> latest = impl_->store->catalog().LatestCommitted();
    if (latest.ok()) impl_->last_saved_step = *latest;
    return discarded;
  });
}

absl::Status AsyncCheckpointer::WaitUntilEvaluated() {
  return Guarded("WaitUntilEvaluated", [&]() -> absl::Status {
    if (absl::Status status = impl_->CheckMayAwaitEvaluators(); !status.ok()) return status;
    impl_->Settle();
    impl_->stream->DrainEvaluators();
    return impl_->housekeeper->Flush();
  });
}

absl::Status AsyncCheckpointer::WaitUntilEvaluated(absl::Time time) {
  const Deadline deadline = Deadline::At(time);
  return Guarded("WaitUntilEvaluated", [&]() -> absl::Status {
    if (absl::Status status = impl_->CheckMayAwaitEvaluators(); !status.ok()) return status;
    impl_->persister->Hurry();
    std::vector<std::string> running;
    if (impl_->staging_thread != nullptr && !impl_->staging_thread->DrainUntil(deadline)) {
      running.emplace_back("the copy of a state");
    }
    size_t saves = 0;
    if (!impl_->stream->DrainUntil(deadline, &running, &saves) || !running.empty()) {
      return Impl::StillRunning("", running, saves);
    }
    return impl_->housekeeper->Flush();
  });
}

absl::Status AsyncCheckpointer::Tidy() {
  return Guarded("Tidy", [&]() -> absl::Status {
    if (absl::Status status = impl_->process.Check(); !status.ok()) return status;
    if (absl::Status status = impl_->CheckIsHolder(); !status.ok()) return status;
    return impl_->housekeeper->Tidy();
  });
}

absl::StatusOr<std::vector<RetentionDecision>> AsyncCheckpointer::RetentionPlan() const {
  return Guarded("RetentionPlan", [&]() -> absl::StatusOr<std::vector<RetentionDecision>> {
    if (absl::Status status = impl_->process.Check(); !status.ok()) return status;
    if (absl::Status status = impl_->CheckIsHolder(); !status.ok()) return status;
    return impl_->housekeeper->Plan();
  });
}

CheckpointerStatistics AsyncCheckpointer::statistics() const {
  absl::StatusOr<CheckpointerStatistics> all = Guarded("statistics", [&]() -> absl::StatusOr<CheckpointerStatistics> {
    return impl_->process.is_this() ? impl_->Statistics() : CheckpointerStatistics();
  });
  return all.ok() ? *std::move(all) : CheckpointerStatistics();
}

absl::Status AsyncCheckpointer::Close() {
  const Deadline deadline = Deadline::After(impl_->options.close_timeout);
  return Guarded("Close", [&] { return impl_->Close(deadline, deadline); });
}

absl::Status AsyncCheckpointer::Close(absl::Time time) {
  const Deadline deadline = Deadline::At(time);
  return Guarded("Close", [&] { return impl_->Close(deadline, deadline); });
}

}  // namespace tidemark
