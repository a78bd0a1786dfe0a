#include "snapshot/listeners.h"

#include <utility>

#include "snapshot/guarded.h"
#include "storage/io/printable_text.h"

namespace tidemark {

Listeners::Listeners(std::shared_ptr<CheckpointObserver> observer)
    : observer_(observer != nullptr ? std::move(observer) : std::make_shared<CheckpointObserver>()) {}

void Listeners::Call(std::string_view name, const std::function<void()>& call) const {
  storage::BestEffort([&] {
    const absl::Status status = Guarded(name, call);
    if (!status.ok()) Warn(std::string(status.message()));
  });
}

void Listeners::Committed(const StepInfo& info) const {
  Call("CheckpointObserver::Committed", [&] { observer_->Committed(info); });
}

void Listeners::Failed(int64_t step, const absl::Status& status) const {
  Call("CheckpointObserver::Failed", [&] { observer_->Failed(step, status); });
}

void Listeners::Deleted(int64_t step, std::string_view reason) const {
  Call("CheckpointObserver::Deleted", [&] { observer_->Deleted(step, reason); });
}

void Listeners::Evaluated(int64_t step, const Evaluation& evaluation) const {
  Call("CheckpointObserver::Evaluated", [&] { observer_->Evaluated(step, evaluation); });
}

void Listeners::Exported(int64_t step, std::string_view path) const {
  Call("CheckpointObserver::Exported", [&] { observer_->Exported(step, path); });
}

void Listeners::SaveLine(const std::string& line) const {
  Call("CheckpointObserver::SaveLine", [&] { observer_->SaveLine(storage::PrintableText(line)); });
}

void Listeners::Warn(std::string_view text) const {
  try {
    const std::string line = storage::PrintableText(text);
    const absl::Status status = Guarded("CheckpointObserver::Warning", [&] { observer_->Warning(line); });
    if (!status.ok()) CheckpointObserver().Warning(line);
  } catch (...) {
    storage::BestEffort(
        [] { CheckpointObserver().Warning("a warning was dropped, because the system has no memory for it"); });
  }
}

}  // namespace tidemark
