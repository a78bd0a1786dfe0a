#include "storage/ranks/commit_watch.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "storage/records/fact.h"

namespace tidemark::storage {
namespace {

// The attempt that the fact commits.
std::optional<AttemptId> CommittedBy(const Fact& fact) {
  const auto* step = std::get_if<StepFact>(&fact);
  if (step == nullptr || step->record.info.state != StepState::kCommitted) return std::nullopt;
  const auto id = FromHex(step->record.info.attempt);
  return id ? std::make_optional(AttemptId{*id}) : std::nullopt;
}

}  // namespace

CommitWatch::CommitWatch(std::unique_ptr<Journal> journal, const HeldStore& held)
    : journal_(std::move(journal)), epoch_(held.epoch), newest_epoch_(held.place.epoch) {}

absl::StatusOr<std::unique_ptr<CommitWatch>> CommitWatch::Open(FileSystem& files, const StoreLayout& layout,
                                                               const HeldStore& held) {
  absl::StatusOr<std::unique_ptr<Journal>> journal = Journal::Open(files, layout.journal(), held.place);
  if (!journal.ok()) return journal.status();
  return std::unique_ptr<CommitWatch>(new CommitWatch(*std::move(journal), held));
}

// `*has_visible`: whether something that concerns the attempt is there and may not be established.
absl::StatusOr<JournalSight> CommitWatch::Look(const AttemptId& attempt, bool* has_visible) {
  absl::Status understood;
  *has_visible = false;
  const absl::Status looked = journal_->Look([&](const KnownEntry& known, bool is_established) {
    if (!known.counts || !understood.ok()) return;
    if (!is_established && known.place.epoch > newest_epoch_) *has_visible = true;
    if (is_established) newest_epoch_ = std::max(newest_epoch_, known.place.epoch);
    if (known.entry.epoch != epoch_) return;
    for (const std::string& bytes : known.entry.facts) {
      const absl::StatusOr<Fact> fact = DecodeFact(bytes);
      if (!fact.ok()) {
        understood = fact.status();
        return;
      }
      const std::optional<AttemptId> committed = CommittedBy(*fact);
      if (!committed) continue;
      if (is_established) {
        committed_.insert(*committed);
      } else if (*committed == attempt) {
        *has_visible = true;
      }
    }
  });
  if (!looked.ok()) return looked;
  if (!understood.ok()) return understood;
  return JournalSight{.committed = committed_.contains(attempt), .epoch = newest_epoch_};
}

absl::StatusOr<JournalSight> CommitWatch::Look(const AttemptId& attempt) {
  bool has_visible = false;
  return Look(attempt, &has_visible);
}

absl::StatusOr<JournalSight> CommitWatch::Settle(const AttemptId& attempt) {
  journal_->LookPastCaches();
  journal_->LookAfresh();
  bool has_visible = false;
  absl::StatusOr<JournalSight> sight = Look(attempt, &has_visible);
  if (!sight.ok() || !has_visible) return sight;
  if (const Appended settled = journal_->Settle(); !settled.ok()) return settled.status;
  return Look(attempt);
}

}  // namespace tidemark::storage
