#include "snapshot/housekeeping/pending_reports.h"

#include <utility>

#include "fmt/format.h"
#include "storage/io/exception_status.h"

namespace tidemark {
namespace {

constexpr size_t kAttemptBytes = 32;  // the hexadecimal digits of an attempt's id

// Why the report says that this step, in this attempt, is not to be trusted; empty: it does not.
std::string VerdictOf(const Report& report, const StepInfo& info) {
  const bool of_it = report.step == info.step && (report.attempt.empty() || report.attempt == info.attempt);
  if (!of_it || report.unsaved != nullptr || !report.failure.ok() || report.evaluation.unhealthy.empty()) return "";
  return fmt::format("{}: {}", report.evaluation.evaluator, report.evaluation.unhealthy);
}

std::list<Report> VerdictsIn(const std::list<Report>& reports) {
  std::list<Report> verdicts;
  for (const Report& report : reports) {
    if (report.evaluation.unhealthy.empty()) continue;
    verdicts.push_back(report);
    verdicts.back().recorded = nullptr;
  }
  return verdicts;
}

}  // namespace

Evaluation FailedRow(const Evaluation& evaluation, const absl::Status& why) {
  constexpr size_t kTextBytesMax = 256;
  Evaluation row;
  row.evaluator = evaluation.evaluator;
  row.worker = evaluation.worker;
  row.reported = evaluation.reported;
  row.took = evaluation.took;
  row.outcome = Evaluation::Outcome::kFailed;
  row.reason = fmt::format("its result cannot be recorded: {}", std::string(why.message()));
  row.unhealthy = evaluation.unhealthy.substr(0, kTextBytesMax);
  return row;
}

PendingReports::KnownSave* PendingReports::Find(int64_t number) {
  const auto found = saves_.find(number);
  return found == saves_.end() ? nullptr : &found->second;
}

PendingReports::KnownSave* PendingReports::NewestInFlight(int64_t step) {
  for (auto number = in_flight_.rbegin(); number != in_flight_.rend(); ++number) {
    if (KnownSave& save = saves_.at(*number); save.step == step) return &save;
  }
  return nullptr;
}

PendingReports::KnownSave& PendingReports::Know(const std::shared_ptr<const PendingSave>& pending_save) {
  // Searched only when they may be half of all known saves, so that the cost of a save does not grow with their number.
  if (saves_.size() >= forget_at_) {
    std::erase_if(saves_, [this](const auto& known) ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return !in_flight_.contains(known.first) && known.second.pending_save.expired();
    });
    forget_at_ = 2 * saves_.size() + 1;
  }
  KnownSave& save = saves_[pending_save->number()];
  save.step = pending_save->step();
  save.pending_save = pending_save;
  save.attempt.reserve(kAttemptBytes);  // now, for the end of a save must not fail
  return save;
}

void PendingReports::BeginSave(const std::shared_ptr<const PendingSave>& pending_save,
                               std::shared_ptr<const StepInfo> unsaved) {
  absl::MutexLock lock(&mutex_);
  Know(pending_save).unsaved = std::move(unsaved);
  in_flight_.insert(pending_save->number());
}

std::list<Report> PendingReports::EndSave(int64_t number, const absl::Status& status, const std::string& attempt,
                                          std::vector<std::string>* notes) {
  absl::MutexLock lock(&mutex_);
  KnownSave* save = Find(number);
  if (save == nullptr) return {};
  in_flight_.erase(number);
  // What is reported of a commit whose outcome is not known waits for its record as if it were committed.
  const bool may_be_committed = status.ok() || (absl::IsUnknown(status) && !attempt.empty());
  save->status = may_be_committed ? absl::OkStatus() : status;
  save->attempt = attempt;
  std::vector<std::string> noted = std::exchange(save->notes, {});
  if (notes->empty()) {
    *notes = std::move(noted);
  } else {
    storage::BestEffort([&] { notes->insert(notes->end(), noted.begin(), noted.end()); });
  }
  std::list<Report> held;
  held.swap(save->held);
  if (!may_be_committed) return held;
  for (Report& report : held) report.attempt = attempt;
  ready_.splice(ready_.end(), held);
  return held;
}

std::shared_ptr<const PendingSave> PendingReports::AddCommitted(const StepInfo& committed) {
  auto pending_save = std::make_shared<const PendingSave>(committed.step, /*persist=*/true);
  absl::MutexLock lock(&mutex_);
  Know(pending_save).attempt = committed.attempt;
  return pending_save;
}

std::set<int64_t> PendingReports::Unjudged() const {
  absl::MutexLock lock(&mutex_);
  std::set<int64_t> steps;
  for (const auto& [number, save] : saves_) {
    if (save.unsaved != nullptr) continue;  // the end of its pending save is an event
    const std::shared_ptr<const PendingSave> pending_save = save.pending_save.lock();
    const bool awaits = pending_save != nullptr && pending_save->expects_rows();
    if (awaits || !save.held.empty()) steps.insert(save.step);
  }
  for (const Report& report : ready_) {
    if (report.save != 0) steps.insert(report.step);
  }
  for (const Report& report : verdicts_) steps.insert(report.step);
  return steps;
}

std::string PendingReports::VerdictOn(const StepInfo& info) const {
  absl::MutexLock lock(&mutex_);
  for (const std::list<Report>* reports : {&ready_, &verdicts_}) {
    for (const Report& report : *reports) {
      if (std::string why = VerdictOf(report, info); !why.empty()) return why;
    }
  }
  return "";
}

void PendingReports::NoteOnSave(int64_t number, std::string note) {
  absl::MutexLock lock(&mutex_);
  if (in_flight_.contains(number)) saves_.at(number).notes.push_back(std::move(note));
}

void PendingReports::Add(Report report) {
  absl::MutexLock lock(&mutex_);
  KnownSave* save = report.save == 0 ? NewestInFlight(report.step) : Find(report.save);
  const bool in_flight = report.save == 0 ? save != nullptr : in_flight_.contains(report.save);
  if (save != nullptr && save->unsaved == nullptr && in_flight) {
    report.attempt.reserve(kAttemptBytes);
    save->held.push_back(std::move(report));
    return;
  }
  if (save != nullptr && save->unsaved != nullptr) {
    report.unsaved = save->unsaved;
  } else if (save != nullptr) {
    report.attempt = save->attempt;
    report.failure = save->status;
  }
  ready_.push_back(std::move(report));
}

std::list<Report> PendingReports::TakeReady(bool keep_verdicts) {
  absl::MutexLock lock(&mutex_);
  if (keep_verdicts) verdicts_.splice(verdicts_.end(), VerdictsIn(ready_));
  std::list<Report> ready;
  ready.swap(ready_);
  return ready;
}

bool PendingReports::has_ready() const {
  absl::MutexLock lock(&mutex_);
  return !ready_.empty();
}

void PendingReports::SetUnrecorded(const std::list<Report>& unrecorded) {
  std::list<Report> verdicts = VerdictsIn(unrecorded);
  absl::MutexLock lock(&mutex_);
  verdicts_.swap(verdicts);
}

std::list<Report> PendingReports::TakeHeld() {
  absl::MutexLock lock(&mutex_);
  std::list<Report> held;
  for (auto& [number, save] : saves_) held.splice(held.end(), save.held);
  return held;
}

}  // namespace tidemark
