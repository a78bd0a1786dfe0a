// What an opening makes of the index that it finds.

#include <memory>
#include <optional>
#include <utility>

#include "fmt/format.h"
#include "storage/journal/journal_files.h"
#include "storage/store/index_state.h"
#include "storage/store/lease.h"
#include "storage/store/store_identity.h"
#include "storage/store/store_journal.h"

namespace tidemark::storage {

// What the index has applied, if it says so. It may lack facts, but it saw them in the journal.
JournalPlace StoreJournal::AppliedByOldIndex() const {
  const absl::StatusOr<std::unique_ptr<Manifest>> index = Manifest::OpenReadOnly(files_, layout_.index());
  if (!index.ok() || (*index)->store_id() != store_) return JournalPlace();
  const absl::StatusOr<std::optional<JournalPlace>> place = (*index)->Applied();
  return place.ok() && place->has_value() ? **place : JournalPlace();
}

// An index has applied only entries that survive power loss. Where the journal ends before, it has lost some, unless it
// was made anew since, with a newer epoch.
absl::Status StoreJournal::CheckReaches(const JournalPlace& applied, const JournalPlace& last) {
  if (last.epoch > applied.epoch || last.number >= applied.number) return absl::OkStatus();
  return absl::DataLossError(
      fmt::format("the journal ends with entry {}, and the index has applied entry {}", last.number, applied.number));
}

absl::Status StoreJournal::BeginIndex() {
  const absl::StatusOr<FileId> folder = files_.Identify(layout_.index());
  if (!folder.ok()) return folder.status();
  index_folder_ = *folder;
  return MarkIndexOpen(files_, layout_.index(), BootId());
}

absl::StatusOr<std::unique_ptr<Manifest>> StoreJournal::OpenUsableIndex(JournalPlace* applied, absl::Status* why) {
  if (absl::Status there = files_.TypeOf(layout_.index()).status(); !there.ok()) {
    if (absl::IsNotFound(there)) return nullptr;
    return there;
  }
  const absl::StatusOr<bool> believed = IsIndexBelieved(files_, layout_.index(), BootId());
  if (!believed.ok()) return believed.status();
  if (!*believed) return nullptr;
  // If entries of the journal are lost, the index may have them. A power loss while it is opened to write could harm
  // it.
  const absl::Status there = Follow(AppliedByOldIndex()).status();
  if (absl::IsOutOfRange(there)) *why = absl::DataLossError("it is of another journal");
  if (absl::IsOutOfRange(there) || absl::IsDataLoss(there)) return nullptr;
  if (absl::Status status = BeginIndex(); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<Manifest>> index = Manifest::Open(files_, layout_.index());
  if (!index.ok()) return index.status();
  const absl::StatusOr<std::optional<JournalPlace>> place = (*index)->Applied();
  if (!place.ok()) return place.status();
  if (!place->has_value()) return nullptr;  // its making was cut short
  if ((*index)->store_id() != store_) {
    *why = absl::DataLossError("it is of another store");
    return nullptr;
  }
  *applied = **place;
  return *std::move(index);
}

absl::Status StoreJournal::OpenIndex() {
  JournalPlace applied;
  absl::Status why;
  absl::StatusOr<std::unique_ptr<Manifest>> index = OpenUsableIndex(&applied, &why);
  if (index.ok() && *index != nullptr) {
    absl::StatusOr<Following> following = Follow(applied);
    if (following.ok()) {
      following->index = index->get();
      Publish(*std::move(following), *std::move(index));
      return absl::OkStatus();
    }
    if (!absl::IsOutOfRange(following.status())) return following.status();
    index->reset();
    why = absl::DataLossError("it is of another journal");
  }
  // Only what a look at it has proved useless is removed, and not before the journal has been read as a whole.
  const bool is_useless = index.ok() || IsMissingOrDamaged(index.status()) || absl::IsUnimplemented(index.status());
  if (!index.ok()) why = index.status();
  index_is_new_ = is_useless;
  if (!is_useless) Warn("the index cannot be used just now, so the journal is read into memory", why);
  const JournalPlace before = is_useless ? AppliedByOldIndex() : JournalPlace();
  // What an old listing lacks must not be taken for lost.
  if (before.number > 0) JournalFiles(files_, layout_.journal()).LookAfresh(before.number);
  bool has_visible = false;
  if (absl::Status status = ReadIntoMemory(&has_visible); !status.ok()) return status;
  if (!is_useless) return absl::OkStatus();
  if (absl::Status reaches = CheckReaches(before, now_.journal->last()); !reaches.ok()) return reaches;
  if (!why.ok()) Warn("the index cannot be used and is made anew from the journal", why);
  if (absl::Status made = MakeIndex(); made.ok()) {
    in_memory_.clear();  // no caller has a catalog yet
  } else {
    Warn("the index cannot be written, so the journal is read into memory", made);
  }
  return absl::OkStatus();
}

// After an error the catalog is what it was.
absl::Status StoreJournal::MakeIndex() {
  if (absl::Status status = RemoveIndex(files_, layout_.index()); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<Manifest>> index = Manifest::Create(files_, layout_.index(), store_);
  if (!index.ok()) return index.status();
  if (absl::Status status = BeginIndex(); !status.ok()) return status;
  absl::StatusOr<Following> following = Follow(JournalPlace());
  if (!following.ok()) return following.status();
  following->index = index->get();
  bool has_visible = false;
  if (absl::Status status = Read(*following, &has_visible); !status.ok()) return status;
  // Something must be in it, or the next opening takes it for one whose making was cut short.
  if (absl::Status status = (*index)->Apply(following->applied, {}); !status.ok()) return status;
  Publish(*std::move(following), *std::move(index));
  return absl::OkStatus();
}

}  // namespace tidemark::storage
