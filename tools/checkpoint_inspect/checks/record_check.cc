#include "tools/checkpoint_inspect/checks/record_check.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "fmt/format.h"
#include "storage/index/manifest.h"
#include "storage/journal/journal.h"
#include "storage/records/fact.h"
#include "storage/store/attempt_reader.h"
#include "storage/store/entry_facts.h"
#include "storage/store/first_format/convert.h"
#include "storage/store/garbage.h"
#include "storage/store/memory_catalog.h"
#include "storage/store/rebuild.h"
#include "storage/store/store_identity.h"
#include "storage/store/store_layout.h"
#include "tools/checkpoint_inspect/cli/interrupt.h"

namespace tidemark::inspect {
namespace {

using storage::AttemptId;
using storage::JournalPlace;
using storage::StepFolder;

// What a whole reading of the journal gives.
struct JournalReading {
  storage::MemoryCatalog catalog;
  JournalPlace last;
  std::optional<JournalPlace> at_index;  // the entry of the number up to which the index has applied
};

// Whether a process has the store open for writing. A look leaves nothing behind: opening a file shares a lock that the
// holder of LOCK excludes, and a process that wants that lock waits for so short a look.
absl::StatusOr<bool> IsHeld(storage::FileSystem& files, const storage::StoreLayout& layout) {
  const absl::Status there = files.TypeOf(layout.lock()).status();
  if (absl::IsNotFound(there)) return false;
  if (!there.ok()) return there;
  const absl::Status opened = files.OpenForRead(layout.lock(), /*direct=*/false).status();
  if (absl::IsNotFound(opened)) return true;
  if (!opened.ok()) return opened;
  return false;
}

// The index as it was opened.
struct OpenIndex {
  std::unique_ptr<storage::Manifest> manifest;
  JournalPlace applied;  // the last entry that it has applied
};

// `check.index` says what is wrong. nullopt: there is nothing to compare with the journal.
std::optional<OpenIndex> ReadIndex(storage::FileSystem& files, const storage::StoreLayout& layout,
                                   const storage::StoreId& store, RecordCheck& check) {
  absl::StatusOr<std::unique_ptr<storage::Manifest>> index = storage::Manifest::OpenReadOnly(files, layout.index());
  const absl::StatusOr<std::optional<JournalPlace>> place =
      index.ok() ? (*index)->Applied() : absl::StatusOr<std::optional<JournalPlace>>(index.status());
  // An error other than damage says nothing: a live trainer replaces files of the index.
  if (absl::IsDataLoss(place.status())) check.index = IndexCheck{.problem = place.status()};
  // Without a place its making was cut short.
  if (!place.ok() || !place->has_value()) return std::nullopt;
  check.index = IndexCheck{.entry = (*place)->number, .problem = (*index)->log_damage()};
  if ((*index)->store_id() != store) check.index->problem = absl::DataLossError("it is of another store");
  if (check.index->problem.ok()) {
    const absl::Status tables = (*index)->VerifyTables();
    if (absl::IsDataLoss(tables)) check.index->problem = tables;
  }
  if (!check.index->problem.ok()) return std::nullopt;
  return OpenIndex{.manifest = *std::move(index), .applied = **place};
}

absl::Status DecodeAll(const storage::JournalEntry& entry, const storage::StoreId& store,
                       std::vector<storage::Fact>* facts) {
  absl::StatusOr<std::vector<storage::Fact>> decoded = storage::DecodeFacts(entry, store);
  if (decoded.ok()) *facts = *std::move(decoded);
  return decoded.status();
}

absl::Status ReadJournal(storage::FileSystem& files, const storage::StoreLayout& layout, const storage::StoreId& store,
                         const std::optional<OpenIndex>& index, JournalReading& reading) {
  const absl::StatusOr<std::unique_ptr<storage::Journal>> journal =
      storage::Journal::Open(files, layout.journal(), JournalPlace());
  if (!journal.ok()) return journal.status();
  absl::Status undecoded;
  const absl::Status looked = (*journal)->Look([&](const storage::KnownEntry& known, bool) {
    std::vector<storage::Fact> facts;
    if (undecoded.ok()) undecoded = DecodeAll(known.entry, store, &facts);
    if (undecoded.ok() && known.counts) reading.catalog.Apply(facts);
    if (index && known.place.number == index->applied.number) reading.at_index = known.place;
    reading.last = known.place;
  });
  return looked.ok() ? undecoded : looked;
}

// What the index, which has only applied entries that survive power loss, says of the journal and the other way round.
void Compare(const OpenIndex& index, const JournalReading& reading, RecordCheck& check) {
  const JournalPlace& applied = index.applied;
  if (!reading.at_index && reading.last.epoch <= applied.epoch) {
    check.journal = absl::DataLossError(
        fmt::format("it ends with entry {}, and the index has applied entry {}", reading.last.number, applied.number));
    return;
  }
  if (!reading.at_index || reading.at_index->digest != applied.digest) {
    check.index->problem = absl::DataLossError("it is of another journal");
    return;
  }
  if (applied.number != reading.last.number) return;
  const absl::StatusOr<bool> same = storage::SaysTheSame(*index.manifest, reading.catalog);
  if (absl::IsDataLoss(same.status())) check.index->problem = same.status();
  if (same.ok() && !*same) check.index->problem = absl::DataLossError("its records differ from those of the journal");
}

// The attempts among `folders` that no record and no deletion names, and no step refers to.
absl::StatusOr<std::vector<StepFolder>> WithoutRecord(const storage::MemoryCatalog& catalog,
                                                      const std::vector<StepFolder>& folders) {
  std::set<AttemptId> deleted;
  const absl::StatusOr<std::vector<storage::DeletionRecord>> deletions = catalog.Deletions();
  if (!deletions.ok()) return deletions.status();
  for (const storage::DeletionRecord& deletion : *deletions) deleted.insert(deletion.attempt);
  std::vector<StepFolder> unnamed;
  for (const StepFolder& folder : folders) {
    const absl::StatusOr<std::optional<storage::StepRecord>> record = catalog.Find(folder.step);
    if (!record.ok()) return record.status();
    const bool is_named = *record && storage::MayHaveFiles((*record)->info.state) &&
                          (*record)->info.attempt == storage::ToHex(folder.attempt.bytes);
    const absl::StatusOr<bool> is_referenced = catalog.IsReferenced(folder.attempt);
    if (!is_referenced.ok()) return is_referenced.status();
    if (!is_named && !*is_referenced && !deleted.contains(folder.attempt)) unnamed.push_back(folder);
  }
  return unnamed;
}

// `is_held`: at a moment after `folders` were listed, and before the journal was read.
absl::Status JudgeFolders(const std::vector<StepFolder>& folders, bool is_held, const JournalReading& reading,
                          RecordCheck& check) {
  const absl::StatusOr<std::vector<StepFolder>> unnamed = WithoutRecord(reading.catalog, folders);
  if (!unnamed.ok()) return unnamed.status();
  for (const StepFolder& folder : *unnamed) {
    const uint64_t epoch = storage::EpochOf(folder.attempt);
    const std::string attempt = storage::ToHex(folder.attempt.bytes);
    // The first entry of an epoch stands before its attempts.
    if (epoch > reading.last.epoch && epoch < storage::kEpochMax) {
      check.journal.Update(absl::DataLossError(
          fmt::format("it has lost its end: its newest epoch is {}, and attempt {} of step {} is of epoch {}",
                      reading.last.epoch, attempt, folder.step, epoch)));
      continue;
    }
    const bool is_in_progress = is_held && epoch == reading.last.epoch;
    if (!is_in_progress) check.unfinished.push_back({.step = folder.step, .attempt = attempt});
  }
  std::sort(check.unfinished.begin(), check.unfinished.end(),
            [](const UnfinishedAttempt& a, const UnfinishedAttempt& b) { return a.step < b.step; });
  return absl::OkStatus();
}

// Of a store without a journal. One of the first format never had one. One whose making was cut short has neither an
// attempt nor an index.
bool HasLostJournal(storage::FileSystem& files, const storage::StoreLayout& layout,
                    const absl::StatusOr<std::vector<StepFolder>>& folders) {
  const bool had_one = (folders.ok() && !folders->empty()) || files.TypeOf(layout.index()).ok();
  return had_one && !storage::IsOfFirstFormat(files, layout).value_or(false);
}

}  // namespace

RecordCheck CheckRecords(storage::FileSystem& files, const std::string& directory, const storage::StoreId& store,
                         bool trusted) {
  const storage::StoreLayout layout(directory);
  RecordCheck check;
  const absl::Status identity = storage::ReadStoreIdentity(files, layout).status();
  if (absl::IsDataLoss(identity)) check.identity = identity;
  // In this order: what the folders and the index have when they are looked at is in the journal when that is read.
  const absl::StatusOr<std::vector<StepFolder>> folders = storage::ListAttempts(files, layout);
  if (!folders.ok() && !absl::IsNotFound(folders.status())) check.error.Update(folders.status());
  const absl::StatusOr<bool> is_held = IsHeld(files, layout);
  check.error.Update(is_held.status());
  std::optional<OpenIndex> index;
  if (trusted) index = ReadIndex(files, layout, store, check);
  if (IsInterrupted()) check.error.Update(absl::CancelledError("interrupted"));
  if (absl::IsCancelled(check.error)) return check;
  JournalReading reading;
  const absl::Status read = ReadJournal(files, layout, store, index, reading);
  check.entries = reading.last.number;
  if (absl::IsDataLoss(read)) {
    check.journal = read;
  } else if (!absl::IsNotFound(read)) {
    check.error.Update(read);
  } else if (HasLostJournal(files, layout, folders)) {
    check.journal = absl::DataLossError("it is missing");
  }
  if (!read.ok()) return check;
  if (index) Compare(*index, reading, check);
  if (!folders.ok() || !is_held.ok()) return check;
  check.error.Update(JudgeFolders(*folders, *is_held, reading, check));
  return check;
}

}  // namespace tidemark::inspect
