// What a housekeeper takes in from the store's journal: workers' reports, and what people ask.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "snapshot/housekeeping/housekeeper.h"
#include "storage/io/printable_text.h"
#include "storage/records/fact.h"

namespace tidemark {
namespace {

// Steps that a warning names.
constexpr size_t kNamedSteps = 20;

struct Reply {
  const storage::DeletionRequestFact* request = nullptr;
  std::string refused;  // empty: the step is deleted
};

// Records the answers, and warns of the refusals among those that are recorded: one line for all steps of one asker
// that were refused for the same reason.
absl::Status AnswerRequests(storage::Store& store, const Listeners& listeners, const std::vector<Reply>& replies) {
  std::vector<storage::AnswerFact> answers;
  for (const Reply& reply : replies) answers.push_back({.id = reply.request->id, .refused = reply.refused});
  size_t answered = 0;
  const absl::Status status = store.Answer(answers, &answered);
  std::map<std::pair<std::string, std::string>, std::vector<int64_t>> refusals;  // by asker and reason
  for (const Reply& reply : std::span(replies).first(answered)) {
    if (!reply.refused.empty()) refusals[{reply.request->asker, reply.refused}].push_back(reply.request->step);
  }
  for (const auto& [refusal, steps] : refusals) {
    const size_t named = std::min(steps.size(), kNamedSteps);
    std::string text = fmt::format("{}", fmt::join(std::span(steps).first(named), ", "));
    if (steps.size() > named) text += fmt::format(" and {} more", steps.size() - named);
    listeners.Warn(fmt::format("refused to delete step{} {}, requested by {}: {}", steps.size() == 1 ? "" : "s", text,
                               storage::PrintableText(refusal.first), refusal.second));
  }
  return status;
}

}  // namespace

absl::Status Housekeeper::TakeInNews() {
  const absl::StatusOr<std::vector<storage::Fact>> news = host_.store.Look();
  Note("what other processes have recorded cannot be read", news.status());
  if (!news.ok()) return news.status();
  for (const storage::Fact& fact : *news) {
    if (const auto* report = std::get_if<storage::EvaluationFact>(&fact)) TakeInReport(*report);
    if (const auto* pin = std::get_if<storage::PinFact>(&fact); pin != nullptr && !pin->pinned) {
      absl::MutexLock lock(&mutex_);
      retention_due_ = true;
    }
  }
  return absl::OkStatus();
}

void Housekeeper::TakeInReport(const storage::EvaluationFact& report) {
  const Evaluation& evaluation = report.evaluation;
  if (evaluation.outcome == Evaluation::Outcome::kFailed) {
    host_.listeners.Warn(fmt::format("evaluator '{}' of {} failed at step {}: {}", evaluation.evaluator,
                                     evaluation.worker, report.step, evaluation.reason));
  }
  for (Report& waiting : unrecorded_) {
    const bool same = waiting.step == report.step && waiting.evaluation.evaluator == evaluation.evaluator;
    waiting.told = waiting.told || same;
  }
  Recorded(report.step, evaluation);
}

absl::Status Housekeeper::CarryOutRequests() {
  more_requests_ = false;
  const absl::StatusOr<std::vector<storage::DeletionRequestFact>> requests = host_.store.catalog().Requests();
  if (!requests.ok() || requests->empty()) return requests.status();
  {
    absl::MutexLock lock(&mutex_);
    if (pauses_ > 0 || retention_ended_) return absl::OkStatus();
    deleting_ = true;
  }
  absl::Status error = Delete(*requests);
  {
    absl::MutexLock lock(&mutex_);
    deleting_ = false;
    more_requests_ = more_requests_ && error.ok();
    wake_ = wake_ || more_requests_;  // for the next round, at once
  }
  if (absl::IsCancelled(error) && RetentionHasEnded()) error = absl::OkStatus();
  Note("requests cannot be carried out", error);
  return error;
}

absl::Status Housekeeper::Delete(const std::vector<storage::DeletionRequestFact>& requests) {
  absl::Status error;
  std::vector<Reply> replies;
  std::vector<const storage::DeletionRequestFact*> open;
  std::vector<storage::Retention::Unwanted> unwanted;
  for (const storage::DeletionRequestFact& request : requests) {
    // By retention, or by an earlier try whose answer could not be recorded.
    const absl::StatusOr<bool> deleted = storage::IsDeleted(host_.store.catalog(), request.step, request.attempt);
    const auto attempt = storage::FromHex(request.attempt);
    if (!deleted.ok()) {
      error.Update(deleted.status());
    } else if (*deleted) {
      {
        absl::MutexLock lock(&mutex_);
        retention_due_ = true;  // for their files: whether an earlier try had deleted it may not have been known then
      }
      replies.push_back({.request = &request});
    } else if (!attempt) {
      replies.push_back({.request = &request, .refused = fmt::format("{} is no attempt", request.attempt)});
    } else {
      open.push_back(&request);
      unwanted.push_back({.step = request.step, .attempt = storage::AttemptId{*attempt}, .reason = request.reason});
    }
  }
  storage::Retention::DeleteResult result;
  if (!open.empty()) {
    absl::StatusOr<storage::Retention::DeleteResult> let_go =
        retention_.LetGo(unwanted, host_.claims, [this] { return UnjudgedUnlessEnded(); });
    error.Update(let_go.status());
    if (let_go.ok()) result = *std::move(let_go);
  }
  more_requests_ = result.more;
  for (const size_t place : result.deleted) {
    {
      absl::MutexLock lock(&mutex_);
      retention_due_ = true;  // for their files
    }
    host_.statistics.AddDeleted(1);
    host_.listeners.Deleted(open[place]->step, open[place]->reason);
    replies.push_back({.request = open[place]});
  }
  for (const auto& [place, why] : result.kept) replies.push_back({.request = open[place], .refused = why});
  error.Update(AnswerRequests(host_.store, host_.listeners, replies));
  return error;
}

}  // namespace tidemark
