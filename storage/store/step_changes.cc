#include "storage/store/step_changes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "fmt/format.h"
#include "storage/records/tag.h"

namespace tidemark::storage {
namespace {

bool IsOf(const std::optional<StepRecord>& record, const std::string& attempt) {
  return record && record->info.attempt == attempt;
}

// The step keeps pin, note and tags of the record that is replaced.
void InheritPin(const StepInfo& replaced, const std::function<void(std::string_view)>& warn, StepInfo& info) {
  if (!replaced.pinned) return;
  if (!info.pinned) info.pin_note = replaced.pin_note;
  info.pinned = true;
  std::vector<std::string> tags = replaced.tags;
  for (const std::string& tag : info.tags) {
    if (!AddTag(tags, tag) && !HasTag(tags, tag)) {
      warn(fmt::format("step {} loses the tag '{}', because a step has at most {} tags", info.step, tag,
                       kTagsPerStepMax));
    }
  }
  info.tags = std::move(tags);
}

// The record of a step whose pin is to change.
absl::StatusOr<StepRecord> FindToPin(const StepCatalog& catalog, std::string_view what, int64_t step,
                                     const std::optional<AttemptId>& attempt, bool only_committed) {
  absl::StatusOr<std::optional<StepRecord>> record = catalog.Find(step);
  if (!record.ok()) return record.status();
  const bool is_there = record->has_value() && FromHex((*record)->info.attempt).has_value() &&
                        (!only_committed || (*record)->info.state == StepState::kCommitted);
  if (!is_there) return absl::NotFoundError(fmt::format("{} of step {}: it is not committed", what, step));
  if (attempt && (*record)->info.attempt != ToHex(attempt->bytes)) {
    return absl::NotFoundError(
        fmt::format("{} of step {}: another attempt has replaced attempt {}", what, step, ToHex(attempt->bytes)));
  }
  return **std::move(record);
}

PinFact PinOf(const StepInfo& info) {
  return {.step = info.step, .attempt = info.attempt, .pinned = info.pinned, .note = info.pin_note, .tags = info.tags};
}

// What makes the pin of `info` that of `pin`.
Facts ChangePin(const StepInfo& info, PinFact pin) {
  const bool same = info.pinned == pin.pinned && info.pin_note == pin.note && info.tags == pin.tags;
  return same ? Facts() : Facts{std::move(pin)};
}

// The other steps that have the tag, except those whose files are gone.
absl::StatusOr<std::vector<StepInfo>> OthersTagged(const StepCatalog& catalog, int64_t step, std::string_view name) {
  std::vector<StepInfo> others;
  absl::Status status = catalog.ForEach([&](const StepRecord& record) {
    const StepInfo& info = record.info;
    if (info.step != step && info.state != StepState::kDeleted && HasTag(info.tags, name)) others.push_back(info);
    return true;
  });
  if (!status.ok()) return status;
  return others;
}

absl::Status CheckName(std::string_view what, int64_t step, std::string_view name) {
  const absl::Status status = CheckTag(name);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(fmt::format("{} of step {}: {}", what, step, std::string(status.message())));
}

}  // namespace

absl::StatusOr<Facts> CommitFacts(const StepCatalog& catalog, StepRecord record, const PhasesRecord* phases,
                                  const std::function<void(std::string_view)>& warn) {
  absl::StatusOr<std::optional<StepRecord>> old = catalog.Find(record.info.step);
  if (!old.ok()) return old.status();
  if (old->has_value()) InheritPin((*old)->info, warn, record.info);
  Facts facts{StepFact{std::move(record)}};
  if (phases != nullptr) facts.push_back(PhasesFact{*phases});
  return facts;
}

absl::Status CheckReferencesAreKept(const StepCatalog& catalog, const StepRecord& record) {
  std::set<AttemptId> checked;
  for (const FileReference& file : record.references) {
    if (!checked.insert(file.attempt).second) continue;
    const absl::StatusOr<bool> is_referenced = catalog.IsReferenced(file.attempt);
    if (!is_referenced.ok()) return is_referenced.status();
    if (*is_referenced) continue;
    const absl::StatusOr<std::optional<StepRecord>> found = catalog.Find(file.step);
    if (!found.ok()) return found.status();
    const std::string attempt = ToHex(file.attempt.bytes);
    if (found->has_value() && (*found)->info.attempt == attempt && (*found)->info.state != StepState::kDeleted)
      continue;
    return absl::NotFoundError(fmt::format("rank {} refers to a file of attempt {} of step {}, which was deleted",
                                           file.rank, attempt, file.step));
  }
  return absl::OkStatus();
}

absl::StatusOr<Facts> FailureFacts(const StepCatalog& catalog, int64_t step, uint64_t sequence, absl::Time created,
                                   std::string_view why) {
  absl::StatusOr<std::optional<StepRecord>> known = catalog.Find(step);
  if (!known.ok()) return known.status();
  if (known->has_value() && (*known)->info.state != StepState::kFailed) return Facts();
  // The last failure counts. The evaluations beside an earlier one stay.
  if (known->has_value() && (*known)->info.sequence > sequence) return Facts();
  StepRecord failed = known->has_value() ? **std::move(known) : StepRecord();
  failed.info.step = step;
  failed.info.state = StepState::kFailed;
  failed.info.sequence = sequence;
  failed.info.created = created;
  failed.info.reason = why;
  return Facts{StepFact{std::move(failed)}};
}

absl::StatusOr<Facts> UnsavedFacts(const StepCatalog& catalog, const StepInfo& info) {
  absl::StatusOr<std::optional<StepRecord>> known = catalog.Find(info.step);
  if (!known.ok()) return known.status();
  if (known->has_value()) return Facts();
  return Facts{StepFact{{.info = info}}};
}

absl::StatusOr<Facts> PinFacts(const StepCatalog& catalog, int64_t step, std::string_view note,
                               std::optional<AttemptId> attempt) {
  if (note.size() > kStepNoteBytesMax) {
    return absl::InvalidArgumentError(
        fmt::format("pin of step {}: the note has {} bytes; at most {}", step, note.size(), kStepNoteBytesMax));
  }
  absl::StatusOr<StepRecord> record = FindToPin(catalog, "pin", step, attempt, /*only_committed=*/true);
  if (!record.ok()) return record.status();
  PinFact pin = PinOf(record->info);
  pin.pinned = true;
  pin.note = note;
  return ChangePin(record->info, std::move(pin));
}

absl::StatusOr<Facts> UnpinFacts(const StepCatalog& catalog, int64_t step, std::optional<AttemptId> attempt) {
  absl::StatusOr<StepRecord> record = FindToPin(catalog, "unpin", step, attempt, /*only_committed=*/false);
  if (!record.ok()) return record.status();
  return ChangePin(record->info, {.step = step, .attempt = record->info.attempt});
}

absl::StatusOr<Facts> TagFacts(const StepCatalog& catalog, int64_t step, std::string_view name,
                               std::optional<AttemptId> attempt, TakenTag taken) {
  if (absl::Status status = CheckName("tag", step, name); !status.ok()) return status;
  const absl::StatusOr<std::vector<StepInfo>> others = OthersTagged(catalog, step, name);
  if (!others.ok()) return others.status();
  if (!others->empty() && taken == TakenTag::kRefuse) {
    return absl::AlreadyExistsError(
        fmt::format("tag of step {}: step {} has the tag '{}'", step, others->front().step, name));
  }
  absl::StatusOr<StepRecord> record = FindToPin(catalog, "tag", step, attempt, /*only_committed=*/true);
  if (!record.ok()) return record.status();
  PinFact pin = PinOf(record->info);
  pin.pinned = true;
  if (!AddTag(pin.tags, name) && !HasTag(pin.tags, name)) {
    return absl::OutOfRangeError(
        fmt::format("tag of step {}: it has {} tags; at most {}", step, pin.tags.size(), kTagsPerStepMax));
  }
  Facts facts = ChangePin(record->info, std::move(pin));
  for (const StepInfo& other : *others) {
    PinFact without = PinOf(other);
    RemoveTag(without.tags, name);
    facts.push_back(std::move(without));
  }
  return facts;
}

absl::StatusOr<Facts> UntagFacts(const StepCatalog& catalog, int64_t step, std::string_view name,
                                 std::optional<AttemptId> attempt) {
  absl::StatusOr<StepRecord> record = FindToPin(catalog, "untag", step, attempt, /*only_committed=*/false);
  if (!record.ok()) return record.status();
  PinFact pin = PinOf(record->info);
  RemoveTag(pin.tags, name);
  return ChangePin(record->info, std::move(pin));
}

absl::StatusOr<Facts> MarkFacts(const StepCatalog& catalog, int64_t step, const std::string& attempt, StepState state,
                                std::string_view reason) {
  absl::StatusOr<std::optional<StepRecord>> record = catalog.Find(step);
  if (!record.ok()) return record.status();
  if (!IsOf(*record, attempt)) {
    return absl::NotFoundError(fmt::format("step {} has no record of attempt {}", step, attempt));
  }
  if ((*record)->info.state == StepState::kDeleted) {
    return absl::NotFoundError(fmt::format("step {}, attempt {}, has been deleted", step, attempt));
  }
  if ((*record)->info.state == state && (*record)->info.reason == reason) return Facts();
  return Facts{StateFact{.step = step, .attempt = attempt, .state = state, .reason = std::string(reason)}};
}

absl::StatusOr<Facts> ReportFacts(const StepCatalog& catalog, std::span<const EvaluationFact> reports,
                                  std::vector<ReportOutcome>& outcomes) {
  outcomes.assign(reports.size(), {});
  Facts facts;
  std::map<int64_t, std::optional<StepRecord>> records;  // with the facts so far
  for (size_t i = 0; i < reports.size(); ++i) {
    const EvaluationFact& report = reports[i];
    auto [found, is_new] = records.try_emplace(report.step);
    if (is_new) {
      absl::StatusOr<std::optional<StepRecord>> record = catalog.Find(report.step);
      if (!record.ok()) return record.status();
      found->second = *std::move(record);
    }
    std::optional<StepRecord>& record = found->second;
    if (!IsOf(record, report.attempt)) {
      outcomes[i].status = absl::NotFoundError(
          fmt::format("evaluator '{}' reported a result for step {}, attempt {}, which is not committed",
                      report.evaluation.evaluator, report.step, report.attempt));
      continue;
    }
    // As it will be read: text that is not UTF-8 is replaced by then.
    const absl::StatusOr<std::string> bytes = EncodeFact(report);
    const absl::StatusOr<Fact> as_read = bytes.ok() ? DecodeFact(*bytes) : bytes.status();
    if (!as_read.ok()) {
      outcomes[i].status = as_read.status();
      continue;
    }
    const Evaluation& said = std::get<EvaluationFact>(*as_read).evaluation;
    if (IsOutranked(record->info, said)) {
      outcomes[i].status = absl::AlreadyExistsError(
          fmt::format("evaluator '{}' has already reported a result for step {}", said.evaluator, report.step));
      continue;
    }
    if (HasEvaluation(record->info, said)) continue;
    outcomes[i].is_news = true;
    ApplyToStep(*as_read, record);
    facts.push_back(*as_read);
  }
  return facts;
}

absl::StatusOr<Facts> BestModesFacts(const StepCatalog& catalog, const BestModes& modes) {
  absl::StatusOr<BestModes> recorded = catalog.RecordedBestModes();
  if (!recorded.ok()) return recorded.status();
  BestModes changed;
  for (const auto& [metric, mode] : modes) {
    const auto known = recorded->find(metric);
    if (known == recorded->end() || known->second != mode) changed.emplace(metric, mode);
  }
  return changed.empty() ? Facts() : Facts{BestModesFact{std::move(changed)}};
}

absl::StatusOr<Facts> NoteFacts(const StepCatalog& catalog, std::span<const StepNote> notes,
                                std::optional<int64_t> discard_after, size_t bytes_max, NotedSteps& noted) {
  noted = {};
  absl::StatusOr<std::optional<int64_t>> latest = catalog.LatestCommitted();
  if (!latest.ok()) return latest.status();
  if (discard_after) {
    const absl::StatusOr<std::optional<StepRecord>> remains = catalog.FindCommittedAtOrBelow(*discard_after);
    if (!remains.ok()) return remains.status();
    if (!remains->has_value()) {
      return absl::FailedPreconditionError(
          fmt::format("the steps after {} are not discarded: no committed step would remain", *discard_after));
    }
  }
  Facts facts;
  size_t bytes = 0;
  for (const StepNote& note : notes) {
    if (bytes >= bytes_max) break;
    ++noted.notes;
    const absl::StatusOr<std::optional<StepRecord>> found = catalog.Find(note.step);
    if (!found.ok()) return found.status();
    if (!IsOf(*found, note.attempt) || (*found)->info.state != StepState::kCommitted) continue;
    const StepInfo& info = (*found)->info;
    Fact fact;
    if (note.deleted) {
      if (info.pinned && discard_after) {
        noted.stays = note.step;
        break;
      }
      if (info.pinned || (note.step == *latest && !discard_after)) continue;
      fact = StateFact{.step = note.step, .attempt = note.attempt, .state = StepState::kDeleted, .reason = note.reason};
    } else {
      if (info.kept == note.reason) continue;
      fact = KeptFact{.step = note.step, .attempt = note.attempt, .reason = note.reason};
    }
    const absl::StatusOr<std::string> encoded = EncodeFact(fact);
    if (!encoded.ok()) return encoded.status();
    // What deletes steps fits into the room for it, and a note on a step that stays must not change that.
    if (!note.deleted && !noted.deleted.empty() && bytes + encoded->size() > bytes_max) {
      --noted.notes;
      break;
    }
    if (note.deleted) noted.deleted.insert(note.step);
    bytes += encoded->size();
    facts.push_back(std::move(fact));
  }
  return facts;
}

absl::StatusOr<bool> IsDeleted(const StepCatalog& catalog, int64_t step, const std::string& attempt) {
  const absl::StatusOr<std::optional<StepRecord>> record = catalog.Find(step);
  if (!record.ok()) return record.status();
  return IsOf(*record, attempt) && (*record)->info.state == StepState::kDeleted;
}

absl::StatusOr<Facts> DeletionRequestFacts(const StepCatalog& catalog, const DeletionRequestFact& request) {
  const absl::StatusOr<std::optional<StepRecord>> record = catalog.Find(request.step);
  if (!record.ok()) return record.status();
  if (!IsOf(*record, request.attempt) || (*record)->info.state != StepState::kCommitted) {
    return absl::NotFoundError(
        fmt::format("deletion of step {}: attempt {} is not committed", request.step, request.attempt));
  }
  return Facts{request};
}

}  // namespace tidemark::storage
