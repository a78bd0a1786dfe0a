#include "snapshot/report_book.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"

namespace tidemark {

std::string VerdictOn(const StepInfo& info, const Report& report) {
  const bool of_it = report.step == info.step && (report.attempt.empty() || report.attempt == info.attempt);
  if (!of_it || report.unsaved != nullptr || !report.failure.ok() || report.evaluation.unhealthy.empty()) return "";
  return fmt::format("{}: {}", report.evaluation.evaluator, report.evaluation.unhealthy);
}

Evaluation FailedRow(const Evaluation& evaluation, const absl::Status& why) {
  constexpr size_t kTextBytesMax = 256;
  Evaluation row;
  row.evaluator = evaluation.evaluator;
  row.worker = evaluation.worker;
  row.reported = evaluation.reported;
  row.took = evaluation.took;
  row.outcome = Evaluation::Outcome::kFailed;
  row.reason = fmt::format("what it said cannot be recorded: {}", std::string(why.message()));
  row.unhealthy = evaluation.unhealthy.substr(0, kTextBytesMax);
  return row;
}

ReportBook::KnownSave* ReportBook::Find(int64_t number) {
  const auto found =
      std::find_if(saves_.begin(), saves_.end(), [number](const KnownSave& save) { return save.number == number; });
  return found == saves_.end() ? nullptr : &*found;
}

ReportBook::KnownSave* ReportBook::NewestInFlight(int64_t step) {
  const auto found = std::find_if(saves_.rbegin(), saves_.rend(),
                                  [step](const KnownSave& save) { return save.step == step && !save.settled; });
  return found == saves_.rend() ? nullptr : &*found;
}

void ReportBook::BeginSave(const std::shared_ptr<const SaveTicket>& ticket, std::shared_ptr<const StepInfo> unsaved) {
  std::erase_if(saves_, [](const KnownSave& save) { return save.settled && save.ticket.expired(); });
  KnownSave& save = saves_.emplace_back();
  save.number = ticket->number();
  save.step = ticket->step();
  save.ticket = ticket;
  save.unsaved = std::move(unsaved);
}

std::vector<Report> ReportBook::EndSave(int64_t number, const absl::Status& status, const std::string& attempt,
                                        std::vector<std::string>* notes) {
  KnownSave* save = Find(number);
  if (save == nullptr) return {};
  save->settled = true;
  save->status = status;
  save->attempt = attempt;
  const std::vector<std::string> noted = std::exchange(save->notes, {});
  notes->insert(notes->end(), noted.begin(), noted.end());
  std::vector<Report> held = std::exchange(save->held, {});
  if (!status.ok()) return held;
  for (Report& report : held) {
    report.attempt = attempt;
    ready_.push_back(std::move(report));
  }
  return {};
}

std::shared_ptr<const SaveTicket> ReportBook::AddCommitted(const StepInfo& committed) {
  auto ticket = std::make_shared<const SaveTicket>(committed.step, /*persist=*/true);
  BeginSave(ticket, nullptr);
  saves_.back().settled = true;
  saves_.back().attempt = committed.attempt;
  return ticket;
}

std::set<int64_t> ReportBook::AwaitingRows() const {
  std::set<int64_t> steps;
  for (const KnownSave& save : saves_) {
    if (save.unsaved != nullptr) continue;  // the end of its ticket is an event
    const std::shared_ptr<const SaveTicket> ticket = save.ticket.lock();
    const bool awaits = ticket != nullptr && ticket->expects_rows();
    if (awaits || !save.held.empty()) steps.insert(save.step);
  }
  for (const Report& report : ready_) {
    if (report.save != 0) steps.insert(report.step);
  }
  return steps;
}

void ReportBook::NoteOnSave(int64_t number, std::string note) {
  KnownSave* save = Find(number);
  if (save != nullptr && !save->settled) save->notes.push_back(std::move(note));
}

void ReportBook::Add(Report report) {
  KnownSave* save = report.save == 0 ? NewestInFlight(report.step) : Find(report.save);
  if (save != nullptr && save->unsaved == nullptr && !save->settled) {
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

std::deque<Report> ReportBook::TakeReady() { return std::exchange(ready_, {}); }

std::vector<Report> ReportBook::TakeHeld() {
  std::vector<Report> held;
  for (KnownSave& save : saves_) {
    for (Report& report : save.held) held.push_back(std::move(report));
    save.held.clear();
  }
  return held;
}

}  // namespace tidemark
