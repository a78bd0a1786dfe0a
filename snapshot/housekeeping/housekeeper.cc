#include "snapshot/housekeeping/housekeeper.h"

#include <algorithm>
#include <map>
#include <system_error>
#include <utility>

#include "fmt/format.h"
#include "snapshot/guarded.h"
#include "snapshot/resolved_future.h"
#include "storage/io/exception_status.h"

namespace tidemark {
namespace {

// Errors that another try cannot mend.
bool IsFinal(const absl::Status& s) { return IsNotFound(s) || IsInvalidArgument(s) || IsAlreadyExists(s); }

// Errors of the disk or the store as a whole, which other reports would meet as well.
bool IsCommon(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || absl::IsInternal(status) || absl::IsFailedPrecondition(status);
}

// Whether the report is not tried again after this error. kFailedPrecondition: the store was moved or replaced, or
// another process holds it. That may last for ever, so a caller who waits is told. A report for which no caller waits
// stays, since the store may be moved back.
bool IsRefused(const Report& report, const absl::Status& status) {
  return IsFinal(status) || (absl::IsFailedPrecondition(status) && report.recorded != nullptr);
}

// While this thread does what it does again after a failure: what that has warned of.
thread_local RepeatedWarnings* repeated_warnings = nullptr;

absl::Status OnOwnThreadError() {
  return absl::FailedPreconditionError("a callback on the housekeeping thread cannot wait for that thread");
}

}  // namespace

bool IsRepeatedWarning(std::string_view line) {
  return repeated_warnings != nullptr && !repeated_warnings->IsNew(line);
}

absl::Status ClosedError() { return absl::FailedPreconditionError("the checkpointer has been closed"); }

Housekeeper::Housekeeper(HousekeeperHost host, HousekeeperOptions options)
    : host_(std::move(host)),
      options_(std::move(options)),
      is_holder_(host_.store.is_holder()),
      retention_(host_.files, host_.store, options_.retention,
                 [this](std::string_view line) {
                   if (retention_warnings_.IsNew(line)) host_.listeners.Warn(line);
                 }),
      metrics_file_(host_.files, options_.metrics_file, options_.metrics_file_interval) {}

absl::StatusOr<std::unique_ptr<Housekeeper>> Housekeeper::Start(HousekeeperHost host, HousekeeperOptions options) {
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

void Housekeeper::BeginSave(const std::shared_ptr<const PendingSave>& pending_save,
                            std::shared_ptr<const StepInfo> unsaved) {
  absl::MutexLock lock(&mutex_);
  if (unsaved == nullptr && !saving_) {
    // What the process before this one had yet to delete, or now may be deleted: it may take the room that this save
    // needs. Not before there is a save, for who only looks, or picks a step to go on from, lets nothing go; but where
    // a person asks for a deletion, or a worker reports, the rules are looked at all the same.
    saving_ = retention_due_ = wake_ = true;
    has_work_.NotifyAll();
  }
  pending_reports_.BeginSave(pending_save, std::move(unsaved));
}

std::shared_ptr<const PendingSave> Housekeeper::PendingSaveOf(const StepInfo& committed) {
  absl::MutexLock lock(&mutex_);
  return pending_reports_.AddCommitted(committed);
}

void Housekeeper::EndSave(SaveOutcome& outcome) {
  std::list<Report> in_vain;
  {
    absl::MutexLock lock(&mutex_);
    in_vain = pending_reports_.EndSave(outcome.save, outcome.status, outcome.info.attempt, &outcome.notes);
    save_ended_ = true;
    // Also after a failure, which may be for want of room.
    retention_due_ = retention_due_ || outcome.persist;
    has_work_.NotifyAll();
  }
  for (const Report& report : in_vain) {
    storage::BestEffort([&] { GiveUp(report, NoStepFor(report.step, outcome.status)); });
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
      pending_reports_.Add(std::move(report));
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

void Housekeeper::Evaluated(const PendingSave& save, Evaluation evaluation) {
  const bool skipped = evaluation.outcome == Evaluation::Outcome::kSkipped;
  storage::BestEffort([&] {
    if (!skipped) return host_.statistics.AddBackground("evaluate", evaluation.took);
    host_.statistics.AddSkipped(fmt::format("evaluator {}: {}", evaluation.evaluator, ReasonClass(evaluation.reason)));
    absl::MutexLock lock(&mutex_);
    pending_reports_.NoteOnSave(save.number(), fmt::format("{} skipped: {}", evaluation.evaluator, evaluation.reason));
  });
  try {
    absl::MutexLock lock(&mutex_);
    if (!stopping_) {
      Report report;
      report.step = save.step();
      report.evaluation = std::move(evaluation);
      report.save = save.number();
      pending_reports_.Add(std::move(report));
      has_work_.NotifyAll();
    }
    save.RowGiven();
  } catch (...) {
    save.RowGiven();  // none will come, so the step is not to wait for it
    host_.listeners.Warn("the result of an evaluator is dropped, because the system has no memory for it");
  }
}

std::string Housekeeper::UnrecordedVerdict(const StepInfo& info) const {
  absl::MutexLock lock(&mutex_);
  for (const std::list<Report>* reports : {&pending_reports_.ready(), &unrecorded_verdicts_}) {
    for (const Report& report : *reports) {
      if (std::string why = VerdictOn(info, report); !why.empty()) return why;
    }
  }
  return "";
}

void Housekeeper::NoteVerdicts(const std::list<Report>& unrecorded) {
  std::list<Report> verdicts;
  for (const Report& report : unrecorded) {
    if (report.evaluation.unhealthy.empty()) continue;
    verdicts.push_back(report);
    verdicts.back().recorded = nullptr;
  }
  unrecorded_verdicts_.splice(unrecorded_verdicts_.end(), verdicts);
}

absl::Status Housekeeper::Ask(bool everything) {
  if (OnOwnThread()) return OnOwnThreadError();
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
  // Called from RetentionOptions::keep, the plan would call that function again.
  if (OnOwnThread()) return OnOwnThreadError();
  absl::StatusOr<std::vector<RetentionDecision>> plan;
  const absl::Status status = Run([&](storage::Store&) {
    plan = retention_.Plan(host_.claims, [this] { return Unjudged(); });
    return plan.status();
  });
  if (!status.ok()) return status;
  return plan;
}

absl::Status Housekeeper::Run(std::function<absl::Status(storage::Store&)> task) {
  if (OnOwnThread()) return task(host_.store);  // in a callback, which may be one that a deletion calls
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
      pending_reports_.has_ready() || !tasks_.empty())
    return true;
  if (pauses_ > 0) {
    // Who asks for everything waits until deletion may go on.
    return std::any_of(requests_.begin(), requests_.end(), [](const Request& request) { return !request.everything; });
  }
  return !requests_.empty();
}

void Housekeeper::NextRound(Round& round) {
  absl::MutexLock lock(&mutex_);
  const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return HasWork(); };
  const absl::Duration until_next = std::min(options_.poll_interval - since_poll_.elapsed(), metrics_file_.until_due());
  has_work_.Await(&mutex_, has_work, Deadline::After(until_next));
  round.last = stopping_;
  round.save_ended = std::exchange(save_ended_, false);
  wake_ = false;
  round.tasks.swap(tasks_);
  round.requests.swap(requests_);
  for (auto request = round.requests.begin(); request != round.requests.end();) {
    const auto next = std::next(request);
    const bool waits = request->everything && pauses_ > 0 && !round.last;
    if (waits) requests_.splice(requests_.end(), round.requests, request);
    request = next;
  }
  round.everything = std::any_of(round.requests.begin(), round.requests.end(),
                                 [](const Request& request) { return request.everything; });
  // The last of all, because it needs memory. Without it, verdicts stay where UnrecordedVerdict finds them: in the
  // book.
  if (!round.last) NoteVerdicts(pending_reports_.ready());
  round.reports = pending_reports_.TakeReady();
}

// A round that throws must not end the thread, and nothing may wait for that round for ever.
void Housekeeper::Loop() {
  for (;;) {
    Round round;
    try {
      NextRound(round);
      Do(round);
    } catch (...) {
      Fail(round, storage::ExceptionStatus("the work after a save"));
    }
    if (round.last) break;
  }
  SettleTheRest();
}

void Housekeeper::Fail(Round& round, const absl::Status& why) {
  // Not at once again, for there is work and may be no memory for a while.
  constexpr absl::Duration kPause = absl::Milliseconds(100);
  for (const Task& task : round.tasks) task.done->Set(why);
  for (const Request& request : round.requests) request.done->Set(why);
  for (Report& report : round.reports) report.last_try = why;
  unrecorded_.splice(unrecorded_.end(), round.reports);
  absl::MutexLock lock(&mutex_);
  deleting_ = false;
  retention_due_ = true;
  const auto stopping = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_; };
  if (!round.last) has_work_.Await(&mutex_, stopping, Deadline::After(kPause));
}

void Housekeeper::Do(Round& round) {
  for (; !round.tasks.empty(); round.tasks.pop_front()) {
    const Task& task = round.tasks.front();
    task.done->Set(Guarded("a task of the housekeeping thread", [&] { return task.run(host_.store); }));
  }
  absl::Status recorded = RecordReports(round.reports, round.last);
  absl::Status carried_out;
  if (!round.requests.empty() || round.last || more_requests_ || since_poll_.elapsed() >= options_.poll_interval) {
    since_poll_ = Stopwatch();
    // A thousand ranks do not look every second.
    const absl::Status collected = is_holder_ || !round.requests.empty() ? TakeInNews() : absl::OkStatus();
    // The disk may have refused it only for a moment, or its entry may be there all the same.
    if (round.last && !unrecorded_.empty()) recorded = RecordReports(round.reports, round.last);
    recorded.Update(collected);
    if (is_holder_) carried_out = CarryOutRequests();
    // Its callers wait for reports only, and not for what may take long.
    std::erase_if(round.requests, [&](const Request& request) {
      if (!request.everything) request.done->Set(recorded);
      return !request.everything;
    });
    if (is_holder_) KeepStore(round.last);
  }
  bool retention = false;
  bool paused = false;
  {
    absl::MutexLock lock(&mutex_);
    paused = pauses_ > 0;
    retention = is_holder_ && (round.everything || retention_due_) && !paused && !retention_ended_;
    deleting_ = retention;
    if (!paused) retention_due_ = false;
  }
  absl::Status everything = round.everything ? host_.store.CheckPlace() : absl::OkStatus();
  everything.Update(recorded);
  everything.Update(carried_out);
  if (retention) everything.Update(ApplyRetention());
  if (round.everything && RetentionHasEnded()) everything.Update(ClosedError());
  if (everything.ok() && !round.last && (paused || retention_.unfinished() || more_requests_)) {
    AskAgain(round.requests);
  }
  Note("the statistics' file cannot be written",
       metrics_file_.Update(round.everything || round.save_ended || round.last, host_.statistics.changes(),
                            [this] { return PrometheusText(host_.read_statistics()); }));
  for (; !round.requests.empty(); round.requests.pop_front()) round.requests.front().done->Set(everything);
}

// What an earlier process left is removed once. Room for the next entries is made once in a poll interval: an append
// that finds none takes longer, and fails on a full disk.
void Housekeeper::KeepStore(bool last) {
  if (!swept_) {
    sweep_warnings_.Begin();
    repeated_warnings = &sweep_warnings_;
    const absl::Status swept = Guarded("the sweep", [&] { return host_.store.SweepUncommitted(); });
    repeated_warnings = nullptr;
    swept_ = swept.ok();
    Note("files of unfinished saves cannot be removed", swept);
  }
  const absl::Status maintained = host_.store.Maintain();
  // The next process may find a full disk. Then its deletions have what this one leaves.
  if (!last) Note("the journal cannot be maintained", maintained);
}

void Housekeeper::SettleTheRest() {
  // The entry of one that failed may have reached the disk all the same. The next holder finds out.
  if (!unrecorded_.empty()) {
    const absl::Status& why = unrecorded_.front().last_try;
    lost_ = why;  // where there is no memory for more
    storage::BestEffort([&] {
      lost_ = absl::Status(why.code(), fmt::format("{} evaluations could not be recorded, and may be lost: {}",
                                                   unrecorded_.size(), std::string(why.message())));
      host_.listeners.Warn(std::string(lost_.message()));
    });
  }
  host_.statistics.AddRejected(unrecorded_.size());
  for (; !unrecorded_.empty(); unrecorded_.pop_front()) {
    const Report& report = unrecorded_.front();
    if (report.recorded != nullptr) report.recorded->Set(report.last_try);
  }
  std::list<Report> held;
  {
    absl::MutexLock lock(&mutex_);
    held = pending_reports_.TakeHeld();
  }
  for (const Report& report : held) storage::BestEffort([&] { GiveUp(report, ClosedError()); });
}

// Who asked for everything waits for the rounds in which retention goes on, or may go on again.
void Housekeeper::AskAgain(std::list<Request>& requests) {
  absl::MutexLock lock(&mutex_);
  for (auto request = requests.begin(); request != requests.end();) {
    const auto next = std::next(request);
    if (request->everything) requests_.splice(requests_.end(), requests, request);
    request = next;
  }
}

absl::Status Housekeeper::Settle(std::list<Report>& together, const absl::Status& thrown, std::list<Report>& failed) {
  absl::Status first;
  while (!together.empty()) {
    Report& report = together.front();
    absl::Status status = thrown.ok() ? report.last_try : thrown;
    if (status.ok()) {
      // A try that failed may have reached the disk all the same, and this one had no news then.
      if (report.tried && !report.told) Recorded(report.step, report.evaluation);
      if (report.recorded != nullptr) report.recorded->Set(absl::OkStatus());
      together.pop_front();
    } else if (IsRefused(report, status)) {
      if (!IsFinal(status)) first.Update(status);
      storage::BestEffort([&] { GiveUp(report, std::move(status)); });
      together.pop_front();
    } else {
      first.Update(status);
      report.tried = true;
      report.last_try = std::move(status);
      failed.splice(failed.end(), together, together.begin());
    }
  }
  return first;
}

absl::Status Housekeeper::RecordReports(std::list<Report>& fresh, bool last) {
  for (const Report& report : fresh) storage::BestEffort([&] { WarnIfFailed(report); });
  std::list<Report> reports;
  reports.swap(unrecorded_);
  reports.splice(reports.end(), fresh);
  absl::Status first;
  absl::Status common;
  std::map<int64_t, absl::Status> stuck;  // by step, of which a later row must not overtake an earlier one
  std::list<Report> of_stuck;
  while (!reports.empty()) {
    Report& report = reports.front();
    const auto found = stuck.find(report.step);
    const bool is_stuck = found != stuck.end();
    // Once the disk refuses, the rest would hear the same from it, or be the first when it is tried again.
    if (is_stuck || (!common.ok() && !last)) {
      const absl::Status& why = is_stuck ? found->second : common;
      if (IsRefused(report, why)) {
        storage::BestEffort([&] { GiveUp(report, why); });
        reports.pop_front();
        continue;
      }
      report.last_try = why;
      std::list<Report>& waiting = is_stuck ? of_stuck : unrecorded_;
      waiting.splice(waiting.end(), reports, reports.begin());
      continue;
    }
    const int64_t step = report.step;
    std::list<Report> together;
    together.splice(together.end(), reports, reports.begin(),
                    std::next(reports.begin(), static_cast<std::ptrdiff_t>(TogetherWithFirst(reports))));
    const absl::Status thrown = Guarded("the record of an evaluation", [&] { RecordOrReplace(together); });
    const absl::Status status = Settle(together, thrown, of_stuck);
    if (status.ok()) continue;
    first.Update(status);
    if (IsCommon(status)) common.Update(status);
    try {
      stuck.emplace(step, status);
    } catch (...) {
      // Without a note of the step, the later ones of it would overtake this one.
      for (Report& later : reports) later.last_try = status;
      of_stuck.splice(of_stuck.end(), reports);
    }
  }
  unrecorded_.splice(unrecorded_.end(), of_stuck);
  {
    absl::MutexLock lock(&mutex_);
    std::list<Report> before;
    before.swap(unrecorded_verdicts_);
    try {
      NoteVerdicts(unrecorded_);
    } catch (...) {
      unrecorded_verdicts_.swap(before);  // among them are those that are left
    }
  }
  Note("evaluations cannot be recorded", unrecorded_.empty() ? absl::OkStatus() : first);
  return first;
}

void Housekeeper::Note(std::string_view kind, const absl::Status& status) {
  if (status.ok()) {
    if (const auto found = troubles_.find(kind); found != troubles_.end()) troubles_.erase(found);
    return;
  }
  storage::BestEffort([&] {
    if (!troubles_.insert(std::string(kind)).second) return;
    host_.listeners.Warn(
        fmt::format("{}, which is tried again until it works: {}", kind, std::string(status.message())));
  });
}

}  // namespace tidemark
