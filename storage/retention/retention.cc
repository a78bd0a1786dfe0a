#include "storage/retention/retention.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "fmt/format.h"

namespace tidemark::storage {
namespace {

std::string Describe(const LeaseObserver::Held& held) {
  if (!held.readable && held.problem.empty()) return "leased by a process that has not written its note yet";
  if (!held.readable) return "leased; the lease's note cannot be read";
  return held.note.evaluator.empty()
             ? fmt::format("leased by {}", held.note.holder)
             : fmt::format("leased by {} (evaluator {})", held.note.holder, held.note.evaluator);
}

// Of a step that was committed with this attempt.
absl::StatusOr<std::string> WhyNotCommitted(const StepCatalog& catalog, int64_t step, const std::string& attempt) {
  const absl::StatusOr<std::optional<StepRecord>> record = catalog.Find(step);
  if (!record.ok()) return record.status();
  if (!record->has_value() || (*record)->info.attempt != attempt) return "another save has replaced it";
  return fmt::format("it is {}", StepStateName((*record)->info.state));
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
  unreadable_leases_.BeginRun();
  for (const LeaseObserver::Held& held : *live) {
    if (held.readable || held.problem.empty() || !unreadable_leases_.IsNew(held.problem)) continue;
    warn_(fmt::format("a lease that cannot be read keeps its attempt's files: {}", held.problem));
  }
  return live;
}

// The committed steps. `*all` gets those of this process and those of live leases.
absl::StatusOr<CommittedSteps> Retention::ReadCommitted(const ReadClaims& claims, Claims* all) {
  absl::StatusOr<std::vector<LeaseObserver::Held>> live = LiveLeases();
  if (!live.ok()) return live.status();
  std::multimap<std::string, std::string> leased;  // by attempt: by whom
  for (const LeaseObserver::Held& held : *live) leased.emplace(ToHex(held.note.attempt.bytes), Describe(held));
  absl::StatusOr<CommittedSteps> steps = store_.catalog().Committed();
  if (!steps.ok()) return steps.status();
  *all = claims ? claims() : Claims();
  for (const auto& info : *steps) {
    const auto [first, last] = leased.equal_range(info->attempt);
    for (auto lease = first; lease != last; ++lease) all->emplace(info->step, lease->second);
  }
  return steps;
}

absl::StatusOr<Retention::Planned> Retention::PlanCommitted(const RetentionOptions& options, const ReadClaims& claims,
                                                            const ReadUnjudged& unjudged) {
  Claims all;
  absl::StatusOr<CommittedSteps> steps = ReadCommitted(claims, &all);
  if (!steps.ok()) return steps.status();
  std::optional<std::set<int64_t>> unsaid = unjudged ? unjudged() : std::set<int64_t>();
  if (!unsaid) return absl::CancelledError("the evaluators have ended, so pending evaluations are not known");
  std::vector<RetentionDecision> decisions = PlanRetention(options, *steps, all, *unsaid, warn_);
  return Planned{.steps = *std::move(steps), .decisions = std::move(decisions)};
}

// The modes of the best steps are read in every pass, because an evaluator may have been added meanwhile that records
// them. The predicate gets the whole record, which is read again only where it is too large to be kept in memory.
absl::StatusOr<Retention::Planned> Retention::PlanByRules(const ReadClaims& claims, const ReadUnjudged& unjudged) {
  RetentionOptions options = options_;
  if (!options.keep_best.empty()) {
    absl::StatusOr<BestModes> recorded = store_.catalog().RecordedBestModes();
    if (!recorded.ok()) return recorded.status();
    if (absl::Status status = ResolveBestModes(*recorded, options); !status.ok()) return status;
  }
  absl::Status unread;
  if (options_.keep) {
    options.keep = [&](const StepInfo& info) {
      if (IsWhole(info)) return options_.keep(info);
      absl::StatusOr<std::optional<StepRecord>> record = store_.catalog().Find(info.step);
      unread.Update(record.status());
      // If the step has been replaced meanwhile, the next pass decides.
      if (!record.ok() || !record->has_value() || (*record)->info.attempt != info.attempt) return true;
      return options_.keep((*record)->info);
    };
  }
  absl::StatusOr<Planned> planned = PlanCommitted(options, claims, unjudged);
  if (!unread.ok()) return unread;
  return planned;
}

absl::StatusOr<std::vector<RetentionDecision>> Retention::Plan(const ReadClaims& claims, const ReadUnjudged& unjudged) {
  absl::StatusOr<Planned> planned = PlanByRules(claims, unjudged);
  if (!planned.ok()) return planned.status();
  return std::move(planned->decisions);
}

absl::StatusOr<std::vector<RetentionDecision>> Retention::Apply(const ReadClaims& claims,
                                                                const ReadUnjudged& unjudged) {
  unfinished_ = false;
  std::vector<RetentionDecision> gone;
  absl::Status refused;
  if (options_.any()) {
    absl::StatusOr<Planned> planned = PlanByRules(claims, unjudged);
    if (!planned.ok()) return planned.status();
    // Stopping anywhere is right: deleting some of what the plan lets go changes nothing of what it says of the rest.
    std::vector<StepNote> notes;
    bool more = false;
    bool changed = false;
    // What makes room first: on a full disk nothing else can be written, and must not be in its way.
    for (const bool keep : {false, true}) {
      for (size_t i = 0; i < planned->steps.size() && !more; ++i) {
        const StepInfo& info = *planned->steps[i];
        const RetentionDecision& decision = planned->decisions[i];
        if (decision.keep != keep || (keep && decision.reason == info.kept)) continue;
        more = notes.size() == changes_max_;
        if (more) break;
        changed = changed || keep;
        notes.push_back({.step = info.step, .attempt = info.attempt, .deleted = !keep, .reason = decision.reason});
      }
    }
    // An entry takes as many as fit into a spare file.
    std::set<int64_t> deleted;
    while (!notes.empty() && refused.ok()) {
      absl::StatusOr<NotedSteps> noted = store_.NoteSteps(notes);
      // The files of what is deleted already make room, which may be all that is wanting.
      refused = noted.status();
      if (!noted.ok()) break;
      deleted.merge(noted->deleted);
      notes.erase(notes.begin(), notes.begin() + static_cast<ptrdiff_t>(noted->notes));
    }
    more = more || !notes.empty();
    for (RetentionDecision& decision : planned->decisions) {
      if (deleted.contains(decision.step)) gone.push_back(std::move(decision));
    }
    // The caller is told of those that are deleted. If the next call is refused as well, it says so.
    if (!gone.empty()) refused = absl::OkStatus();
    // Where every record was refused, the next call would only meet the same ones.
    unfinished_ = refused.ok() && more && (changed || !gone.empty());
  }
  absl::StatusOr<bool> more_files = RemoveFiles();
  if (!more_files.ok()) {
    warn_(fmt::format("files of deleted steps are still there: {}", std::string(more_files.status().message())));
  }
  unfinished_ = unfinished_ || (more_files.ok() && *more_files);
  if (!refused.ok()) return refused;
  return gone;
}

absl::StatusOr<Retention::DeleteResult> Retention::LetGo(const std::vector<Unwanted>& unwanted,
                                                         const ReadClaims& claims, const ReadUnjudged& unjudged) {
  // A rule that wants none leaves those that stay whatever the rules say.
  RetentionOptions none;
  none.keep = [](const StepInfo&) { return false; };
  absl::StatusOr<Planned> planned = PlanCommitted(none, claims, unjudged);
  if (!planned.ok()) return planned.status();
  std::map<int64_t, size_t> committed;  // by step: its place in the plan
  for (size_t i = 0; i < planned->steps.size(); ++i) committed.emplace(planned->steps[i]->step, i);
  DeleteResult result;
  std::vector<StepNote> notes;
  std::vector<size_t> places;  // in the list, of each note
  for (size_t i = 0; i < unwanted.size(); ++i) {
    const auto found = committed.find(unwanted[i].step);
    const std::string attempt = ToHex(unwanted[i].attempt.bytes);
    if (found == committed.end() || planned->steps[found->second]->attempt != attempt) {
      absl::StatusOr<std::string> why = WhyNotCommitted(store_.catalog(), unwanted[i].step, attempt);
      if (!why.ok()) return why.status();
      result.kept.emplace(i, *std::move(why));
    } else if (const RetentionDecision& decision = planned->decisions[found->second]; decision.keep) {
      result.kept.emplace(i, decision.reason);
    } else if (notes.size() < changes_max_) {
      // One that is in the list twice is met as deleted the next time.
      const bool twice =
          std::any_of(notes.begin(), notes.end(), [&](const StepNote& note) { return note.step == unwanted[i].step; });
      if (twice) continue;
      notes.push_back({.step = unwanted[i].step, .attempt = attempt, .deleted = true, .reason = unwanted[i].reason});
      places.push_back(i);
    } else {
      result.more = true;
    }
  }
  // An entry takes as many as fit into a spare file.
  for (size_t done = 0; done < notes.size();) {
    const absl::StatusOr<NotedSteps> noted =
        store_.NoteSteps({notes.begin() + static_cast<ptrdiff_t>(done), notes.end()});
    if (!noted.ok() && result.deleted.empty()) return noted.status();
    if (!noted.ok()) {
      result.more = true;  // the next call says why, if it is refused as well
      break;
    }
    for (const size_t end = done + noted->notes; done < end; ++done) {
      if (noted->deleted.contains(notes[done].step)) result.deleted.insert(places[done]);
    }
  }
  return result;
}

void Retention::DiscardAfter(int64_t after, const std::string& reason, const ReadClaims& claims, Discarded* discarded) {
  Claims all;
  const absl::StatusOr<CommittedSteps> steps = ReadCommitted(claims, &all);
  discarded->error = steps.ok() ? CheckDiscard(after, *steps, all) : steps.status();
  if (!discarded->error.ok()) return;
  std::vector<StepNote> left;  // the highest last
  for (const auto& info : *steps) {
    if (info->step > after) {
      left.push_back({.step = info->step, .attempt = info->attempt, .deleted = true, .reason = reason});
    }
  }
  discarded->began = !left.empty();
  do {
    const size_t count = std::min(left.size(), changes_max_);
    const absl::StatusOr<NotedSteps> noted =
        store_.NoteSteps({left.rbegin(), left.rbegin() + static_cast<ptrdiff_t>(count)}, after);
    discarded->error = noted.status();
    if (!noted.ok()) return;
    discarded->deleted.insert(discarded->deleted.end(), noted->deleted.rbegin(), noted->deleted.rend());
    if (noted->stays) {
      discarded->error = absl::FailedPreconditionError(
          fmt::format("step {} and earlier ones are not discarded: step {} is pinned", *noted->stays, *noted->stays));
    }
    left.resize(left.size() - noted->notes);
  } while (discarded->error.ok() && !left.empty());
}

// Looks at the leases only now that the deletions are established: a reader that took a lease before is seen, and one
// that comes later sees the deletion. Returns whether there are more that can be removed.
absl::StatusOr<bool> Retention::RemoveFiles() {
  const absl::StatusOr<std::vector<DeletionRecord>> pending = store_.catalog().Deletions();
  if (!pending.ok()) return pending.status();
  if (pending->empty()) return false;
  absl::StatusOr<std::vector<LeaseObserver::Held>> live = LiveLeases();  // removes the dead, which keep files as well
  if (!live.ok()) return live.status();
  std::set<AttemptId> in_use;
  for (const LeaseObserver::Held& held : *live) in_use.insert(held.note.attempt);
  return store_.RemoveDeleted(in_use, changes_max_);
}

}  // namespace tidemark::storage
