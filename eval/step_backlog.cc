#include "eval/step_backlog.h"

#include <algorithm>

namespace tidemark {

bool StepBacklog::Filter::IsDone(const StepInfo& info) const {
  return std::any_of(info.evaluations.begin(), info.evaluations.end(), [&](const Evaluation& row) {
    const bool counts = !again_if_failed || row.outcome != Evaluation::Outcome::kFailed;
    return row.evaluator == evaluator && counts;
  });
}

absl::Status StepBacklog::Update(const storage::StepCatalog& catalog, bool changed, absl::Time now) {
  unread_changes_ = unread_changes_ || changed;
  if (!all_read_ || (unread_changes_ && now - *all_read_ >= kFullReadInterval)) return ReadAll(catalog, now);
  const uint64_t last = catalog.last_sequence();
  if (last == read_sequence_) return absl::OkStatus();
  // Most often new attempts are at steps beyond those that we know. If these do not account for every number, a save
  // has failed, or is at an earlier step. The record of a failed save does not account for its number, because the next
  // process gives that number again.
  uint64_t found = 0;
  int64_t highest = read_step_;
  absl::Status status = catalog.ForEach(
      [&](const storage::StepRecord& record) {
        // This step is known already. The range begins with it and not with the next one, because INT64_MAX has no next
        // step.
        if (record.info.step == read_step_) return true;
        const uint64_t sequence = record.info.sequence;
        const bool counts = record.info.state != StepState::kFailed;
        if (counts && sequence > read_sequence_ && sequence <= last) ++found;
        highest = record.info.step;
        TakeIn(record);
        return true;
      },
      std::max<int64_t>(read_step_, 0));
  if (!status.ok()) return status;
  if (last < read_sequence_ || found != last - read_sequence_) return ReadAll(catalog, now);
  read_sequence_ = last;
  read_step_ = highest;
  return absl::OkStatus();
}

absl::Status StepBacklog::ReadAll(const storage::StepCatalog& catalog, absl::Time now) {
  const uint64_t last = catalog.last_sequence();
  steps_.clear();
  int64_t highest = -1;
  absl::Status status = catalog.ForEach([&](const storage::StepRecord& record) {
    highest = record.info.step;
    TakeIn(record);
    return true;
  });
  if (!status.ok()) return status;
  read_sequence_ = last;
  read_step_ = highest;
  unread_changes_ = false;
  all_read_ = now;
  return absl::OkStatus();
}

void StepBacklog::TakeIn(const storage::StepRecord& record) {
  const auto note_last = [](std::optional<Step>& last, const Step& step) {
    if (!last || last->sequence < step.sequence) last = step;
  };
  const StepInfo& info = record.info;
  const auto attempt = info.state == StepState::kCommitted ? storage::FromHex(info.attempt) : std::nullopt;
  const Step step{.step = info.step,
                  .attempt = attempt ? storage::AttemptId{*attempt} : storage::AttemptId{},
                  .sequence = info.sequence};
  if (attempt) note_last(last_saved_, step);
  if (info.state != StepState::kFailed) highest_seen_ = std::max(highest_seen_.value_or(info.step), info.step);
  if (info.step < filter_.begin_step || info.step % filter_.every_steps != 0) return;
  if (attempt) note_last(last_asked_for_, step);
  if (filter_.IsDone(info)) {
    highest_done_ = std::max(highest_done_.value_or(info.step), info.step);
    return;
  }
  if (attempt) steps_[info.step] = step;
}

std::optional<StepBacklog::Step> StepBacklog::FirstAfter(std::optional<int64_t> step) const {
  const auto found = step ? steps_.upper_bound(*step) : steps_.begin();
  if (found == steps_.end()) return std::nullopt;
  return found->second;
}

void StepBacklog::Done(const Step& step) {
  highest_done_ = std::max(highest_done_.value_or(step.step), step.step);
  Drop(step);
}

void StepBacklog::Drop(const Step& step) {
  const auto found = steps_.find(step.step);
  if (found != steps_.end() && found->second.attempt == step.attempt) steps_.erase(found);
}

}  // namespace tidemark
