#include "storage/ranks/epoch_commits.h"

#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "storage/records/fact.h"
#include "storage/store/entry_facts.h"

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

EpochCommits::EpochCommits(std::unique_ptr<Journal> journal, const HeldStore& held)
    : journal_(std::move(journal)), store_(held.id), newest_epoch_(held.place.epoch) {}

absl::StatusOr<std::unique_ptr<EpochCommits>> EpochCommits::Open(FileSystem& files, const StoreLayout& layout,
                                                                 const HeldStore& held) {
  absl::StatusOr<std::unique_ptr<Journal>> journal = Journal::Open(files, layout.journal(), held.place);
  if (!journal.ok()) return journal.status();
  return std::unique_ptr<EpochCommits>(new EpochCommits(*std::move(journal), held));
}

// `*has_visible`: whether something that concerns the attempt is there and may not be established.
absl::StatusOr<JournalSight> EpochCommits::Look(const AttemptId& attempt, bool* has_visible) {
  *has_visible = false;
  if (asked_ != attempt) committed_ = false;
  asked_ = attempt;
  const absl::Status looked = journal_->Look([&](const KnownEntry& known, bool is_established) {
    if (!known.counts || !refused_.ok()) return;
    const absl::StatusOr<std::vector<Fact>> facts = DecodeFacts(known.entry, store_);
    if (!facts.ok()) {
      // What is only visible may turn out to be another entry.
      if (is_established) refused_ = facts.status();
      return;
    }
    if (known.place.epoch > newest_epoch_) {
      if (is_established) {
        newest_epoch_ = known.place.epoch;
      } else {
        *has_visible = true;
      }
    }
    for (const Fact& fact : *facts) {
      if (CommittedBy(fact) == attempt) (is_established ? committed_ : *has_visible) = true;
    }
  });
  if (!looked.ok()) return looked;
  if (!refused_.ok()) return refused_;
  return JournalSight{.committed = committed_, .epoch = newest_epoch_};
}

absl::StatusOr<JournalSight> EpochCommits::Look(const AttemptId& attempt) {
  bool has_visible = false;
  return Look(attempt, &has_visible);
}

absl::StatusOr<JournalSight> EpochCommits::Settle(const AttemptId& attempt) {
  journal_->LookPastCaches();
  journal_->LookAfresh();
  bool has_visible = false;
  absl::StatusOr<JournalSight> sight = Look(attempt, &has_visible);
  if (!sight.ok() || !has_visible) return sight;
  if (const Appended settled = journal_->Settle(); !settled.ok()) return settled.status;
  return Look(attempt);
}

}  // namespace tidemark::storage
