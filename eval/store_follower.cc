#include "eval/store_follower.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "snapshot/checkpointer_options.h"
#include "snapshot/housekeeping/lease_renewal.h"
#include "snapshot/restore/restore.h"
#include "snapshot/restore/stored_snapshot.h"
#include "storage/io/exception_status.h"
#include "storage/io/printable_text.h"
#include "storage/io/quoted_name.h"
#include "storage/store/step_changes.h"
#include "storage/store/store_identity.h"

namespace tidemark {
namespace {

// A worker beside a trainer takes few of its cores.
constexpr storage::ShardReadOptions kReadOptions{.codec_threads = 2, .io = storage::IoQueueKind::kAuto, .io_depth = 8};

// A lease is renewed so many times within its expiry.
constexpr int64_t kRenewalsInExpiry = 3;

// Over a shared file system a folder may be seen late: NFS keeps for a minute, by default, that it was not there. So a
// step is looked for so many times, first after this long, then after twice as long each time: 63 s in all.
constexpr int kMissingTriesMax = 7;
constexpr absl::Duration kMissingRetry = absl::Seconds(1);

// A rebuild takes two renames to put a journal in another one's place. If it was killed in between, the next process
// that opens the store finishes that, which may be never.
constexpr absl::Duration kReplacementMax = absl::Seconds(10);

// What is kept of a verdict where all of it would be too much for a report.
constexpr size_t kUnhealthyBytesMax = 256;

std::string DescribeWorker() {
  std::array<char, 256> host = {};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return fmt::format("process {} on {}", getpid(), host.data());
}

WorkerOptions WithDefaults(WorkerOptions options) {
  if (options.worker.empty()) options.worker = DescribeWorker();
  if (options.observer == nullptr) options.observer = std::make_shared<CheckpointObserver>();
  return options;
}

Evaluation Failed(std::string reason) {
  return Evaluation{.outcome = Evaluation::Outcome::kFailed, .reason = std::move(reason)};
}

Evaluation RowOf(std::string_view evaluator, absl::StatusOr<Verdict> verdict) {
  absl::Status status = verdict.status();
  if (status.ok()) {
    status = ValidateMetrics(fmt::format("evaluator {}", storage::QuotedName(evaluator)), verdict->metrics);
  }
  Evaluation row = status.ok() ? Evaluation{.metrics = std::move(verdict->metrics)} : Failed(status.ToString());
  // What cannot be recorded beside it takes nothing from the verdict.
  if (verdict.ok()) row.unhealthy = std::move(verdict->unhealthy);
  return row;
}

// The step whose being done ends a worker: the last one up to until_step that is asked for, if there can be one.
std::optional<int64_t> LastStepToDo(const WorkerOptions& options) {
  if (!options.until_step) return std::nullopt;
  const int64_t last = *options.until_step - *options.until_step % options.every_steps;
  return last < options.begin_step ? options.until_step : last;
}

// While a journal is being made, or a rebuild puts another in the place of the one that is there, there is none for a
// moment.
bool IsBeingReplaced(const absl::Status& status) { return absl::IsNotFound(status) || absl::IsUnavailable(status); }

}  // namespace

absl::Status ValidateWorkerOptions(const WorkerOptions& options) {
  const auto refuse = [](std::string_view field, const auto& value, std::string_view range) {
    return absl::InvalidArgumentError(fmt::format("WorkerOptions::{} is {}: {}", field, value, range));
  };
  if (options.directory.empty()) return absl::InvalidArgumentError("WorkerOptions::directory is empty");
  if (options.report || !options.evaluator.empty()) {
    if (absl::Status status = storage::ValidateEvaluation({.evaluator = options.evaluator}); !status.ok()) {
      return absl::InvalidArgumentError(fmt::format("WorkerOptions::evaluator: {}", std::string(status.message())));
    }
  }
  if (options.when_lagging != WhenLagging::kQueue && options.when_lagging != WhenLagging::kLatest) {
    return absl::InvalidArgumentError("WorkerOptions::when_lagging: it must be kQueue or kLatest");
  }
  if (options.staleness_max < 0) return refuse("staleness_max", options.staleness_max, "0 or more");
  if (options.every_steps < 1) return refuse("every_steps", options.every_steps, "1 or more");
  if (options.begin_step < 0) return refuse("begin_step", options.begin_step, "0 or more");
  if (options.idle_timeout < absl::ZeroDuration()) {
    return refuse("idle_timeout", absl::FormatDuration(options.idle_timeout), "0 or more");
  }
  if (options.poll_interval <= absl::ZeroDuration()) {
    return refuse("poll_interval", absl::FormatDuration(options.poll_interval), "more than 0");
  }
  if (options.lease_expiry < absl::Seconds(1) || options.lease_expiry > storage::kLeaseExpiryMax) {
    return refuse("lease_expiry", absl::FormatDuration(options.lease_expiry),
                  fmt::format("1s to {}", absl::FormatDuration(storage::kLeaseExpiryMax)));
  }
  return absl::OkStatus();
}

StoreFollower::StoreFollower(WorkerOptions options, EvaluatorFunction function, FollowerParts parts)
    : options_(WithDefaults(std::move(options))),
      function_(std::move(function)),
      parts_(std::move(parts)),
      last_to_do_(LastStepToDo(options_)),
      asked_for_({.evaluator = options_.evaluator,
                  .every_steps = options_.every_steps,
                  .begin_step = options_.begin_step,
                  .again_if_failed = options_.again_if_failed}),
      layout_(options_.directory),
      backlog_(asked_for_) {}

absl::StatusOr<WorkerReport> StoreFollower::Run() {
  try {
    return RunToEnd();
  } catch (...) {
    return storage::ExceptionStatus("FollowStore, or a callback of WorkerOptions");
  }
}

absl::StatusOr<WorkerReport> StoreFollower::RunToEnd() {
  std::optional<absl::Time> idle_since;
  for (;;) {
    if (const auto end = AskedToEnd()) {
      report_.end = *end;
      return report_;
    }
    absl::StatusOr<Sight> looked = Look();
    if (!looked.ok()) return looked.status();
    absl::StatusOr<Progress> progress = *looked == Sight::kNoJournal ? AwaitJournal() : DoNext();
    if (!progress.ok()) return progress.status();
    if (*progress != Progress::kNone) idle_since.reset();
    if (*progress == Progress::kEvaluated) continue;
    absl::Duration wait = options_.poll_interval;
    if (*progress == Progress::kNone) {
      // Who is asked to end meanwhile leaves off before it has looked at all steps: that is not their end.
      if (*looked == Sight::kCurrent && (IsLastDone() || IsUntilSeen()) && !AskedToEnd()) {
        report_.end = WorkerReport::End::kUntilStep;
        return report_;
      }
      const absl::Time now = parts_.now();
      if (!idle_since) idle_since = now;
      const absl::Duration left = *idle_since + options_.idle_timeout - now;
      if (left <= absl::ZeroDuration() && !AskedToEnd()) {
        report_.end = WorkerReport::End::kIdle;
        return report_;
      }
      wait = std::min(wait, left);
    }
    parts_.wait(wait);
  }
}

std::optional<WorkerReport::End> StoreFollower::AskedToEnd() const {
  if (parts_.signalled()) return WorkerReport::End::kSignal;
  if (options_.stop && options_.stop()) return WorkerReport::End::kStopped;
  return std::nullopt;
}

bool StoreFollower::IsLastDone() const { return last_to_do_ && backlog_.highest_done() >= last_to_do_; }

// The step that is waited for may never be done: its files stay away, it is damaged, or nobody saves it.
bool StoreFollower::IsUntilSeen() const {
  return options_.until_step && backlog_.highest_seen() >= options_.until_step;
}

// kCurrent: the journal has been opened.
absl::StatusOr<StoreFollower::Sight> StoreFollower::FindJournal() {
  layout_ = storage::StoreLayout(parts_.locate());
  files_ = parts_.hold(layout_.directory());
  int format = 0;
  absl::StatusOr<storage::StoreId> store = storage::ReadStoreIdentity(*files_, layout_, &format);
  if (absl::IsNotFound(store.status())) return Sight::kNothing;
  // A link that was made or turned after it was looked for is refused; the next look goes through it.
  if (!store.ok() && storage::StoreLayout(parts_.locate()).directory() != layout_.directory()) return Sight::kNothing;
  if (!store.ok()) return store.status();
  absl::StatusOr<std::unique_ptr<storage::StoreJournal>> journal = storage::StoreJournal::Open(
      *files_, layout_, *store,
      {.appends = !options_.evaluator.empty(), .warn = [this](std::string_view line) { Warn(line); }});
  if (IsBeingReplaced(journal.status())) {
    if (format < storage::kStoreFormat && !std::exchange(warned_of_format_, true)) {
      Warn(fmt::format("the worker waits, because an older version of Tidemark wrote the store {}: open it for writing "
                       "once to convert it, with a trainer or with 'checkpoint-inspect repair --apply'",
                       layout_.directory()));
    }
    return Sight::kNoJournal;
  }
  if (!journal.ok()) return journal.status();
  auto names = std::make_unique<storage::HeldNames>(*files_, "the store " + layout_.directory());
  if (absl::Status status = names->Add(layout_.directory()); !status.ok()) return status;
  names_ = std::move(names);
  store_ = *store;
  journal_ = *std::move(journal);
  leases_.emplace(*files_, layout_, parts_.machine, parts_.now);
  return Sight::kCurrent;
}

// Brings catalog and backlog up to date.
absl::StatusOr<StoreFollower::Sight> StoreFollower::Look() {
  if (journal_ == nullptr) {
    absl::StatusOr<Sight> found = FindJournal();
    if (!found.ok() || *found != Sight::kCurrent) return found;
  } else {
    if (absl::Status status = names_->Check(); !status.ok()) return status;
    absl::StatusOr<bool> changed = journal_->Look();
    if (!changed.ok()) behind_ = true;
    if (IsBeingReplaced(changed.status())) return Sight::kNoJournal;
    if (!changed.ok()) return changed.status();
    behind_ = behind_ || *changed;
  }
  if (absl::Status status = backlog_.Update(journal_->catalog(), behind_, parts_.now()); !status.ok()) return status;
  behind_ = false;
  replaced_since_.reset();
  return Sight::kCurrent;
}

StoreFollower::Progress StoreFollower::AwaitJournal() {
  const absl::Time now = parts_.now();
  if (!replaced_since_) replaced_since_ = now;
  return now - *replaced_since_ < kReplacementMax ? Progress::kBusy : Progress::kNone;
}

// Goes through what there is to do, in order, until one step is evaluated.
absl::StatusOr<StoreFollower::Progress> StoreFollower::DoNext() {
  Progress progress = Progress::kNone;
  for (auto step = backlog_.FirstAfter(std::nullopt); step; step = backlog_.FirstAfter(step->step)) {
    if (AskedToEnd()) return progress;
    if (IsLastDone() && step->step > *options_.until_step) return progress;
    if (const auto missing = missing_.find(step->attempt); missing != missing_.end()) {
      if (missing->second.tries >= kMissingTriesMax) continue;
      if (parts_.now() < missing->second.again) {
        progress = Progress::kBusy;
        continue;
      }
    }
    absl::StatusOr<Progress> tried = Try(*step);
    if (!tried.ok() || *tried == Progress::kEvaluated) return tried;
    if (*tried == Progress::kBusy) progress = Progress::kBusy;
  }
  return progress;
}

// Whether a report on the step is recorded that leaves nothing to be done.
absl::StatusOr<bool> StoreFollower::IsReported(const StepBacklog::Step& step) const {
  if (options_.evaluator.empty()) return false;
  absl::StatusOr<std::optional<storage::StepRecord>> record = journal_->catalog().Find(step.step);
  if (!record.ok()) return record.status();
  return record->has_value() && (*record)->info.attempt == storage::ToHex(step.attempt.bytes) &&
         asked_for_.IsDone((*record)->info);
}

absl::StatusOr<StoreFollower::Progress> StoreFollower::Try(const StepBacklog::Step& step) {
  absl::StatusOr<bool> reported = IsReported(step);
  if (!reported.ok()) return reported.status();
  if (*reported || tried_.contains(step.attempt)) {
    backlog_.Done(step);
    return Progress::kNone;
  }
  std::unique_ptr<storage::Lease> lease;  // null: nothing is written to the store
  if (options_.report) {
    absl::StatusOr<std::unique_ptr<storage::Lease>> acquired = leases_->Acquire({.step = step.step,
                                                                                 .attempt = step.attempt,
                                                                                 .evaluator = options_.evaluator,
                                                                                 .holder = options_.worker,
                                                                                 .expiry = options_.lease_expiry});
    if (absl::IsUnavailable(acquired.status())) return Progress::kBusy;
    if (!acquired.ok()) return acquired.status();
    lease = *std::move(acquired);
  }

  // From now on no other process evaluates or deletes the step. So it is looked at again: it may have changed before.
  absl::StatusOr<Sight> looked = Look();
  if (!looked.ok()) return looked.status();
  if (*looked != Sight::kCurrent) return Progress::kBusy;
  absl::StatusOr<std::optional<storage::StepRecord>> record = journal_->catalog().Find(step.step);
  if (!record.ok()) return record.status();
  if (!record->has_value() || (*record)->info.state != StepState::kCommitted ||
      (*record)->info.attempt != storage::ToHex(step.attempt.bytes)) {
    backlog_.Drop(step);
    return Progress::kNone;
  }
  if (asked_for_.IsDone((*record)->info)) {
    backlog_.Done(step);
    return Progress::kNone;
  }
  if (std::string why = WhySkipped(step); !why.empty()) return Skip(step, std::move(why));
  return Evaluate(step, **record, lease.get());
}

// Empty: the options select the step for evaluation.
std::string StoreFollower::WhySkipped(const StepBacklog::Step& step) const {
  const auto& asked_for = backlog_.last_asked_for();
  if (options_.when_lagging == WhenLagging::kLatest && asked_for && asked_for->sequence > step.sequence) {
    return fmt::format("lagging: step {} was saved later", asked_for->step);
  }
  const auto& last = backlog_.last_saved();
  if (options_.staleness_max > 0 && last && last->step - options_.staleness_max > step.step) {
    return fmt::format("stale: {} steps behind step {}", last->step - step.step, last->step);
  }
  return "";
}

absl::StatusOr<StoreFollower::Progress> StoreFollower::Skip(const StepBacklog::Step& step, std::string why) {
  Evaluation row{.outcome = Evaluation::Outcome::kSkipped, .reason = std::move(why)};
  if (absl::Status status = Deliver(step, row); !status.ok()) return status;
  ++report_.skipped;
  Done(step, row);
  return Progress::kEvaluated;
}

void StoreFollower::Done(const StepBacklog::Step& step, const Evaluation& row) {
  backlog_.Done(step);
  missing_.erase(step.attempt);
  const bool asked_again = options_.again_if_failed && row.outcome == Evaluation::Outcome::kFailed;
  if (!options_.report || asked_again) tried_.insert(step.attempt);
  options_.observer->Evaluated(step.step, row);
}

absl::StatusOr<StoreFollower::Progress> StoreFollower::Evaluate(const StepBacklog::Step& step,
                                                                const storage::StepRecord& record,
                                                                storage::Lease* lease) {
  const absl::Time start = parts_.now();
  std::unique_ptr<LeaseRenewal> renewal;
  if (lease != nullptr) {
    absl::StatusOr<std::unique_ptr<LeaseRenewal>> started =
        LeaseRenewal::Start([lease] { return lease->Renew(); }, options_.lease_expiry / kRenewalsInExpiry);
    if (!started.ok()) return started.status();
    renewal = *std::move(started);
  }
  absl::StatusOr<Evaluation> row = Ask(record);
  // A lost lease may cost work, because another worker may evaluate the step too. It never costs a report.
  if (absl::Status renewed = renewal ? renewal->Stop() : absl::OkStatus(); !renewed.ok()) {
    Warn(fmt::format("the lease on step {} could not be renewed: {}", step.step, std::string(renewed.message())));
  }
  if (absl::IsNotFound(row.status())) return NoteMissing(step, row.status());
  if (!row.ok()) return row.status();
  row->took = parts_.now() - start;
  if (row->outcome != Evaluation::Outcome::kDone && row->unhealthy.empty()) {
    // Of a lease that was lost another worker may have made a report, which this one must not replace.
    if (absl::Status looked = Look().status(); !looked.ok()) return looked;
    absl::StatusOr<bool> reported = IsReported(step);
    if (!reported.ok()) return reported.status();
    if (*reported) {
      backlog_.Done(step);
      return Progress::kNone;
    }
  }
  if (absl::Status status = Deliver(step, *row); !status.ok()) return status;
  ++report_.evaluated;
  if (row->outcome == Evaluation::Outcome::kFailed) ++report_.failed;
  report_.last_step = step.step;
  Done(step, *row);
  return Progress::kEvaluated;
}

// What there is to be said of a step. An error says nothing about it; kNotFound: its files are not there.
absl::StatusOr<Evaluation> StoreFollower::Ask(const storage::StepRecord& record) const {
  absl::StatusOr<std::shared_ptr<const Snapshot>> snapshot =
      OpenStoredSnapshot({*files_, layout_, store_, kReadOptions}, record, options_.entries, options_.half_precision,
                         CompanionEntries::kByPatterns);
  if (absl::IsDataLoss(snapshot.status()) || absl::IsInvalidArgument(snapshot.status())) {
    return Failed(snapshot.status().ToString());
  }
  if (!snapshot.ok()) return snapshot.status();
  try {
    absl::StatusOr<Verdict> verdict = function_(**snapshot);
    if (absl::IsCancelled(verdict.status())) return verdict.status();
    return RowOf(options_.evaluator, std::move(verdict));
  } catch (const std::exception& error) {
    return Failed(fmt::format("it threw: {}", error.what()));
  } catch (...) {
    return Failed("it threw something other than a std::exception");
  }
}

StoreFollower::Progress StoreFollower::NoteMissing(const StepBacklog::Step& step, const absl::Status& why) {
  Missing& missing = missing_[step.attempt];
  missing.again = parts_.now() + kMissingRetry * (1 << missing.tries);
  ++missing.tries;
  if (missing.tries == kMissingTriesMax) {
    Warn(fmt::format("step {} is skipped after {} tries: {}", step.step, missing.tries, std::string(why.message())));
    return Progress::kNone;
  }
  if (missing.tries == 1) {
    Warn(fmt::format("step {} is tried again later, because its files may become visible late: {}", step.step,
                     std::string(why.message())));
  }
  return Progress::kBusy;
}

// As Change, and waits while a rebuild puts another journal in the place of the one that is there.
absl::Status StoreFollower::Append(storage::StoreJournal::Compose compose) {
  const absl::Time begin = parts_.now();
  for (;;) {
    const absl::Status status = journal_->Change(compose);
    const bool was_replaced = absl::IsFailedPrecondition(status) && names_->Check().ok();
    if (!IsBeingReplaced(status) && !was_replaced) return status;
    behind_ = true;
    const absl::Duration left = begin + kReplacementMax - parts_.now();
    if (left <= absl::ZeroDuration() || AskedToEnd()) return status;
    parts_.wait(std::min(options_.poll_interval, left));
    if (absl::Status held = names_->Check(); !held.ok()) return held;
  }
}

// Leaves the row as it was delivered.
absl::Status StoreFollower::Deliver(const StepBacklog::Step& step, Evaluation& row) {
  const auto deliver = [&] {
    row.evaluator = options_.evaluator;
    row.worker = options_.worker;
    row.reported = absl::Now();
    if (!options_.report) return absl::OkStatus();
    const storage::EvaluationFact fact{
        .step = step.step, .attempt = storage::ToHex(step.attempt.bytes), .evaluation = row};
    std::vector<storage::ReportOutcome> outcomes;
    absl::Status status = Append(
        [&](const storage::StepCatalog& catalog) { return storage::ReportFacts(catalog, {&fact, 1}, outcomes); });
    // One that says less than what is recorded, or is about a step that is gone, is no failure of this worker.
    if (!status.ok() || outcomes.empty()) return status;
    const absl::Status& own = outcomes[0].status;
    return absl::IsAlreadyExists(own) || absl::IsNotFound(own) ? absl::OkStatus() : own;
  };
  absl::Status status = deliver();
  if (!absl::IsInvalidArgument(status)) return status;
  // Too much to say for one report.
  Evaluation failed = Failed(status.ToString());
  failed.unhealthy = row.unhealthy.substr(0, kUnhealthyBytesMax);
  failed.took = row.took;
  row = std::move(failed);
  return deliver();
}

void StoreFollower::Warn(std::string_view text) const { options_.observer->Warning(storage::PrintableText(text)); }

}  // namespace tidemark
