#include "snapshot/report_book.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"

namespace tidemark {

std::string VerdictOn(const StepInfo& info, const Report& report) {
  const bool of_it = report.step == info.step && (report.attempt.empty() || report.attempt == info.attempt);
  if (!of_it || report.unsaved != nullptr || report.evaluation.unhealthy.empty()) return "";
  return fmt::format("{}: {}", report.evaluation.evaluator, report.evaluation.unhealthy);
}

ReportBook::OpenSave* ReportBook::Newest(int64_t step) {
  const auto found =
      std::find_if(saves_.rbegin(), saves_.rend(), [step](const OpenSave& save) { return save.step == step; });
  return found == saves_.rend() ? nullptr : &*found;
}

void ReportBook::BeginSave(int64_t step, std::shared_ptr<const StepInfo> unsaved) {
  saves_.push_back({.step = step, .unsaved = std::move(unsaved), .held = {}, .notes = {}});
}

std::vector<Report> ReportBook::EndSave(int64_t step, bool persist, const absl::Status& status,
                                        const std::string& attempt, std::vector<std::string>* notes) {
  const auto found = std::find_if(saves_.begin(), saves_.end(), [&](const OpenSave& save) {
    return save.step == step && (save.unsaved == nullptr) == persist;
  });
  if (found == saves_.end()) return {};
  OpenSave save = std::move(*found);
  saves_.erase(found);
  notes->insert(notes->end(), save.notes.begin(), save.notes.end());
  if (!status.ok()) return std::move(save.held);
  for (Report& report : save.held) {
    report.attempt = attempt;
    ready_.push_back(std::move(report));
  }
  return {};
}

void ReportBook::NoteOnSave(int64_t step, std::string note) {
  if (OpenSave* save = Newest(step)) save->notes.push_back(std::move(note));
}

void ReportBook::Add(Report report) {
  OpenSave* save = Newest(report.step);
  if (save != nullptr && save->unsaved == nullptr) {
    save->held.push_back(std::move(report));
    return;
  }
  if (save != nullptr) report.unsaved = save->unsaved;
  ready_.push_back(std::move(report));
}

std::deque<Report> ReportBook::TakeReady() { return std::exchange(ready_, {}); }

std::vector<Report> ReportBook::TakeHeld() {
  std::vector<Report> held;
  for (OpenSave& save : saves_) {
    for (Report& report : save.held) held.push_back(std::move(report));
    save.held.clear();
  }
  return held;
}

}  // namespace tidemark
