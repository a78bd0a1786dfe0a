// The trainer's requests for single steps: delete one, tag one.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "snapshot/guarded.h"
#include "snapshot/housekeeping/housekeeper.h"
#include "storage/records/tag.h"

namespace tidemark {
namespace {

// The steps that have the tag, except those whose files are gone.
absl::StatusOr<std::vector<int64_t>> StepsTagged(const storage::StepCatalog& catalog, std::string_view name) {
  std::vector<int64_t> steps;
  absl::Status status = catalog.ForEach([&](const storage::StepRecord& record) {
    if (record.info.state != StepState::kDeleted && storage::HasTag(record.info.tags, name)) {
      steps.push_back(record.info.step);
    }
    return true;
  });
  if (!status.ok()) return status;
  return steps;
}

}  // namespace

absl::Status Housekeeper::BeginDeletion(std::string_view what) {
  absl::MutexLock lock(&mutex_);
  if (retention_ended_) return ClosedError();
  // A callback of a deletion. At its end this one would let a restore begin beside the other.
  if (deleting_) {
    return absl::FailedPreconditionError(
        fmt::format("{}: a callback asked for it while other steps are being deleted", what));
  }
  if (pauses_ > 0) return absl::UnavailableError(fmt::format("{} while a restore is running", what));
  deleting_ = true;
  return absl::OkStatus();
}

void Housekeeper::EndDeletion() {
  absl::MutexLock lock(&mutex_);
  deleting_ = false;
  retention_due_ = wake_ = true;  // retention removes the files
}

absl::StatusOr<std::vector<int64_t>> Housekeeper::DiscardAfter(int64_t step, const std::string& reason,
                                                               const std::function<void()>& before_files_go) {
  std::vector<int64_t> deleted;
  absl::Status status = Run([&](storage::Store&) -> absl::Status {
    if (absl::Status refused = BeginDeletion(fmt::format("the steps after {} are not discarded", step)); !refused.ok())
      return refused;
    storage::Retention::Discarded discarded;
    const absl::Status done =
        Guarded("DiscardAfter", [&] { retention_.DiscardAfter(step, reason, host_.claims, &discarded); });
    if (discarded.began) before_files_go();
    EndDeletion();
    deleted = std::move(discarded.deleted);
    host_.statistics.AddDeleted(deleted.size());
    for (const int64_t gone : deleted) host_.listeners.Deleted(gone, reason);
    return done.ok() ? discarded.error : done;
  });
  if (!status.ok()) return status;
  return deleted;
}

absl::Status Housekeeper::Delete(int64_t step, std::string reason) {
  return Run([&](storage::Store& store) -> absl::Status {
    absl::StatusOr<std::optional<storage::StepRecord>> record = store.catalog().Find(step);
    if (!record.ok()) return record.status();
    if (!record->has_value() || (*record)->info.state != StepState::kCommitted) {
      return absl::NotFoundError(fmt::format("step {} is not committed", step));
    }
    const auto attempt = storage::FromHex((*record)->info.attempt);
    if (!attempt) return absl::DataLossError(fmt::format("the record of step {} names no attempt", step));
    if (absl::Status refused = BeginDeletion(fmt::format("step {} is not deleted", step)); !refused.ok()) {
      return refused;
    }
    absl::StatusOr<storage::Retention::DeleteResult> result = Guarded("Delete", [&] {
      return retention_.LetGo({{.step = step, .attempt = storage::AttemptId{*attempt}, .reason = reason}}, host_.claims,
                              [this] { return UnjudgedUnlessEnded(); });
    });
    EndDeletion();
    if (!result.ok()) return result.status();
    if (!result->kept.empty()) {
      return absl::FailedPreconditionError(
          fmt::format("step {} is not deleted: {}", step, result->kept.begin()->second));
    }
    if (result->deleted.empty()) {
      return absl::UnavailableError(fmt::format("step {} is not deleted: it has changed in the meantime", step));
    }
    host_.statistics.AddDeleted(1);
    host_.listeners.Deleted(step, reason);
    return absl::OkStatus();
  });
}

absl::Status Housekeeper::Tag(int64_t step, std::string_view name) {
  return Run([&](storage::Store& store) { return store.Tag(step, name); });
}

absl::Status Housekeeper::Untag(std::string_view name) {
  return Run([&](storage::Store& store) -> absl::Status {
    // Without a report it only brings the catalog up to date: another process may have moved the tag just now.
    if (absl::Status fresh = store.RecordReports({}).status(); !fresh.ok()) return fresh;
    const absl::StatusOr<std::vector<int64_t>> tagged = StepsTagged(store.catalog(), name);
    if (!tagged.ok()) return tagged.status();
    if (tagged->empty()) return absl::NotFoundError(fmt::format("no step has the tag '{}'", name));
    absl::Status first;
    for (const int64_t step : *tagged) first.Update(store.Untag(step, name));
    return first;
  });
}

}  // namespace tidemark
