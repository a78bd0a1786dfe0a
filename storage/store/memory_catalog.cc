#include "storage/store/memory_catalog.h"

#include <algorithm>
#include <cmath>
#include <iterator>
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

void MemoryCatalog::Apply(std::span<const Fact> facts) {
  absl::MutexLock lock(&mutex_);
  for (const Fact& fact : facts) ApplyOne(fact);
}

void MemoryCatalog::ForgetGarbage(std::span<const AttemptId> attempts) {
  absl::MutexLock lock(&mutex_);
  for (const AttemptId& attempt : attempts) garbage_.erase(attempt);
}

void MemoryCatalog::ApplyOne(const Fact& fact) {
  if (const std::optional<int64_t> step = StepOfFact(fact)) return ApplyToRecord(*step, fact);
  if (const auto* phases = std::get_if<PhasesFact>(&fact)) return ApplyPhases(phases->record);
  if (const auto* best = std::get_if<BestModesFact>(&fact)) {
    for (const auto& [metric, mode] : best->modes) best_modes_.insert_or_assign(metric, mode);
  }
  if (const auto* request = std::get_if<DeletionRequestFact>(&fact)) requests_.insert_or_assign(request->id, *request);
  if (const auto* answer = std::get_if<AnswerFact>(&fact)) requests_.erase(answer->id);
}

void MemoryCatalog::ApplyToRecord(int64_t step, const Fact& fact) {
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

void MemoryCatalog::Index(const StepRecord& record, bool into) {
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

void MemoryCatalog::Hold(int64_t step, Held& held, std::unique_ptr<std::optional<StepRecord>> record) {
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

void MemoryCatalog::ApplyPhases(const PhasesRecord& phases) {
  const auto found = steps_.find(phases.step);
  if (found == steps_.end()) return;
  const Held& held = found->second;
  if ((held.record ? (*held.record)->info.attempt : Unpack(held).info.attempt) != phases.attempt) return;
  RecordWriter writer;
  writer.PutPhases(phases);
  phases_.insert_or_assign(phases.step, Exactly(writer));
}

StepRecord MemoryCatalog::Unpack(const Held& held) {
  if (held.record) return **held.record;
  RecordReader reader = Own(held.packed);
  StepRecord record = reader.GetStep();
  Check(reader.ok(), "a packed record cannot be read");
  return record;
}

std::optional<double> MemoryCatalog::MetricOf(const Held& held, std::string_view metric) {
  if (!held.record) return Own(held.packed).FindMetricOfStep(metric);
  const Metrics& metrics = (*held.record)->info.metrics;
  const auto found = metrics.find(std::string(metric));
  return found == metrics.end() ? std::nullopt : std::optional(found->second);
}

uint64_t MemoryCatalog::last_sequence() const {
  absl::MutexLock lock(&mutex_);
  return last_sequence_;
}

absl::StatusOr<std::optional<StepRecord>> MemoryCatalog::Find(int64_t step) const {
  absl::MutexLock lock(&mutex_);
  const auto found = steps_.find(step);
  return found == steps_.end() ? std::nullopt : std::optional(Unpack(found->second));
}

absl::StatusOr<std::optional<StepRecord>> MemoryCatalog::FindAtOrBelow(int64_t step) const {
  absl::MutexLock lock(&mutex_);
  const auto above = steps_.upper_bound(step);
  return above == steps_.begin() ? std::nullopt : std::optional(Unpack(std::prev(above)->second));
}

absl::StatusOr<std::optional<StepRecord>> MemoryCatalog::FindCommittedAtOrBelow(int64_t step) const {
  absl::MutexLock lock(&mutex_);
  const auto above = committed_.upper_bound(step);
  return above == committed_.begin() ? std::nullopt : std::optional(Unpack(steps_.find(*std::prev(above))->second));
}

absl::Status MemoryCatalog::ForEach(const std::function<bool(StepRecord)>& visit, int64_t first_step) const {
  absl::MutexLock lock(&mutex_);
  for (auto it = steps_.lower_bound(first_step); it != steps_.end(); ++it) {
    if (!visit(Unpack(it->second))) break;
  }
  return absl::OkStatus();
}

absl::StatusOr<CommittedSteps> MemoryCatalog::Committed() const {
  absl::MutexLock lock(&mutex_);
  CommittedSteps steps;
  for (const int64_t step : committed_) steps.push_back(KeptStep(Unpack(steps_.find(step)->second).info));
  return steps;
}

absl::StatusOr<std::optional<int64_t>> MemoryCatalog::LatestCommitted() const {
  absl::MutexLock lock(&mutex_);
  return committed_.empty() ? std::nullopt : std::optional(*committed_.rbegin());
}

absl::StatusOr<std::optional<StepRecord>> MemoryCatalog::FindBest(std::string_view metric, BestMode mode) const {
  absl::MutexLock lock(&mutex_);
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

absl::StatusOr<BestModes> MemoryCatalog::RecordedBestModes() const {
  absl::MutexLock lock(&mutex_);
  return best_modes_;
}

absl::StatusOr<std::vector<SavePhase>> MemoryCatalog::Phases(int64_t step, std::string_view attempt) const {
  absl::MutexLock lock(&mutex_);
  const auto found = phases_.find(step);
  if (found == phases_.end()) return std::vector<SavePhase>();
  PhasesRecord record = Own(found->second).GetPhases();
  return record.attempt == attempt ? std::move(record.phases) : std::vector<SavePhase>();
}

absl::StatusOr<bool> MemoryCatalog::IsReferenced(const AttemptId& attempt) const {
  absl::MutexLock lock(&mutex_);
  return references_.contains(attempt);
}

absl::StatusOr<std::vector<DeletionRecord>> MemoryCatalog::Deletions() const {
  absl::MutexLock lock(&mutex_);
  std::vector<DeletionRecord> deletions;
  deletions.reserve(garbage_.size());
  for (const auto& [attempt, deletion] : garbage_) deletions.push_back(deletion);
  return deletions;
}

absl::StatusOr<std::vector<DeletionRequestFact>> MemoryCatalog::Requests() const {
  absl::MutexLock lock(&mutex_);
  std::vector<DeletionRequestFact> requests;
  for (const auto& [id, request] : requests_) requests.push_back(request);
  SortRequests(requests);
  return requests;
}

}  // namespace tidemark::storage
