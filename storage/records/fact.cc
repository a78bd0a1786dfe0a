#include "storage/records/fact.h"

#include <type_traits>
#include <utility>

#include "storage/records/metric_report.h"

namespace tidemark::storage {
namespace {

template <typename T>
constexpr bool kIsOfStep = std::is_same_v<T, StateFact> || std::is_same_v<T, EvaluationFact> ||
                           std::is_same_v<T, PinFact> || std::is_same_v<T, KeptFact>;

std::optional<DeletionRecord> Apply(const StepFact& fact, std::optional<StepRecord>& record) {
  std::optional<DeletionRecord> left;
  const bool stays = record && record->info.attempt == fact.record.info.attempt &&
                     (fact.record.info.state != StepState::kDeleted || record->info.state == StepState::kDeleted);
  if (record && !stays) left = DeletionOf(*record);
  record = fact.record;
  return left;
}

std::optional<DeletionRecord> Apply(const StateFact& fact, StepRecord& record) {
  StepInfo& info = record.info;
  if (info.state == StepState::kDeleted) return std::nullopt;
  if (fact.state == StepState::kDeleted) {
    std::optional<DeletionRecord> left = DeletionOf(record);
    MakeDeleted(record, fact.reason);
    return left;
  }
  info.state = fact.state;
  info.reason = fact.state == StepState::kCommitted ? "" : fact.reason;
  if (fact.state != StepState::kCommitted) info.kept.clear();
  return std::nullopt;
}

std::optional<DeletionRecord> Apply(const EvaluationFact& fact, StepRecord& record) {
  ApplyEvaluation(record.info, fact.evaluation);
  return std::nullopt;
}

std::optional<DeletionRecord> Apply(const PinFact& fact, StepRecord& record) {
  if (record.info.state == StepState::kDeleted) return std::nullopt;
  record.info.pinned = fact.pinned;
  record.info.pin_note = fact.note;
  record.info.tags = fact.tags;
  return std::nullopt;
}

std::optional<DeletionRecord> Apply(const KeptFact& fact, StepRecord& record) {
  if (record.info.state == StepState::kCommitted) record.info.kept = fact.reason;
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> StepOfFact(const Fact& fact) {
  return std::visit(
      []<typename T>(const T& one) -> std::optional<int64_t> {
        if constexpr (std::is_same_v<T, StepFact>) return one.record.info.step;
        if constexpr (kIsOfStep<T>) return one.step;
        return std::nullopt;
      },
      fact);
}

std::optional<DeletionRecord> ApplyToStep(const Fact& fact, std::optional<StepRecord>& record) {
  return std::visit(
      [&]<typename T>(const T& one) -> std::optional<DeletionRecord> {
        if constexpr (std::is_same_v<T, StepFact>) return Apply(one, record);
        if constexpr (kIsOfStep<T>) {
          if (record && record->info.attempt == one.attempt) return Apply(one, *record);
        }
        return std::nullopt;
      },
      fact);
}

}  // namespace tidemark::storage
