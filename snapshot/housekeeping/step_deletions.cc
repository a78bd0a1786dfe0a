#include "snapshot/housekeeping/step_deletions.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "snapshot/guarded.h"
#include "snapshot/stopwatch.h"
#include "storage/io/printable_text.h"

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

StepDeletions::StepDeletions(const HousekeeperHost& host, RetentionOptions rules, const PendingReports& pending,
                             DeletionGate& gate, RetryWarnings& warnings)
    : host_(host),
      pending_(pending),
      gate_(gate),
      warnings_(warnings),
      retention_(host_.files, host_.store, std::move(rules), [this](std::string_view line) {
        if (retention_warnings_.IsNew(line)) host_.listeners.Warn(line);
      }) {}

std::optional<std::set<int64_t>> StepDeletions::Unjudged() const {
  std::set<int64_t> unjudged = pending_.Unjudged();
  // Asked for last: what was read before is from when all was known.
  return gate_.ended() ? std::nullopt : std::make_optional(std::move(unjudged));
}

void StepDeletions::TellDeleted(int64_t step, const std::string& reason) {
  host_.statistics.AddDeleted(1);
  host_.listeners.Deleted(step, reason);
}

bool StepDeletions::HasWork() const { return unfinished() && !gate_.paused() && !gate_.ended(); }

absl::Status StepDeletions::CarryOutRequests() {
  more_requests_ = false;
  const absl::StatusOr<std::vector<storage::DeletionRequestFact>> requests = host_.store.catalog().Requests();
  if (!requests.ok() || requests->empty()) return requests.status();
  absl::StatusOr<DeletionGate::Deletion> deletion = gate_.Begin("requests are not carried out");
  if (!deletion.ok()) return absl::OkStatus();  // later, or never
  bool more = false;
  absl::Status error = DeleteRequested(*requests, &more);
  deletion->reset();
  more_requests_ = more && error.ok();
  if (absl::IsCancelled(error) && gate_.ended()) error = absl::OkStatus();
  warnings_.Note("requests cannot be carried out", error);
  return error;
}

absl::Status StepDeletions::DeleteRequested(const std::vector<storage::DeletionRequestFact>& requests, bool* more) {
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
      SetDue();  // for their files: whether an earlier try had deleted it may not have been known then
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
    absl::StatusOr<storage::Retention::DeleteResult> deleted =
        retention_.LetGo(unwanted, host_.claims, [this] { return Unjudged(); });
    error.Update(deleted.status());
    if (deleted.ok()) result = *std::move(deleted);
  }
  *more = result.more;
  for (const size_t place : result.deleted) {
    SetDue();  // for their files
    TellDeleted(open[place]->step, open[place]->reason);
    replies.push_back({.request = open[place]});
  }
  for (const auto& [place, why] : result.kept) replies.push_back({.request = open[place], .refused = why});
  error.Update(AnswerRequests(host_.store, host_.listeners, replies));
  return error;
}

absl::Status StepDeletions::ApplyRules(bool at_once) {
  unfinished_ = false;
  if (!due_ && !at_once) return absl::OkStatus();
  absl::StatusOr<DeletionGate::Deletion> deletion = gate_.Begin("the rules of retention are not applied");
  unfinished_ = absl::IsUnavailable(deletion.status());  // it is paused
  if (unfinished_) return absl::OkStatus();
  due_ = false;
  if (!deletion.ok()) return absl::OkStatus();
  retention_warnings_.BeginRun();
  const Stopwatch watch;
  const absl::StatusOr<std::vector<RetentionDecision>> deleted =
      retention_.Apply(host_.claims, [this] { return Unjudged(); });
  deletion->reset();
  if (retention_.unfinished() || !deleted.ok()) SetDue();
  if (absl::IsCancelled(deleted.status()) && gate_.ended()) return absl::OkStatus();
  warnings_.Note("old steps cannot be deleted", deleted.status());
  if (!deleted.ok()) return deleted.status();
  if (!deleted->empty()) host_.statistics.AddBackground("delete", watch.elapsed());
  for (const RetentionDecision& decision : *deleted) TellDeleted(decision.step, decision.reason);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<RetentionDecision>> StepDeletions::Plan() {
  return retention_.Plan(host_.claims, [this] { return pending_.Unjudged(); });
}

absl::Status StepDeletions::Delete(int64_t step, const std::string& reason) {
  const absl::StatusOr<std::optional<storage::StepRecord>> record = host_.store.catalog().Find(step);
  if (!record.ok()) return record.status();
  if (!record->has_value() || (*record)->info.state != StepState::kCommitted) {
    return absl::NotFoundError(fmt::format("step {} is not committed", step));
  }
  const auto attempt = storage::FromHex((*record)->info.attempt);
  if (!attempt) return absl::DataLossError(fmt::format("the record of step {} names no attempt", step));
  absl::StatusOr<DeletionGate::Deletion> deletion = gate_.Begin(fmt::format("step {} is not deleted", step));
  if (!deletion.ok()) return deletion.status();
  const absl::StatusOr<storage::Retention::DeleteResult> result = Guarded("Delete", [&] {
    return retention_.LetGo({{.step = step, .attempt = storage::AttemptId{*attempt}, .reason = reason}}, host_.claims,
                            [this] { return Unjudged(); });
  });
  deletion->reset();
  due_ = unfinished_ = true;  // for the files
  if (!result.ok()) return result.status();
  if (!result->kept.empty()) {
    return absl::FailedPreconditionError(fmt::format("step {} is not deleted: {}", step, result->kept.begin()->second));
  }
  if (result->deleted.empty()) {
    return absl::UnavailableError(fmt::format("step {} is not deleted: it has changed in the meantime", step));
  }
  TellDeleted(step, reason);
  return absl::OkStatus();
}

absl::Status StepDeletions::DiscardAfter(int64_t step, const std::string& reason,
                                         const std::function<void()>& before_files_go, std::vector<int64_t>* deleted) {
  absl::StatusOr<DeletionGate::Deletion> deletion =
      gate_.Begin(fmt::format("the steps after {} are not discarded", step));
  if (!deletion.ok()) return deletion.status();
  storage::Retention::Discarded discarded;
  const absl::Status done =
      Guarded("DiscardAfter", [&] { retention_.DiscardAfter(step, reason, host_.claims, &discarded); });
  if (discarded.began) before_files_go();
  deletion->reset();
  due_ = unfinished_ = true;  // for the files
  *deleted = std::move(discarded.deleted);
  for (const int64_t gone : *deleted) TellDeleted(gone, reason);
  return done.ok() ? discarded.error : done;
}

}  // namespace tidemark
