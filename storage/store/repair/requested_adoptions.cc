#include "storage/store/repair/requested_adoptions.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "fmt/format.h"
#include "storage/store/store_identity.h"

namespace tidemark::storage {
namespace {

absl::Status NotAdopted(int64_t step, const absl::Status& why) {
  if (absl::IsUnknown(why)) {
    return absl::UnknownError(fmt::format("it is not known whether step {} is committed; repair again: {}", step,
                                          std::string(why.message())));
  }
  // kNotFound would say that there is no store.
  const auto code = absl::IsNotFound(why) ? absl::StatusCode::kInvalidArgument : why.code();
  return absl::Status(code, fmt::format("step {} is not adopted: {}", step, std::string(why.message())));
}

absl::StatusOr<bool> IsCommitted(const StepCatalog& catalog, int64_t step) {
  const absl::StatusOr<std::optional<StepRecord>> record = catalog.Find(step);
  if (!record.ok()) return record.status();
  return record->has_value() && (*record)->info.state == StepState::kCommitted;
}

}  // namespace

AttemptVerifyOptions RequestedAdoptions::Options(int64_t step) {
  return {.read = options_.read,
          .progress =
              [this, step](uint64_t bytes) {
                progress_.step = step;
                progress_.bytes_done += bytes;
                progress_.bytes_total = std::max(progress_.bytes_total, progress_.bytes_done);
                if (options_.progress != nullptr) options_.progress(progress_);
              },
          .cancelled = options_.cancelled};
}

absl::Status RequestedAdoptions::List(const Store& store) {
  for (const int64_t step : options_.adopt) {
    absl::StatusOr<std::vector<Adoptable>> found =
        FindAdoptables(files_, store.layout(), store.id(), store.catalog(), step);
    if (found.ok()) {
      // It is read; a copy is written and read, too.
      progress_.bytes_total += found->front().record.info.stored_bytes * (mode_ == AdoptionMode::kLink ? 1 : 3);
      found_[step] = *std::move(found);
      continue;
    }
    const absl::StatusOr<bool> committed = IsCommitted(store.catalog(), step);
    if (!committed.ok()) return committed.status();
    if (!*committed) return NotAdopted(step, found.status());
    found_[step] = {};
  }
  return absl::OkStatus();
}

absl::Status RequestedAdoptions::Verify(const Store& store) {
  for (auto& [step, found] : found_) {
    absl::Status newest;
    while (!found.empty()) {
      const absl::Status sound =
          VerifyAdoptable(files_, store.layout(), store.id(), store.catalog(), found.front(), Options(step));
      if (sound.ok()) break;
      if (absl::IsCancelled(sound)) return sound;
      if (!IsMissingOrDamaged(sound)) return NotAdopted(step, sound);
      newest.Update(absl::DataLossError(sound.message()));
      found.erase(found.begin());
    }
    if (!newest.ok() && found.empty()) return NotAdopted(step, newest);
  }
  return absl::OkStatus();
}

bool RequestedAdoptions::ReferTo(const AttemptId& attempt) const {
  return std::any_of(found_.begin(), found_.end(), [&](const auto& of_step) {
    if (of_step.second.empty()) return false;
    const std::vector<FileReference>& references = of_step.second.front().record.references;
    return std::any_of(references.begin(), references.end(),
                       [&](const FileReference& file) { return file.attempt == attempt; });
  });
}

absl::Status RequestedAdoptions::Adopt(Store& store, RepairReport& report) {
  const StoreLayout& layout = store.layout();
  for (const auto& [step, found] : found_) {
    const absl::StatusOr<bool> committed = IsCommitted(store.catalog(), step);
    if (!committed.ok()) return committed.status();
    if (*committed) {
      tell_({.step = step, .path = layout.steps(), .why = fmt::format("step {} is committed already", step)});
      continue;
    }
    // It was committed and turned out damaged.
    if (found.empty()) return NotAdopted(step, absl::DataLossError("there is no other attempt at it"));
    const absl::Status status = CommitCopyOf(files_, store, found.front(), mode_, Options(step));
    if (absl::IsCancelled(status)) return status;
    if (!status.ok()) return NotAdopted(step, status);
    const StepFolder& folder = found.front().folder;
    tell_({.kind = StoreChange::Kind::kAdopted,
           .step = step,
           .path = layout.attempt(folder.step, folder.attempt),
           .why = "its save was cut short, but every byte of its entries verifies"});
    for (std::vector<LostStep>* list : {&report.lost, &report.unread}) {
      std::erase_if(*list, [step = step](const LostStep& lost) { return lost.step == step; });
    }
  }
  return absl::OkStatus();
}

}  // namespace tidemark::storage
