#include "storage/manifest/retention.h"

#include <cstdint>
#include <map>
#include <utility>

#include "fmt/format.h"

namespace tidemark::storage {
namespace {

std::string Text(const absl::Status& status) { return std::string(status.message()); }

std::string Describe(const LeaseObserver::Held& held) {
  if (!held.readable) return "leased by somebody whose note cannot be read";
  return held.note.evaluator.empty()
             ? fmt::format("leased by {}", held.note.holder)
             : fmt::format("leased by {} (evaluator {})", held.note.holder, held.note.evaluator);
}

}  // namespace

Retention::Retention(FileSystem& files, Store& store, RetentionOptions options, Warn warn)
    : Retention(store, std::move(options), std::move(warn),
                LeaseObserver(files, store.layout(), ThisMachine(), MonotonicNow)) {}

Retention::Retention(Store& store, RetentionOptions options, Warn warn, LeaseObserver leases, size_t changes_max)
    : store_(store),
      options_(std::move(options)),
      warn_(std::move(warn)),
      leases_(std::move(leases)),
      changes_max_(changes_max) {}

absl::StatusOr<std::vector<LeaseObserver::Held>> Retention::LiveLeases() {
  absl::StatusOr<std::vector<LeaseObserver::Held>> live = leases_.Live();
  if (!live.ok()) return live;
  std::set<std::string> problems;
  for (const LeaseObserver::Held& held : *live) {
    if (held.readable || !problems.insert(held.problem).second || warned_.contains(held.problem)) continue;
    warn_(fmt::format("a lease that cannot be read keeps its attempt's files: {}", held.problem));
  }
  warned_ = std::move(problems);
  return live;
}

absl::StatusOr<Retention::Planned> Retention::PlanCommitted(const ReadClaims& claims) {
  absl::StatusOr<std::vector<LeaseObserver::Held>> live = LiveLeases();
  if (!live.ok()) return live.status();
  std::multimap<std::string, std::string> leased;  // by attempt: by whom
  for (const LeaseObserver::Held& held : *live) leased.emplace(ToHex(held.note.attempt.bytes), Describe(held));
  absl::StatusOr<std::vector<StepRecord>> records = store_.manifest().Committed();
  if (!records.ok()) return records.status();
  Planned planned;
  Claims all = claims ? claims() : Claims();
  for (StepRecord& record : *records) {
    const auto [first, last] = leased.equal_range(record.info.attempt);
    for (auto lease = first; lease != last; ++lease) all.emplace(record.info.step, lease->second);
    planned.steps.push_back(std::move(record.info));
  }
  planned.decisions = PlanRetention(options_, planned.steps, all);
  return planned;
}

absl::StatusOr<std::vector<RetentionDecision>> Retention::Plan(const ReadClaims& claims) {
  absl::StatusOr<Planned> planned = PlanCommitted(claims);
  if (!planned.ok()) return planned.status();
  return std::move(planned->decisions);
}

absl::StatusOr<std::vector<RetentionDecision>> Retention::Apply(const ReadClaims& claims) {
  unfinished_ = false;
  std::vector<RetentionDecision> marked;
  if (options_.any()) {
    absl::StatusOr<Planned> planned = PlanCommitted(claims);
    if (!planned.ok()) return planned.status();
    // Stopping anywhere is right: deleting some of what the plan lets go changes nothing of what it says of the rest.
    std::vector<Store::StepNote> notes;
    bool more = false;
    bool changed = false;
    for (size_t i = 0; i < planned->steps.size(); ++i) {
      const StepInfo& info = planned->steps[i];
      const RetentionDecision& decision = planned->decisions[i];
      if (decision.keep && decision.reason == info.kept) continue;
      more = notes.size() == changes_max_;
      if (more) break;
      changed = changed || decision.keep;
      notes.push_back(
          {.step = info.step, .attempt = info.attempt, .deleted = !decision.keep, .reason = decision.reason});
    }
    if (!notes.empty()) {
      absl::StatusOr<std::set<int64_t>> deleted = store_.NoteSteps(notes);
      if (!deleted.ok()) return deleted.status();
      for (RetentionDecision& decision : planned->decisions) {
        if (deleted->contains(decision.step)) marked.push_back(std::move(decision));
      }
    }
    // Where every record was refused, the next call would only meet the same ones.
    unfinished_ = more && (changed || !marked.empty());
  }
  RemoveFiles();
  return marked;
}

// Looks at the leases only now that the marks are there: a reader who took one before has been seen, and one who comes
// later sees the mark.
void Retention::RemoveFiles() {
  absl::StatusOr<std::vector<DeletionRecord>> pending = store_.manifest().Deletions();
  absl::Status status = pending.status();
  if (status.ok() && pending->empty()) return;
  absl::StatusOr<std::vector<LeaseObserver::Held>> live;
  if (status.ok()) {
    live = LiveLeases();  // removes the dead ones, which keep files as long as they are there
    status = live.status();
  }
  if (status.ok()) {
    std::set<AttemptId> in_use;
    for (const LeaseObserver::Held& held : *live) in_use.insert(held.note.attempt);
    status = store_.RemoveDeleted(in_use);
  }
  if (!status.ok()) warn_(fmt::format("files of deleted steps are still there: {}", Text(status)));
}

}  // namespace tidemark::storage
