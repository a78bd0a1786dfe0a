#include "storage/records/store_state.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "storage/io/check.h"
#include "storage/records/record_bytes.h"

namespace tidemark::storage {
namespace {

// Without the room that a string keeps for more.
std::string Exactly(const RecordWriter& writer) {
  Check(writer.status().ok(), "a record that DecodeFact would refuse");
  return std::string(writer.view());
}

RecordReader Own(std::string_view packed) { return RecordReader(packed, "packed record", RecordReader::Trust::kOwn); }

}  // namespace

void StoreState::Apply(const Fact& fact) {
  if (const std::optional<int64_t> step = StepOfFact(fact)) return ApplyToRecord(*step, fact);
  if (const auto* phases = std::get_if<PhasesFact>(&fact)) return ApplyPhases(phases->record);
  if (const auto* best = std::get_if<BestModesFact>(&fact)) {
    for (const auto& [metric, mode] : best->modes) best_modes_.insert_or_assign(metric, mode);
  }
  if (const auto* request = std::get_if<DeletionRequestFact>(&fact)) requests_.insert_or_assign(request->id, *request);
  if (const auto* answer = std::get_if<AnswerFact>(&fact)) requests_.erase(answer->id);
}

void StoreState::ApplyToRecord(int64_t step, const Fact& fact) {
  const bool is_step = std::holds_alternative<StepFact>(fact);
  const auto found = is_step ? steps_.try_emplace(step).first : steps_.find(step);
  if (found == steps_.end()) return;
  Held& held = found->second;
  if (!held.record) {
    auto unpacked = std::make_unique<std::optional<StepRecord>>();
    if (!held.packed.empty()) *unpacked = Unpack(held);  // else it is new
    Hold(step, held, std::move(unpacked));
  }
  std::optional<StepRecord>& record = *held.record;
  // Others change nothing that the indices are made of.
  const bool indexed = is_step || std::holds_alternative<StateFact>(fact);
  if (record && indexed) Index(*record, /*into=*/false);
  if (auto left = ApplyToStep(fact, record)) garbage_.insert_or_assign(left->attempt, *std::move(left));
  if (indexed) Index(*record, /*into=*/true);
  held.healthy = record->info.unhealthy().empty();
  if (!is_step) return;
  const StepInfo& info = record->info;
  last_sequence_ = std::max(last_sequence_, info.sequence);
  const auto attempt = FromHex(info.attempt);
  if (attempt && MayHaveFiles(info.state)) garbage_.erase(AttemptId{*attempt});
  const auto phases = phases_.find(step);
  if (phases != phases_.end() && Own(phases->second).GetPhases().attempt != info.attempt) phases_.erase(phases);
}

void StoreState::Index(const StepRecord& record, bool into) {
  const StepInfo& info = record.info;
  if (info.state == StepState::kCommitted) {
    if (into) {
      committed_.insert(info.step);
    } else {
      committed_.erase(info.step);
    }
  }
  if (info.state == StepState::kDeleted) return;
  for (const FileReference& file : record.references) {
    if (into) {
      ++references_[file.attempt];
    } else if (const auto found = references_.find(file.attempt); --found->second == 0) {
      references_.erase(found);
    }
  }
}

void StoreState::Hold(int64_t step, Held& held, std::unique_ptr<std::optional<StepRecord>> record) {
  held.record = std::move(record);
  held.packed = std::string();
  unpacked_.push_back(step);
  if (unpacked_.size() <= unpacked_max_) return;
  Held& oldest = steps_.find(unpacked_.front())->second;
  unpacked_.pop_front();
  RecordWriter writer;
  writer.PutStep(**oldest.record);
  oldest.packed = Exactly(writer);
  oldest.record = nullptr;
}

void StoreState::ApplyPhases(const PhasesRecord& phases) {
  const auto found = steps_.find(phases.step);
  if (found == steps_.end()) return;
  const Held& held = found->second;
  if ((held.record ? (*held.record)->info.attempt : Unpack(held).info.attempt) != phases.attempt) return;
  RecordWriter writer;
  writer.PutPhases(phases);
  phases_.insert_or_assign(phases.step, Exactly(writer));
}

StepRecord StoreState::Unpack(const Held& held) {
  if (held.record) return **held.record;
  RecordReader reader = Own(held.packed);
  StepRecord record = reader.GetStep();
  Check(reader.ok(), "a packed record cannot be read");
  return record;
}

std::optional<double> StoreState::MetricOf(const Held& held, std::string_view metric) {
  if (!held.record) return Own(held.packed).FindMetricOfStep(metric);
  const Metrics& metrics = (*held.record)->info.metrics;
  const auto found = metrics.find(std::string(metric));
  return found == metrics.end() ? std::nullopt : std::optional(found->second);
}

std::optional<StepRecord> StoreState::Find(int64_t step) const {
  const auto found = steps_.find(step);
  return found == steps_.end() ? std::nullopt : std::optional(Unpack(found->second));
}

std::optional<StepRecord> StoreState::FindAtOrBelow(int64_t step) const {
  const auto above = steps_.upper_bound(step);
  return above == steps_.begin() ? std::nullopt : std::optional(Unpack(std::prev(above)->second));
}

std::optional<StepRecord> StoreState::FindCommittedAtOrBelow(int64_t step) const {
  const auto above = committed_.upper_bound(step);
  return above == committed_.begin() ? std::nullopt : Find(*std::prev(above));
}

void StoreState::ForEach(const std::function<bool(StepRecord)>& visit, int64_t first_step) const {
  for (auto it = steps_.lower_bound(first_step); it != steps_.end(); ++it) {
    if (!visit(Unpack(it->second))) return;
  }
}

std::optional<int64_t> StoreState::LatestCommitted() const {
  return committed_.empty() ? std::nullopt : std::optional(*committed_.rbegin());
}

std::optional<StepRecord> StoreState::FindBest(std::string_view metric, BestMode mode) const {
  const Held* best = nullptr;
  double best_value = 0;
  for (const int64_t step : committed_) {
    const Held& held = steps_.find(step)->second;
    if (!held.healthy) continue;
    const std::optional<double> value = MetricOf(held, metric);
    if (!value || !std::isfinite(*value)) continue;
    if (best != nullptr && (mode == BestMode::kLowest ? *value > best_value : *value < best_value)) continue;
    best = &held;
    best_value = *value;
  }
  return best == nullptr ? std::nullopt : std::optional(Unpack(*best));
}

std::vector<SavePhase> StoreState::Phases(int64_t step, std::string_view attempt) const {
  const auto found = phases_.find(step);
  if (found == phases_.end()) return {};
  PhasesRecord record = Own(found->second).GetPhases();
  return record.attempt == attempt ? std::move(record.phases) : std::vector<SavePhase>();
}

// Not in the header: clang cannot compare attempts against libc++ 14, whose arrays have no operator<=>.
bool StoreState::IsReferenced(const AttemptId& attempt) const { return references_.contains(attempt); }

std::vector<DeletionRecord> StoreState::Deletions() const {
  std::vector<DeletionRecord> deletions;
  deletions.reserve(garbage_.size());
  for (const auto& [attempt, deletion] : garbage_) deletions.push_back(deletion);
  return deletions;
}

}  // namespace tidemark::storage
