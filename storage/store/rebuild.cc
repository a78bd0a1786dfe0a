#include "storage/store/rebuild.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "fmt/format.h"
#include "storage/index/manifest.h"
#include "storage/journal/journal.h"
#include "storage/store/attempt_reader.h"
#include "storage/store/attempt_verify.h"
#include "storage/store/entry_facts.h"
#include "storage/store/garbage.h"
#include "storage/store/index_state.h"
#include "storage/store/memory_catalog.h"
#include "storage/store/quarantine.h"
#include "storage/store/step_changes.h"
#include "storage/store/store_identity.h"

namespace tidemark::storage {
namespace {

// An entry of a rebuilt journal has about this many bytes of facts.
constexpr size_t kEntryBytes = 1 << 20;

// Of a journal that is being made, and of the one that it replaces. The same random text follows.
constexpr std::string_view kNewSuffix = ".new-";
constexpr std::string_view kBrokenSuffix = ".broken-";

// Of one entry all or none.
absl::Status AddFacts(const KnownEntry& known, const StoreId& store, std::vector<Fact>& facts) {
  absl::StatusOr<std::vector<Fact>> decoded = DecodeFacts(known.entry, store);
  if (!decoded.ok()) return decoded.status();
  facts.insert(facts.end(), std::move_iterator(decoded->begin()), std::move_iterator(decoded->end()));
  return absl::OkStatus();
}

// What the index has; no facts where it cannot be read.
struct FromIndex {
  std::vector<Fact> facts;
  JournalPlace place;
};
absl::StatusOr<FromIndex> ReadIndex(FileSystem& files, const StoreLayout& layout, const StoreId& store) {
  if (const absl::Status there = files.TypeOf(layout.index()).status(); !there.ok()) {
    return absl::IsNotFound(there) ? absl::StatusOr<FromIndex>(FromIndex()) : there;
  }
  absl::StatusOr<std::unique_ptr<Manifest>> index = Manifest::OpenReadOnly(files, layout.index());
  if (IsMissingOrDamaged(index.status())) return FromIndex();
  if (!index.ok()) return index.status();
  absl::StatusOr<std::optional<JournalPlace>> place = (*index)->Applied();
  if ((*index)->store_id() != store || !place.ok() || !place->has_value()) return FromIndex();
  absl::StatusOr<std::vector<Fact>> facts = FactsOf(**index);
  if (absl::IsDataLoss(facts.status())) return FromIndex();
  if (!facts.ok()) return facts.status();
  return FromIndex{.facts = *std::move(facts), .place = **place};
}

// A rebuild does not wait until a client of a file server finds an entry that it lists: see
// JournalFiles::CheckIsMissing.
absl::Status LossIfAborted(const absl::Status& status) {
  return absl::IsAborted(status) ? absl::DataLossError(status.message()) : status;
}

// Adds the facts of the entries after `place`, up to the first that cannot be read. `place` becomes that of the last
// one that can. Errors: those of Journal::Open, Journal::Look and DecodeFacts.
absl::Status ReadJournal(FileSystem& files, const StoreLayout& layout, const StoreId& store, JournalPlace& place,
                         std::vector<Fact>& facts) {
  absl::StatusOr<std::unique_ptr<Journal>> journal = Journal::Open(files, layout.journal(), place);
  if (!journal.ok()) return LossIfAborted(journal.status());
  absl::Status unread;
  const absl::Status looked = (*journal)->Look([&](const KnownEntry& entry, bool) {
    if (entry.counts && unread.ok()) unread = AddFacts(entry, store, facts);
    if (unread.ok()) place = entry.place;
  });
  // What was visited stands before what could not be.
  return unread.ok() ? LossIfAborted(looked) : unread;
}

absl::Status Salvage(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                     const std::function<void(std::string_view)>& warn, KnownFacts& known) {
  absl::StatusOr<FromIndex> index = ReadIndex(files, layout, store);
  if (!index.ok()) return index.status();
  const auto warn_of_end = [&](const absl::Status& why) {
    warn(fmt::format("the journal cannot be read any further: {}", std::string(why.message())));
  };
  std::vector<Fact> facts;
  JournalPlace place;
  const absl::Status status = ReadJournal(files, layout, store, place, facts);
  if (!status.ok() && !IsMissingOrDamaged(status)) return status;
  if (!status.ok()) warn_of_end(status);
  // A journal that was made anew has fewer entries, and a newer epoch.
  const bool index_knows_more =
      std::pair(index->place.epoch, index->place.number) > std::pair(place.epoch, place.number);
  known.catalog.Apply(facts);
  if (!index_knows_more) {
    known.number = place.number;
    known.epoch = std::max(index->place.epoch, place.epoch);
    if (known.number > 0) known.source = "the journal's entries";
    return absl::OkStatus();
  }
  // An index that has lost a table lacks steps that the entries before the damage have.
  known.catalog.Apply(index->facts);
  known.source = "the index";
  JournalPlace last = index->place;
  if (absl::IsDataLoss(status)) {
    // The damage is before the index's entry, and what is after that one may be readable.
    std::vector<Fact> later;
    const absl::Status end = ReadJournal(files, layout, store, last, later);
    if (absl::IsDataLoss(end)) warn_of_end(end);
    // kOutOfRange: the journal is another one than the index's.
    if (!end.ok() && !absl::IsOutOfRange(end) && !IsMissingOrDamaged(end)) return end;
    known.catalog.Apply(later);
    if (last.number > index->place.number) known.source = "the index and the entries after its last one";
  }
  known.number = last.number;
  known.epoch = std::max(last.epoch, place.epoch);
  return absl::OkStatus();
}

// Adopts, in the order of their sequences, the whole attempts that are newer than the records of their steps.
class Adoption {
 public:
  Adoption(FileSystem& files, const StoreLayout& layout, const StoreId& store, const ShardReadOptions& read,
           const std::function<void(std::string_view)>& warn, KnownFacts& known)
      : files_(files), layout_(layout), store_(store), read_(read), warn_(warn), known_(known) {}

  absl::Status Run() {
    absl::StatusOr<std::vector<StepFolder>> folders = ListAttempts(files_, layout_);
    if (!folders.ok()) return folders.status();
    const absl::StatusOr<std::vector<DeletionRecord>> deletions = known_.catalog.Deletions();
    if (!deletions.ok()) return deletions.status();
    for (const DeletionRecord& deletion : *deletions) known_.garbage.insert(deletion.attempt);
    for (const StepFolder& folder : *folders) {
      if (EpochOf(folder.attempt) < kEpochMax) known_.epoch = std::max(known_.epoch, EpochOf(folder.attempt));
      if (absl::Status status = Consider(folder); !status.ok()) return status;
    }
    std::sort(candidates_.begin(), candidates_.end(),
              [](const auto& a, const auto& b) { return a.second.info.sequence < b.second.info.sequence; });
    for (auto& [folder, record] : candidates_) {
      if (absl::Status status = Adopt(folder, record); !status.ok()) return status;
    }
    const bool nothing_recorded = known_.number == 0 && known_.catalog.last_sequence() == 0 && !known_.is_sound;
    if (nothing_recorded && adopted_ == 0 && foreign_ > 0) {
      return absl::FailedPreconditionError(fmt::format(
          "the journal of {} is not rebuilt: no attempt in {} is complete and of store {}, and {} belong to "
          "another store",
          layout_.directory(), layout_.steps(), ToHex(store_.bytes), foreign_));
    }
    return absl::OkStatus();
  }

  // Moves the incomplete attempts that no step refers to out of the way.
  absl::Status Quarantine() {
    for (const auto& [folder, why] : broken_) {
      const absl::StatusOr<bool> referenced = known_.catalog.IsReferenced(folder.attempt);
      if (!referenced.ok()) return referenced.status();
      if (*referenced) {
        warn_(fmt::format("step {} is incomplete or damaged, but stays, because another step refers to it: {}",
                          folder.step, why));
        continue;
      }
      warn_(fmt::format("step {} is incomplete or damaged and was moved to quarantine: {}", folder.step, why));
      if (absl::Status status = MoveToQuarantine(files_, layout_, folder); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  size_t adopted() const { return adopted_; }

 private:
  // What is recorded needs no look at the shards.
  absl::StatusOr<bool> IsSettled(const StepFolder& folder, uint64_t sequence) const {
    const absl::StatusOr<std::optional<StepRecord>> record = known_.catalog.Find(folder.step);
    if (!record.ok()) return record.status();
    if (!record->has_value() || !FromHex((*record)->info.attempt)) return false;
    return (*record)->info.attempt == ToHex(folder.attempt.bytes) || (*record)->info.sequence >= sequence;
  }

  absl::Status Consider(const StepFolder& folder) {
    const absl::StatusOr<std::optional<StepRecord>> record = known_.catalog.Find(folder.step);
    if (!record.ok()) return record.status();
    if (record->has_value() && (*record)->info.attempt == ToHex(folder.attempt.bytes)) return absl::OkStatus();
    if (known_.garbage.contains(folder.attempt)) return absl::OkStatus();
    absl::StatusOr<StepRecord> found = ReadAttemptRecord(files_, layout_, store_, folder);
    if (found.ok()) {
      candidates_.emplace_back(folder, *std::move(found));
    } else if (IsMissingOrDamaged(found.status())) {
      if (!known_.is_sound) broken_.emplace_back(folder, std::string(found.status().message()));
    } else if (absl::IsFailedPrecondition(found.status()) || absl::IsUnimplemented(found.status())) {
      foreign_ += absl::IsFailedPrecondition(found.status()) ? 1 : 0;
      warn_(fmt::format("left alone: {}", std::string(found.status().message())));
    } else {
      return found.status();  // the disk failed: nothing is known about the attempt
    }
    return absl::OkStatus();
  }

  absl::Status Adopt(const StepFolder& folder, StepRecord& record) {
    const absl::StatusOr<bool> settled = IsSettled(folder, record.info.sequence);
    if (!settled.ok()) return settled.status();
    if (*settled) return absl::OkStatus();  // garbage
    absl::Status sound = CheckAttempt(files_, layout_, store_, record, {.read = read_});
    if (sound.ok()) sound = SyncAttempt(files_, layout_, record);
    if (IsMissingOrDamaged(sound)) {
      broken_.emplace_back(folder, std::string(sound.message()));
      return absl::OkStatus();
    }
    if (!sound.ok()) return sound;
    absl::StatusOr<Facts> facts = CommitFacts(known_.catalog, std::move(record), nullptr, warn_);
    if (!facts.ok()) return facts.status();
    known_.catalog.Apply(*facts);
    ++adopted_;
    return absl::OkStatus();
  }

  FileSystem& files_;
  const StoreLayout& layout_;
  const StoreId& store_;
  const ShardReadOptions& read_;
  const std::function<void(std::string_view)>& warn_;
  KnownFacts& known_;
  std::vector<std::pair<StepFolder, StepRecord>> candidates_;
  std::vector<std::pair<StepFolder, std::string>> broken_;
  size_t adopted_ = 0;
  size_t foreign_ = 0;
};

absl::Status AppendAll(Journal& journal, const StoreId& store, const std::vector<Fact>& facts, uint64_t epoch) {
  const auto append = [&](AppendDraft draft) {
    return journal.Append(std::move(draft), [](const JournalView&) { return absl::OkStatus(); });
  };
  absl::StatusOr<std::string> of_store = EncodeFact(StoreFact{.store = store});
  if (!of_store.ok()) return of_store.status();
  const Appended begun = append(
      {.kind = AppendDraft::Kind::kBeginsEpoch, .epoch = epoch + 1, .facts = {*std::move(of_store)}});
  if (!begun.ok()) return begun.status;
  AppendDraft draft;
  size_t bytes = 0;
  for (const Fact& fact : facts) {
    absl::StatusOr<std::string> encoded = EncodeFact(fact);
    if (!encoded.ok()) return encoded.status();
    bytes += encoded->size();
    draft.facts.push_back(*std::move(encoded));
    if (bytes < kEntryBytes) continue;
    if (const Appended appended = append(std::exchange(draft, {})); !appended.ok()) return appended.status;
    bytes = 0;
  }
  return draft.facts.empty() ? absl::OkStatus() : append(std::move(draft)).status;
}

}  // namespace

absl::StatusOr<std::vector<Fact>> FactsOf(const StepCatalog& catalog) {
  std::vector<Fact> facts;
  absl::Status status = catalog.ForEach([&](StepRecord record) {
    facts.push_back(StepFact{std::move(record)});
    return true;
  });
  if (!status.ok()) return status;
  const size_t steps = facts.size();
  for (size_t i = 0; i < steps; ++i) {
    const StepInfo& info = std::get<StepFact>(facts[i]).record.info;
    absl::StatusOr<std::vector<SavePhase>> phases = catalog.Phases(info.step, info.attempt);
    if (!phases.ok()) return phases.status();
    if (phases->empty()) continue;
    facts.push_back(PhasesFact{{.step = info.step, .attempt = info.attempt, .phases = *std::move(phases)}});
  }
  const absl::StatusOr<BestModes> modes = catalog.RecordedBestModes();
  if (!modes.ok()) return modes.status();
  if (!modes->empty()) facts.push_back(BestModesFact{*modes});
  absl::StatusOr<std::vector<DeletionRequestFact>> requests = catalog.Requests();
  if (!requests.ok()) return requests.status();
  for (DeletionRequestFact& request : *requests) facts.push_back(std::move(request));
  return facts;
}

absl::StatusOr<bool> SaysTheSame(const StepCatalog& a, const StepCatalog& b) {
  const absl::StatusOr<Facts> of_a = FactsOf(a);
  if (!of_a.ok()) return of_a.status();
  const absl::StatusOr<Facts> of_b = FactsOf(b);
  if (!of_b.ok()) return of_b.status();
  return std::equal(of_a->begin(), of_a->end(), of_b->begin(), of_b->end(), [](const Fact& one, const Fact& other) {
    const absl::StatusOr<std::string> bytes = EncodeFact(one);
    return bytes.ok() && bytes == EncodeFact(other);
  });
}

absl::Status ReplaceJournal(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                            const std::vector<Fact>& facts, uint64_t epoch) {
  const std::string suffix = ToHex(RandomBytes16());
  const std::string fresh = fmt::format("{}{}{}", layout.journal(), kNewSuffix, suffix);
  {
    absl::StatusOr<std::unique_ptr<Journal>> journal = Journal::Open(files, fresh, JournalPlace(), {.create = true});
    if (!journal.ok()) return journal.status();
    if (absl::Status status = AppendAll(**journal, store, facts, epoch); !status.ok()) return status;
  }
  absl::Status moved = files.Rename(layout.journal(), fmt::format("{}{}{}", layout.journal(), kBrokenSuffix, suffix));
  if (!moved.ok() && !absl::IsNotFound(moved)) return moved;
  if (absl::Status status = files.Rename(fresh, layout.journal()); !status.ok()) return status;
  return files.SyncDirectory(layout.directory());
}

bool IsBrokenJournal(const StoreLayout& layout, std::string_view path) {
  return path.starts_with(layout.journal() + std::string(kBrokenSuffix));
}

absl::StatusOr<size_t> AdoptAttempts(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                                     const ShardReadOptions& read, const std::function<void(std::string_view)>& warn,
                                     KnownFacts& known) {
  Adoption adoption(files, layout, store, read, warn, known);
  absl::Status status = adoption.Run();
  // Before there is a new journal, because they would be swept as unfinished.
  if (status.ok()) status = adoption.Quarantine();
  if (!status.ok()) return status;
  return adoption.adopted();
}

absl::Status RebuildJournal(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                            const ShardReadOptions& read, const std::function<void(std::string_view)>& warn) {
  KnownFacts known;
  if (absl::Status status = Salvage(files, layout, store, warn, known); !status.ok()) return status;
  const absl::StatusOr<size_t> adopted = AdoptAttempts(files, layout, store, read, warn, known);
  if (!adopted.ok()) return adopted.status();
  const absl::StatusOr<std::vector<Fact>> facts = FactsOf(known.catalog);
  if (!facts.ok()) return facts.status();
  if (absl::Status status = ReplaceJournal(files, layout, store, *facts, known.epoch); !status.ok()) return status;
  // The index's last entry may have a higher number than any in the new journal, which would look like lost entries.
  if (absl::Status status = RemoveIndex(files, layout.index()); !status.ok()) return status;
  warn(fmt::format("the journal of {} was made anew from {}, up to entry {}, and from {} attempts that it did not have",
                   layout.directory(), known.source, known.number, *adopted));
  return absl::OkStatus();
}

absl::Status FinishRebuild(FileSystem& files, const StoreLayout& layout,
                           const std::function<void(std::string_view)>& warn) {
  const absl::StatusOr<std::vector<DirectoryEntry>> entries = files.ListDirectory(layout.directory());
  if (!entries.ok()) return entries.status();
  std::set<std::string> paths;
  for (const DirectoryEntry& entry : *entries) paths.insert(layout.directory() + "/" + entry.name);
  const std::string fresh = layout.journal() + std::string(kNewSuffix);
  for (const std::string& path : paths) {
    if (!path.starts_with(fresh)) continue;
    const std::string broken = layout.journal() + std::string(kBrokenSuffix) + path.substr(fresh.size());
    // The old journal is moved away only when the new one is whole and survives power loss.
    if (!paths.contains(layout.journal()) && paths.contains(broken)) {
      absl::Status status = files.Rename(path, layout.journal());
      if (status.ok()) status = files.SyncDirectory(layout.directory());
      if (!status.ok()) return status;
      paths.insert(layout.journal());
    } else if (absl::Status status = RemoveTree(files, path); !status.ok()) {
      warn(fmt::format("the leftovers of an interrupted rebuild stay: {}", std::string(status.message())));
    }
  }
  return absl::OkStatus();
}

}  // namespace tidemark::storage
