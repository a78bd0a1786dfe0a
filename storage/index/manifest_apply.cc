// What a manifest is written by: the facts of a journal.

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "fmt/format.h"
#include "rocksdb/write_batch.h"
#include "storage/index/database.h"
#include "storage/index/index_keys.h"
#include "storage/index/key_iteration.h"
#include "storage/index/manifest.h"
#include "storage/index/manifest_impl.h"
#include "storage/index/record_batch.h"
#include "storage/records/fact.h"

namespace tidemark::storage {
namespace {

// A step's record before and after some facts.
struct Change {
  std::optional<StepRecord> before;
  std::optional<StepRecord> now;
};

}  // namespace

absl::StatusOr<std::optional<JournalPlace>> Manifest::Applied() const {
  return impl_->Get(kJournalKey, DecodePlace, kJournalKey);
}

absl::Status Manifest::Apply(const JournalPlace& place, std::span<const Fact> facts) {
  absl::MutexLock lock(&impl_->write_mutex);
  rocksdb::WriteBatch batch;
  std::map<int64_t, Change> changes;
  std::optional<BestModes> modes;
  uint64_t sequence = impl_->last_sequence;
  absl::Status status;
  for (const Fact& fact : facts) {
    if (const std::optional<int64_t> step = StepOfFact(fact)) {
      auto [found, is_new] = changes.try_emplace(*step);
      Change& change = found->second;
      if (is_new) {
        absl::StatusOr<std::optional<StepRecord>> record = Find(*step);
        if (!record.ok()) return record.status();
        change = {.before = *record, .now = *record};
      }
      const std::string attempt_before = change.now ? change.now->info.attempt : "";
      const std::optional<DeletionRecord> garbage = ApplyToStep(fact, change.now);
      if (garbage) status.Update(PutDeletion(batch, *garbage));
      if (const auto* assigned = std::get_if<StepFact>(&fact)) {
        sequence = std::max(sequence, assigned->record.info.sequence);
        if (assigned->record.info.attempt != attempt_before) batch.Delete(PhasesKey(*step));
        const auto attempt = FromHex(assigned->record.info.attempt);
        if (attempt && MayHaveFiles(assigned->record.info.state)) batch.Delete(DeletionKey(AttemptId{*attempt}));
      }
    } else if (const auto* phases = std::get_if<PhasesFact>(&fact)) {
      // Those of an attempt that was replaced must not take the place of the new one's.
      const auto changed = changes.find(phases->record.step);
      absl::StatusOr<std::optional<StepRecord>> record =
          changed == changes.end() ? Find(phases->record.step) : changed->second.now;
      if (!record.ok()) return record.status();
      if (record->has_value() && (*record)->info.attempt == phases->record.attempt) {
        status.Update(PutPhases(batch, phases->record));
      }
    } else if (const auto* best = std::get_if<BestModesFact>(&fact)) {
      if (!modes) {
        absl::StatusOr<BestModes> recorded = RecordedBestModes();
        if (!recorded.ok()) return recorded.status();
        modes = *std::move(recorded);
      }
      for (const auto& [metric, mode] : best->modes) modes->insert_or_assign(metric, mode);
    } else if (const auto* request = std::get_if<DeletionRequestFact>(&fact)) {
      status.Update(PutRequest(batch, *request));
    } else if (const auto* answer = std::get_if<AnswerFact>(&fact)) {
      RemoveRequest(batch, answer->id);
    }
  }
  std::vector<StepInfo> steps;
  for (const auto& [step, change] : changes) {
    if (!change.now) continue;
    absl::StatusOr<StepInfo> info = PutStep(batch, change.before, *change.now);
    if (!info.ok()) return info.status();
    steps.push_back(*std::move(info));
  }
  if (modes) status.Update(PutBestModes(batch, *modes));
  if (sequence != impl_->last_sequence) {
    status.Update(PutStore(batch, {.store_id = impl_->store, .sequence = sequence}));
  }
  if (!status.ok()) return status;
  PutApplied(batch, place);
  for (const StepInfo& info : steps) impl_->last_step = std::max<int64_t>(impl_->last_step, info.step);
  status = impl_->database->Write(batch);
  impl_->kept.Wrote(status, std::move(steps));
  if (status.ok()) impl_->last_sequence = sequence;
  return status;
}

absl::Status Manifest::ForgetDeletions(std::span<const AttemptId> attempts) {
  rocksdb::WriteBatch batch;
  for (const AttemptId& attempt : attempts) batch.Delete(DeletionKey(attempt));
  return impl_->database->Write(batch);
}

}  // namespace tidemark::storage
