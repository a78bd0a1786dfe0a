#include "storage/manifest/forgotten_deletions.h"

#include <cstddef>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "fmt/format.h"
#include "storage/manifest/deletion_mark.h"

namespace tidemark::storage {
namespace {

void Tell(const StoreOptions& options, StoreChange change) {
  if (options.on_change != nullptr) options.on_change(change);
}

// Takes back what the folder says, unless the step is another attempt's by now.
absl::StatusOr<bool> KeepStep(FileSystem& files, const Store& store, const Reconciliation::Forgotten& step,
                              const StoreOptions& options) {
  const auto& [folder, reason] = step;
  absl::StatusOr<std::optional<StepRecord>> record = store.manifest().Find(folder.step);
  if (!record.ok()) return record.status();
  if (!record->has_value() || (*record)->info.state != StepState::kCommitted ||
      (*record)->info.attempt != ToHex(folder.attempt.bytes)) {
    return true;
  }
  const std::string why = fmt::format("it is {}, but its record says that it is committed",
                                      (*record)->info.pinned ? "pinned" : "the latest");
  if (absl::Status status = RemoveDeletionMark(files, store.layout(), folder); !status.ok()) {
    options.warn(
        fmt::format("step {} stays: {}; but a rebuild of the manifest would delete it, because its deleted.json could "
                    "not be removed: {}",
                    folder.step, why, std::string(status.message())));
    return false;
  }
  options.warn(fmt::format("step {} stays, and its deleted.json, which said that it was deleted ({}), was removed: {}",
                           folder.step, reason, why));
  Tell(options, {.kind = StoreChange::Kind::kRemoved,
                 .step = folder.step,
                 .path = DeletionMarkPath(store.layout(), folder),
                 .why = "the step stays: " + why});
  return true;
}

}  // namespace

absl::StatusOr<bool> SettleForgotten(FileSystem& files, Store& store,
                                     const std::vector<Reconciliation::Forgotten>& forgotten,
                                     const StoreOptions& options) {
  std::vector<Store::StepNote> notes;
  for (const auto& [folder, reason] : forgotten) {
    notes.push_back({.step = folder.step, .attempt = ToHex(folder.attempt.bytes), .deleted = true, .reason = reason});
  }
  std::set<int64_t> deleted;
  absl::Status unsure;
  for (size_t done = 0; done < notes.size() && unsure.ok();) {
    absl::StatusOr<Store::NotedSteps> noted =
        store.NoteSteps({notes.begin() + static_cast<ptrdiff_t>(done), notes.end()});
    if (!noted.ok()) return noted.status();
    done += noted->notes;
    deleted.insert(noted->deleted.begin(), noted->deleted.end());
    if (!noted->unsure.empty()) unsure = noted->unsure.begin()->second;
  }
  for (const auto& [folder, reason] : forgotten) {
    if (!deleted.contains(folder.step)) continue;
    const std::string why = fmt::format("its deleted.json says that it was deleted: {}", reason);
    options.warn(
        fmt::format("step {} is deleted, although its record said that it is committed: {}", folder.step, why));
    Tell(options, {.kind = StoreChange::Kind::kMarkedDeleted,
                   .step = folder.step,
                   .path = store.layout().attempt(folder.step, folder.attempt),
                   .why = why});
  }
  if (!unsure.ok()) return unsure;
  bool settled = true;
  for (const Reconciliation::Forgotten& step : forgotten) {
    if (deleted.contains(step.folder.step)) continue;
    absl::StatusOr<bool> kept = KeepStep(files, store, step, options);
    if (!kept.ok()) return kept.status();
    settled = settled && *kept;
  }
  return settled;
}

}  // namespace tidemark::storage
