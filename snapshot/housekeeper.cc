#include "snapshot/housekeeper.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <system_error>
#include <utility>

#include "fmt/format.h"
#include "snapshot/resolved_future.h"
#include "storage/manifest/inbox.h"
#include "storage/manifest/metric_report.h"

namespace tidemark {
namespace {

absl::Status NoStepFor(int64_t step, const absl::Status& failure) {
  return absl::NotFoundError(
      fmt::format("there is no step {}, for its save failed: {}", step, std::string(failure.message())));
}

// Errors that another try cannot mend.
bool IsFinal(const absl::Status& s) { return IsNotFound(s) || IsInvalidArgument(s) || IsAlreadyExists(s); }

// Errors of the disk as a whole, which other reports would meet as well.
bool IsCommon(const absl::Status& status) { return absl::IsResourceExhausted(status) || absl::IsInternal(status); }

}  // namespace

absl::Status ClosedError() { return absl::FailedPreconditionError("the checkpointer has been closed"); }

Housekeeper::Housekeeper(HousekeeperHost host, HousekeeperOptions options)
    : host_(std::move(host)),
      options_(std::move(options)),
      retention_(host_.files, host_.store, options_.retention,
                 [this](std::string_view line) {
                   if (retention_complaints_.IsNew(line)) host_.listeners.Warn(line);
                 }),
      metrics_file_(host_.files, options_.metrics_file, options_.metrics_file_interval) {}

absl::StatusOr<std::unique_ptr<Housekeeper>> Housekeeper::Start(HousekeeperHost host, HousekeeperOptions options) {
  if (options.retention.keep) {
    options.retention.keep = [&listeners = host.listeners, keep = options.retention.keep](const StepInfo& info) {
      return listeners.Keep(keep, info);
    };
  }
  std::unique_ptr<Housekeeper> keeper(new Housekeeper(std::move(host), std::move(options)));
  try {
    // The thread looks at its id, and must not before it is there.
    absl::MutexLock lock(&keeper->mutex_);
    keeper->thread_ = std::thread([raw = keeper.get()] { raw->Loop(); });
    keeper->thread_id_ = keeper->thread_.get_id();
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(fmt::format("start a thread: {}", error.what()));
  }
  return keeper;
}

Housekeeper::~Housekeeper() { Stop().IgnoreError(); }

void Housekeeper::BeginSave(const std::shared_ptr<const SaveTicket>& ticket, std::shared_ptr<const StepInfo> unsaved) {
  absl::MutexLock lock(&mutex_);
  if (unsaved == nullptr && !saving_) {
    // What the process before this one had yet to delete, or now may be deleted: it may take the room that this save
    // needs. Not before there is a save, for who only looks, or picks a step to go on from, lets nothing go; but where
    // a person asks for a deletion, or a worker reports, the rules are looked at all the same.
    saving_ = retention_due_ = wake_ = true;
    has_work_.NotifyAll();
  }
  book_.BeginSave(ticket, std::move(unsaved));
}

std::shared_ptr<const SaveTicket> Housekeeper::TicketOf(const StepInfo& committed) {
  absl::MutexLock lock(&mutex_);
  return book_.AddCommitted(committed);
}

void Housekeeper::EndSave(SaveOutcome& outcome) {
  std::vector<Report> in_vain;
  {
    absl::MutexLock lock(&mutex_);
    in_vain = book_.EndSave(outcome.save, outcome.status, outcome.info.attempt, &outcome.notes);
    save_ended_ = true;
    // Also after a failure, which may be for want of room.
    retention_due_ = retention_due_ || outcome.persist;
    has_work_.NotifyAll();
  }
  for (const Report& report : in_vain) {
    GiveUp(report, NoStepFor(report.step, outcome.status));
  }
}

Future Housekeeper::ReportMetrics(int64_t step, Evaluation evaluation) {
  if (absl::Status status = storage::ValidateEvaluation(evaluation); !status.ok()) return ResolvedFuture(status);
  auto recorded = std::make_shared<Promise>();
  const Future future = recorded->future();
  {
    absl::MutexLock lock(&mutex_);
    if (!refuse_reports_ && !stopping_) {
      Report report;
      report.step = step;
      report.evaluation = std::move(evaluation);
      report.recorded = std::move(recorded);
      book_.Add(std::move(report));
      has_work_.NotifyAll();
      return future;
    }
  }
  recorded->Set(ClosedError());
  return future;
}

void Housekeeper::RefuseReports() {
  absl::MutexLock lock(&mutex_);
  refuse_reports_ = true;
}

void Housekeeper::Evaluated(const SaveTicket& save, Evaluation evaluation) {
  if (evaluation.outcome == Evaluation::Outcome::kSkipped) {
    host_.statistics.AddSkipped(fmt::format("evaluator {}: {}", evaluation.evaluator, ReasonClass(evaluation.reason)));
  } else {
    host_.statistics.AddBackground("evaluate", evaluation.took);
  }
  absl::MutexLock lock(&mutex_);
  if (evaluation.outcome == Evaluation::Outcome::kSkipped) {
    book_.NoteOnSave(save.number(), fmt::format("{} skipped: {}", evaluation.evaluator, evaluation.reason));
  }
  save.RowGiven();
  if (stopping_) return;
  Report report;
  report.step = save.step();
  report.evaluation = std::move(evaluation);
  report.save = save.number();
  book_.Add(std::move(report));
  has_work_.NotifyAll();
}

std::string Housekeeper::UnrecordedVerdict(const StepInfo& info) const {
  absl::MutexLock lock(&mutex_);
  for (const std::deque<Report>* reports : {&book_.ready(), &unrecorded_verdicts_}) {
    for (const Report& report : *reports) {
      if (std::string why = VerdictOn(info, report); !why.empty()) return why;
    }
  }
  return "";
}

void Housekeeper::NoteVerdicts(const std::deque<Report>& unrecorded) {
  for (const Report& report : unrecorded) {
    if (report.evaluation.unhealthy.empty()) continue;
    unrecorded_verdicts_.push_back(report);
    unrecorded_verdicts_.back().recorded = nullptr;
  }
}

absl::Status Housekeeper::Ask(bool everything) {
  if (OnOwnThread()) {
    return absl::FailedPreconditionError("a callback on the housekeeping thread cannot wait for what that does next");
  }
  auto done = std::make_shared<Promise>();
  const Future future = done->future();
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return ClosedError();
    requests_.push_back({.everything = everything, .done = std::move(done)});
    has_work_.NotifyAll();
  }
  return future.Wait();
}

absl::Status Housekeeper::Flush() { return Ask(/*everything=*/false); }

absl::Status Housekeeper::Tidy() { return Ask(/*everything=*/true); }

absl::StatusOr<std::vector<RetentionDecision>> Housekeeper::Plan() {
  absl::StatusOr<std::vector<RetentionDecision>> plan;
  const absl::Status status = Run([&](storage::Store&) {
    plan = retention_.Plan(host_.claims, [this] { return Unjudged(); });
    return plan.status();
  });
  if (!status.ok()) return status;
  return plan;
}

absl::Status Housekeeper::Run(std::function<absl::Status(storage::Store&)> task) {
  if (OnOwnThread()) return task(host_.store);  // a callback: the thread is between two pieces of work
  auto done = std::make_shared<Promise>();
  const Future future = done->future();
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return ClosedError();
    tasks_.push_back({.run = std::move(task), .done = std::move(done)});
    has_work_.NotifyAll();
  }
  return future.Wait();
}

absl::Status Housekeeper::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    has_work_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
  return lost_;
}

bool Housekeeper::HasWork() const {
  if (stopping_ || save_ended_ || wake_ || (retention_unfinished_ && pauses_ == 0 && !retention_ended_) ||
      book_.has_ready() || !tasks_.empty())
    return true;
  if (pauses_ > 0) {
    // Who asks for everything waits until deletion may go on.
    return std::any_of(requests_.begin(), requests_.end(), [](const Request& request) { return !request.everything; });
  }
  return !requests_.empty();
}

Housekeeper::Round Housekeeper::NextRound() {
  absl::MutexLock lock(&mutex_);
  const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return HasWork(); };
  const absl::Duration until_next =
      std::min(options_.inbox_poll_interval - since_poll_.elapsed(), metrics_file_.until_due());
  has_work_.Await(&mutex_, has_work, Deadline::After(until_next));
  Round round;
  round.tasks = std::exchange(tasks_, {});
  round.reports = book_.TakeReady();
  NoteVerdicts(round.reports);
  round.last = stopping_;
  std::vector<Request> later;
  for (Request& request : requests_) {
    const bool wait = request.everything && pauses_ > 0 && !round.last;
    (wait ? later : round.requests).push_back(std::move(request));
  }
  requests_ = std::move(later);
  round.everything = std::any_of(round.requests.begin(), round.requests.end(),
                                 [](const Request& request) { return request.everything; });
  round.save_ended = std::exchange(save_ended_, false);
  wake_ = false;
  return round;
}

void Housekeeper::Loop() {
  for (;;) {
    Round round = NextRound();
    const bool last = round.last;
    Do(std::move(round));
    if (last) return;
  }
}

void Housekeeper::Do(Round round) {
  for (const Task& task : round.tasks) task.done->Set(task.run(host_.store));
  absl::Status recorded = RecordReports(std::move(round.reports), round.last);
  absl::Status carried_out;
  if (!round.requests.empty() || round.last || more_requests_ ||
      since_poll_.elapsed() >= options_.inbox_poll_interval) {
    since_poll_ = Stopwatch();
    const absl::Status collected = CollectFromInbox();
    // One that the manifest refused at first may have come with the others.
    if (round.last && !unrecorded_.empty()) recorded = RecordReports({}, round.last);
    recorded.Update(collected);
    carried_out = CarryOutRequests();
  }
  bool retention = false;
  bool paused = false;
  {
    absl::MutexLock lock(&mutex_);
    paused = pauses_ > 0;
    retention = (round.everything || retention_due_) && !paused && !retention_ended_;
    deleting_ = retention;
    if (!paused) retention_due_ = false;
  }
  absl::Status everything = recorded;
  everything.Update(carried_out);
  if (retention) everything.Update(ApplyRetention());
  if (round.everything && RetentionHasEnded()) everything.Update(ClosedError());
  if (everything.ok() && !round.last && (paused || retention_.unfinished() || more_requests_)) {
    AskAgain(round.requests);
  }
  Note("the statistics' file cannot be written",
       metrics_file_.Update(round.everything || round.save_ended || round.last, host_.statistics.changes(),
                            [this] { return PrometheusText(host_.read_statistics()); }));
  for (const Request& request : round.requests) request.done->Set(request.everything ? everything : recorded);
  if (!round.last) return;
  // One that has reached the disk all the same is recorded by who opens the store next, or is already.
  if (!unrecorded_.empty()) {
    const absl::Status& why = unrecorded_.front().last_try;
    lost_ = absl::Status(why.code(), fmt::format("{} evaluations could not be recorded, and may be lost: {}",
                                                 unrecorded_.size(), std::string(why.message())));
    host_.listeners.Warn(std::string(lost_.message()));
  }
  host_.statistics.AddRejected(unrecorded_.size());
  for (const Report& report : std::exchange(unrecorded_, {})) {
    if (report.recorded != nullptr) report.recorded->Set(report.last_try);
  }
  std::vector<Report> held;
  {
    absl::MutexLock lock(&mutex_);
    held = book_.TakeHeld();
  }
  for (const Report& report : held) GiveUp(report, ClosedError());
}

// Who asked for everything waits for the rounds in which retention goes on, or may go on again.
void Housekeeper::AskAgain(std::vector<Request>& requests) {
  absl::MutexLock lock(&mutex_);
  std::vector<Request> answered;
  for (Request& request : requests) (request.everything ? requests_ : answered).push_back(std::move(request));
  requests = std::move(answered);
}

absl::Status Housekeeper::RecordReports(std::deque<Report> fresh, bool last) {
  for (const Report& report : fresh) WarnIfFailed(report);
  std::deque<Report> reports = std::exchange(unrecorded_, {});
  reports.insert(reports.end(), std::make_move_iterator(fresh.begin()), std::make_move_iterator(fresh.end()));
  absl::Status first;
  absl::Status common;
  std::map<int64_t, absl::Status> stuck;  // by step, of which a later row must not overtake an earlier one
  std::deque<Report> of_stuck;
  for (Report& report : reports) {
    if (const auto found = stuck.find(report.step); found != stuck.end()) {
      report.last_try = found->second;
      of_stuck.push_back(std::move(report));
      continue;
    }
    // Once the disk refuses, the rest would hear the same from it, or be the first when it is tried again.
    if (!common.ok() && !last) {
      report.last_try = common;
      unrecorded_.push_back(std::move(report));
      continue;
    }
    absl::Status status = RecordOrReplace(report);
    if (status.ok()) {
      // A try that failed may have reached the disk all the same, and this one had no news then.
      if (report.tried && !report.told) Recorded(report.step, report.evaluation);
      if (report.recorded != nullptr) report.recorded->Set(absl::OkStatus());
    } else if (IsFinal(status)) {
      GiveUp(report, std::move(status));
    } else {
      first.Update(status);
      if (IsCommon(status)) common.Update(status);
      stuck.emplace(report.step, status);
      report.tried = true;
      report.last_try = std::move(status);
      of_stuck.push_back(std::move(report));
    }
  }
  unrecorded_.insert(unrecorded_.end(), std::make_move_iterator(of_stuck.begin()),
                     std::make_move_iterator(of_stuck.end()));
  {
    absl::MutexLock lock(&mutex_);
    unrecorded_verdicts_.clear();
    NoteVerdicts(unrecorded_);
  }
  Note("evaluations cannot be recorded", first);
  return first;
}

absl::Status Housekeeper::RecordOrReplace(Report& report) {
  absl::Status status = Record(report);
  if (!absl::IsInvalidArgument(status) || report.recorded != nullptr) return status;
  report.evaluation = FailedRow(report.evaluation, status);
  WarnIfFailed(report);
  return Record(report);
}

void Housekeeper::WarnIfFailed(const Report& report) {
  const Evaluation& evaluation = report.evaluation;
  if (evaluation.outcome != Evaluation::Outcome::kFailed) return;
  host_.listeners.Warn(
      fmt::format("evaluator '{}' failed at step {}: {}", evaluation.evaluator, report.step, evaluation.reason));
}

absl::Status Housekeeper::Record(Report& report) {
  if (!report.failure.ok()) return NoStepFor(report.step, report.failure);
  absl::StatusOr<std::optional<storage::StepRecord>> record = host_.store.manifest().Find(report.step);
  if (!record.ok()) return record.status();
  if (!record->has_value() && report.unsaved != nullptr) {
    if (absl::Status status = host_.store.RecordUnsaved(*report.unsaved); !status.ok()) return status;
    record = host_.store.manifest().Find(report.step);
    if (!record.ok()) return record.status();
  }
  if (!record->has_value()) return absl::NotFoundError(fmt::format("there is no step {}", report.step));
  const StepInfo& info = (*record)->info;
  if (info.state == StepState::kFailed && report.unsaved == nullptr) {
    return absl::NotFoundError(fmt::format("there is no step {}, for its save failed: {}", report.step, info.reason));
  }
  const bool saved_since = report.save != 0 && report.unsaved != nullptr && info.state != StepState::kUnsaved &&
                           info.state != StepState::kFailed;
  if (saved_since || (!report.attempt.empty() && report.attempt != info.attempt)) {
    const bool anew = !saved_since || info.state == StepState::kCommitted;
    const std::string what = anew ? "been saved anew" : fmt::format("a save, which is {}", StepStateName(info.state));
    return absl::NotFoundError(fmt::format("step {} has {}", report.step, what));
  }
  if (storage::MayHaveFiles(info.state)) {
    const auto attempt = storage::FromHex(info.attempt);
    if (!attempt) return absl::DataLossError(fmt::format("the record of step {} names no attempt", report.step));
    const storage::MetricReport own{.store = host_.store.id(),
                                    .step = report.step,
                                    .attempt = storage::AttemptId{*attempt},
                                    .evaluation = report.evaluation};
    const auto warn = [this](std::string_view line) { host_.listeners.Warn(line); };
    const storage::InboxResult result = storage::RecordReport(host_.files, host_.store, own, warn);
    for (const storage::MetricReport& recorded : result.recorded) Recorded(recorded.step, recorded.evaluation);
    report.told = report.told || !result.recorded.empty();
    return result.error;
  }
  if (storage::IsOutranked(info, report.evaluation)) {
    return absl::AlreadyExistsError(fmt::format("it has said before what it found on step {}", report.step));
  }
  // Held to the same size as those that go into a file.
  const absl::StatusOr<std::string> encoded = storage::EncodeMetricReport(
      {.store = host_.store.id(), .step = report.step, .attempt = {}, .evaluation = report.evaluation});
  if (!encoded.ok()) return encoded.status();
  bool news = false;
  absl::Status status = host_.store.UpdateStep(report.step, info.attempt, [&](storage::StepRecord& changed) {
    news = !storage::HasEvaluation(changed.info, report.evaluation);
    if (news) storage::ApplyEvaluation(changed.info, report.evaluation);
    return news;
  });
  if (status.ok() && news) {
    report.told = true;
    Recorded(report.step, report.evaluation);
  }
  return status;
}

void Housekeeper::Recorded(int64_t step, const Evaluation& evaluation) {
  host_.statistics.AddRecorded(1);
  {
    absl::MutexLock lock(&mutex_);
    retention_due_ = true;
  }
  host_.listeners.Evaluated(step, evaluation);
}

void Housekeeper::GiveUp(const Report& report, absl::Status why) {
  // That somebody was not asked is of no interest where the step is not, or where more is known.
  if (report.recorded == nullptr && report.evaluation.outcome == Evaluation::Outcome::kSkipped) return;
  host_.statistics.AddRejected(1);
  if (report.recorded != nullptr) return report.recorded->Set(std::move(why));
  host_.listeners.Warn(fmt::format("what evaluator '{}' says of step {} is dropped: {}", report.evaluation.evaluator,
                                   report.step, std::string(why.message())));
}

void Housekeeper::Note(std::string_view kind, const absl::Status& status) {
  if (status.ok()) {
    if (const auto found = troubles_.find(kind); found != troubles_.end()) troubles_.erase(found);
    return;
  }
  if (troubles_.insert(std::string(kind)).second) {
    host_.listeners.Warn(
        fmt::format("{}, which is tried again until it works: {}", kind, std::string(status.message())));
  }
}

}  // namespace tidemark
