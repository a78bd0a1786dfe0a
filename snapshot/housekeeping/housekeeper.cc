#include "snapshot/housekeeping/housekeeper.h"

#include <algorithm>
#include <iterator>
#include <system_error>
#include <utility>
#include <variant>

#include "fmt/format.h"
#include "snapshot/closed_error.h"
#include "snapshot/guarded.h"
#include "snapshot/resolved_future.h"
#include "storage/io/exception_status.h"
#include "storage/records/fact.h"

namespace tidemark {
namespace {

absl::Status OnOwnThreadError() {
  return absl::FailedPreconditionError("a callback on the housekeeping thread cannot wait for that thread");
}

}  // namespace

Housekeeper::Housekeeper(HousekeeperHost host, HousekeeperOptions options)
    : host_(std::move(host)),
      poll_interval_(options.poll_interval),
      is_holder_(host_.store.is_holder()),
      warnings_(host_.listeners),
      deletions_(host_, std::move(options.retention), pending_reports_, gate_, warnings_),
      recorder_(host_, pending_reports_, warnings_, [this] { deletions_.SetDue(); }),
      upkeep_(host_, warnings_),
      metrics_file_(host_.files, std::move(options.metrics_file), options.metrics_file_interval) {}

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
    // The first save applies the rules of retention: it may need the room of what the process before this one had yet
    // to delete. A process that only reads or restores deletes nothing by the rules, unless a request or a report
    // comes.
    saving_ = wake_ = true;
    deletions_.SetDue();
    has_work_.NotifyAll();
  }
  pending_reports_.BeginSave(pending_save, std::move(unsaved));
}

std::shared_ptr<const PendingSave> Housekeeper::PendingSaveOf(const StepInfo& committed) {
  return pending_reports_.AddCommitted(committed);
}

void Housekeeper::EndSave(SaveOutcome& outcome) {
  const std::list<Report> in_vain =
      pending_reports_.EndSave(outcome.save, outcome.status, outcome.info.attempt, &outcome.notes);
  if (outcome.persist) deletions_.SetDue();  // also after a failure, which may be for want of room
  {
    absl::MutexLock lock(&mutex_);
    save_ended_ = true;
    has_work_.NotifyAll();
  }
  for (const Report& report : in_vain) {
    storage::BestEffort([&] { recorder_.GiveUp(report, NoStepFor(report.step, outcome.status)); });
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

std::string Housekeeper::UnrecordedVerdict(const StepInfo& info) const { return pending_reports_.VerdictOn(info); }

Housekeeper::RetentionPause::RetentionPause(Housekeeper& keeper) : keeper_(keeper) { keeper_.gate_.Pause(); }

Housekeeper::RetentionPause::~RetentionPause() {
  keeper_.gate_.Resume();
  keeper_.Wake();
}

void Housekeeper::EndRetention() { gate_.End(); }

void Housekeeper::Wake() {
  absl::MutexLock lock(&mutex_);
  wake_ = true;
  has_work_.NotifyAll();
}

absl::Status Housekeeper::Ask(bool with_retention) {
  if (OnOwnThread()) return OnOwnThreadError();
  auto done = std::make_shared<Promise>();
  const Future future = done->future();
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return ClosedError();
    requests_.push_back({.with_retention = with_retention, .done = std::move(done)});
    has_work_.NotifyAll();
  }
  return future.Wait();
}

absl::Status Housekeeper::Flush() { return Ask(/*with_retention=*/false); }

absl::Status Housekeeper::Tidy() { return Ask(/*with_retention=*/true); }

absl::StatusOr<std::vector<RetentionDecision>> Housekeeper::Plan() {
  // Called from RetentionOptions::keep, the plan would call that function again.
  if (OnOwnThread()) return OnOwnThreadError();
  absl::StatusOr<std::vector<RetentionDecision>> plan;
  const absl::Status status = Run([&](storage::Store&) {
    plan = deletions_.Plan();
    return plan.status();
  });
  if (!status.ok()) return status;
  return plan;
}

absl::Status Housekeeper::Delete(int64_t step, const std::string& reason) {
  return Run([&](storage::Store&) { return deletions_.Delete(step, reason); });
}

absl::StatusOr<std::vector<int64_t>> Housekeeper::DiscardAfter(int64_t step, const std::string& reason,
                                                               const std::function<void()>& before_files_go) {
  std::vector<int64_t> deleted;
  absl::Status status =
      Run([&](storage::Store&) { return deletions_.DiscardAfter(step, reason, before_files_go, &deleted); });
  if (!status.ok()) return status;
  return deleted;
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
  if (stopping_ || save_ended_ || wake_ || deletions_.HasWork() || pending_reports_.has_ready() || !tasks_.empty())
    return true;
  // A Tidy waits until no restore runs.
  const bool paused = gate_.paused();
  return std::any_of(requests_.begin(), requests_.end(),
                     [&](const Request& request) { return !paused || !request.with_retention; });
}

void Housekeeper::NextRound(Round& round) {
  absl::MutexLock lock(&mutex_);
  const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return HasWork(); };
  const absl::Duration until_next = std::min(poll_interval_ - since_poll_.elapsed(), metrics_file_.until_due());
  has_work_.Await(&mutex_, has_work, Deadline::After(until_next));
  round.last = stopping_;
  round.save_ended = std::exchange(save_ended_, false);
  wake_ = false;
  round.tasks.swap(tasks_);
  round.requests.swap(requests_);
  if (gate_.paused() && !round.last) AskAgain(round.requests);
  round.with_retention = std::any_of(round.requests.begin(), round.requests.end(),
                                     [](const Request& request) { return request.with_retention; });
  round.reports = pending_reports_.TakeReady(/*keep_verdicts=*/!round.last);  // the last of all: it needs memory
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
  lost_ = recorder_.RejectUnrecorded();
}

void Housekeeper::Fail(Round& round, const absl::Status& why) {
  // Not at once again, for there is work and may be no memory for a while.
  constexpr absl::Duration kPause = absl::Milliseconds(100);
  for (const Task& task : round.tasks) task.done->Set(why);
  for (const Request& request : round.requests) request.done->Set(why);
  recorder_.KeepForNextTry(round.reports, why);
  deletions_.SetDue();
  absl::MutexLock lock(&mutex_);
  const auto stopping = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_; };
  if (!round.last) has_work_.Await(&mutex_, stopping, Deadline::After(kPause));
}

void Housekeeper::Do(Round& round) {
  for (; !round.tasks.empty(); round.tasks.pop_front()) {
    const Task& task = round.tasks.front();
    task.done->Set(Guarded("a task of the housekeeping thread", [&] { return task.run(host_.store); }));
  }
  absl::Status recorded = recorder_.Record(round.reports, round.last);
  absl::Status carried_out;
  if (!round.requests.empty() || round.last || deletions_.more_requests() || since_poll_.elapsed() >= poll_interval_) {
    since_poll_ = Stopwatch();
    // A thousand ranks do not look every second.
    const absl::Status looked = is_holder_ || !round.requests.empty() ? TakeInNews() : absl::OkStatus();
    // The disk may have refused it only for a moment, or its entry may be there all the same.
    if (round.last && recorder_.has_unrecorded()) recorded = recorder_.Record(round.reports, round.last);
    recorded.Update(looked);
    if (is_holder_) carried_out = deletions_.CarryOutRequests();
    // Its callers wait for reports only, and not for what may take long.
    std::erase_if(round.requests, [&](const Request& request) {
      if (!request.with_retention) request.done->Set(recorded);
      return !request.with_retention;
    });
    if (is_holder_) upkeep_.Run(round.last);
  }
  absl::Status tidied = round.with_retention ? host_.store.CheckPlace() : absl::OkStatus();
  tidied.Update(recorded);
  tidied.Update(carried_out);
  if (is_holder_) tidied.Update(deletions_.ApplyRules(/*at_once=*/round.with_retention));
  if (round.with_retention && gate_.ended()) tidied.Update(ClosedError());
  if (tidied.ok() && !round.last && deletions_.unfinished()) {
    absl::MutexLock lock(&mutex_);
    AskAgain(round.requests);
  }
  warnings_.Note(
      "the statistics' file cannot be written",
      metrics_file_.Update(round.with_retention || round.save_ended || round.last, host_.statistics.changes(),
                           [this] { return PrometheusText(host_.read_statistics()); }));
  for (; !round.requests.empty(); round.requests.pop_front()) round.requests.front().done->Set(tidied);
}

absl::Status Housekeeper::TakeInNews() {
  const absl::StatusOr<std::vector<storage::Fact>> news = host_.store.Look();
  warnings_.Note("what other processes have recorded cannot be read", news.status());
  if (!news.ok()) return news.status();
  for (const storage::Fact& fact : *news) {
    if (const auto* report = std::get_if<storage::EvaluationFact>(&fact)) recorder_.TakeIn(*report);
    if (const auto* pin = std::get_if<storage::PinFact>(&fact); pin != nullptr && !pin->pinned) deletions_.SetDue();
  }
  return absl::OkStatus();
}

// A Tidy waits until retention has nothing left to do.
void Housekeeper::AskAgain(std::list<Request>& requests) {
  for (auto request = requests.begin(); request != requests.end();) {
    const auto next = std::next(request);
    if (request->with_retention) requests_.splice(requests_.end(), requests, request);
    request = next;
  }
}

}  // namespace tidemark
