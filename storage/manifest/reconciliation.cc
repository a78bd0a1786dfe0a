#include "storage/manifest/reconciliation.h"

#include <algorithm>
#include <map>

#include "fmt/format.h"
#include "storage/manifest/deletion_mark.h"
#include "storage/manifest/leased_attempts.h"
#include "storage/manifest/pin.h"
#include "storage/manifest/quarantine.h"
#include "storage/manifest/report_files.h"
#include "storage/manifest/retired_shard.h"
#include "storage/manifest/store_identity.h"

namespace tidemark::storage {
namespace {

struct Fate {
  std::string_view what;  // became of the step
  std::string reason;
};

// Why the attempt is to go.
Fate FateOf(const Manifest& manifest, const DeletionRecord& deletion) {
  const absl::StatusOr<std::optional<StepRecord>> record = manifest.Find(deletion.step);
  if (record.ok()) {
    if (!record->has_value() || (*record)->info.state == StepState::kFailed) return {"not saved", "its save failed"};
    const StepInfo& info = (*record)->info;
    if (info.attempt == ToHex(deletion.attempt.bytes)) return {"deleted", info.reason};
  }
  return {"replaced", "another attempt took its place"};
}

// Says in the folders themselves that they are to go, before anything goes that they may refer to. Best effort: without
// it a rebuild of the manifest takes the attempt for a committed one.
void MarkFolders(FileSystem& files, const StoreLayout& layout, const Manifest& manifest,
                 const std::vector<DeletionRecord>& staying, const Reconciliation::Warn& warn) {
  for (const DeletionRecord& deletion : staying) {
    const StepFolder folder{deletion.step, deletion.attempt};
    const absl::StatusOr<bool> marked = HasDeletionMark(files, layout, folder);
    absl::Status status = marked.status();
    if (status.ok() && *marked) continue;
    const Fate fate = FateOf(manifest, deletion);
    if (status.ok()) status = WriteDeletionMark(files, layout, folder, fate.reason);
    // A folder that somebody removed says nothing.
    if (status.ok() || absl::IsNotFound(status)) continue;
    warn(fmt::format("step {} was {}, but a rebuild of the manifest would lose that: {}", deletion.step, fate.what,
                     std::string(status.message())));
  }
}

// Puts each behind those of them that refer to it: wherever their removal stops, whatever still refers to chunks finds
// them. Otherwise the order stays.
std::vector<DeletionRecord> ReferringFirst(std::vector<DeletionRecord> going) {
  struct Place {
    size_t index = 0;
    size_t referring = 0;  // how many of those that are not in order yet refer to it
  };
  std::map<AttemptId, Place> places;
  for (size_t i = 0; i < going.size(); ++i) places[going[i].attempt].index = i;
  for (const DeletionRecord& deletion : going) {
    for (const AttemptId& base : deletion.references) {
      if (const auto found = places.find(base); found != places.end()) ++found->second.referring;
    }
  }
  std::vector<size_t> order;
  for (size_t i = 0; i < going.size(); ++i) {
    if (places[going[i].attempt].referring == 0) order.push_back(i);
  }
  for (size_t i = 0; i < order.size(); ++i) {
    for (const AttemptId& base : going[order[i]].references) {
      const auto found = places.find(base);
      if (found != places.end() && --found->second.referring == 0) order.push_back(found->second.index);
    }
  }
  // Of those that refer to each other, as no store writes them, any may be the first.
  for (const auto& [attempt, place] : places) {
    if (place.referring > 0) order.push_back(place.index);
  }
  std::vector<DeletionRecord> ordered;
  for (const size_t index : order) ordered.push_back(std::move(going[index]));
  return ordered;
}

// Removes the files of so many of the attempts and takes their marks back; returns whether there are more to be
// removed.
absl::StatusOr<bool> RemoveFiles(FileSystem& files, const StoreLayout& layout, Manifest& manifest,
                                 const std::vector<DeletionRecord>& going, size_t removals_max,
                                 const Reconciliation::Warn& warn) {
  const auto warn_of = [&](const DeletionRecord& deletion, const absl::Status& why) {
    const std::string_view what = FateOf(manifest, deletion).what;
    warn(fmt::format("step {} was {}, but its {}files are still there: {}", deletion.step, what,
                     what == "replaced" ? "old " : "", std::string(why.message())));
  };
  std::vector<DeletionRecord> removed, failed;
  const auto sync = [&] {
    absl::Status status = files.SyncDirectory(layout.steps());
    if (status.ok()) return true;
    for (const DeletionRecord& deletion : removed) warn_of(deletion, status);
    return false;  // the next call would only meet the same ones
  };
  // What those refer to that may come back yet: where a crash takes the manifest as well, they are committed steps.
  std::set<AttemptId> bases;
  // What those refer to whose files are still there, for as long.
  std::set<AttemptId> blocked;
  bool more = false;
  for (const DeletionRecord& deletion : going) {
    more = removed.size() == removals_max;
    if (more) break;
    if (blocked.contains(deletion.attempt)) {
      blocked.insert(deletion.references.begin(), deletion.references.end());
      continue;
    }
    if (bases.contains(deletion.attempt)) {
      if (!sync()) return false;
      bases.clear();
    }
    bases.insert(deletion.references.begin(), deletion.references.end());
    RetireShard(files, layout, layout.attempt(deletion.step, deletion.attempt));
    const StepFolder folder{deletion.step, deletion.attempt};
    if (absl::Status status = RemoveAttempt(files, layout, folder); status.ok()) {
      removed.push_back(deletion);
    } else {
      warn_of(deletion, status);
      blocked.insert(deletion.references.begin(), deletion.references.end());
      failed.push_back(deletion);
    }
  }
  MarkFolders(files, layout, manifest, failed, warn);
  if (removed.empty()) return false;
  if (!sync()) return false;
  std::vector<AttemptId> attempts;
  for (const DeletionRecord& deletion : removed) attempts.push_back(deletion.attempt);
  if (absl::Status status = manifest.FinishDeletions(attempts); !status.ok()) return status;
  return more;
}

// Never so, as long as records and marks are written together. Files are removed once.
absl::StatusOr<bool> IsOfALiveStep(const Manifest& manifest, const DeletionRecord& deletion) {
  absl::StatusOr<std::optional<StepRecord>> record = manifest.Find(deletion.step);
  if (!record.ok()) return record.status();
  if (!record->has_value() || (*record)->info.attempt != ToHex(deletion.attempt.bytes)) return false;
  return (*record)->info.state != StepState::kDeleted;
}

}  // namespace

void Reconciliation::Tell(StoreChange::Kind kind, const StepFolder& folder, std::string why) const {
  if (on_change_ == nullptr) return;
  on_change_(
      {.kind = kind, .step = folder.step, .path = layout_.attempt(folder.step, folder.attempt), .why = std::move(why)});
}

absl::Status Reconciliation::Run() {
  std::vector<std::string> strangers;
  absl::StatusOr<std::vector<StepFolder>> folders = ListAttempts(files_, layout_, &strangers);
  if (!folders.ok()) return folders.status();
  for (const std::string& name : strangers) {
    warn_(fmt::format("left in place: {}/{} is not an attempt", layout_.steps(), name));
    if (on_change_ == nullptr) continue;
    on_change_({.path = layout_.steps() + "/" + name, .why = "it is not an attempt"});
  }
  folders_ = *std::move(folders);
  for (const StepFolder& folder : folders_) present_.emplace(folder.step, folder.attempt);
  if (absl::Status status = ReconcileRecords(); !status.ok()) return status;
  absl::StatusOr<std::vector<DeletionRecord>> deletions = manifest_.Deletions();
  if (!deletions.ok()) return deletions.status();
  for (const DeletionRecord& deletion : *deletions) recorded_.emplace(deletion.step, deletion.attempt);
  for (const StepFolder& folder : folders_) {
    if (recorded_.contains({folder.step, folder.attempt})) continue;
    if (absl::Status status = ReconcileFolder(folder); !status.ok()) return status;
  }
  // Only now is it known what the adopted ones refer to.
  for (const Discard& discard : discards_) {
    if (absl::Status status = DiscardFolder(discard); !status.ok()) return status;
  }
  return FindForgotten();
}

absl::Status Reconciliation::ReconcileRecords() {
  std::vector<StepRecord> changed;
  struct Told {
    StoreChange::Kind kind;
    StepFolder folder;
    std::string why;
  };
  std::vector<Told> told;
  absl::Status pins;
  absl::Status status = manifest_.ForEach([&](StepRecord record) {
    const auto id = FromHex(record.info.attempt);
    if (!id) return true;                                       // a save that failed, or a step never saved
    if (record.info.state == StepState::kDeleted) return true;  // what there is of it has a mark, or is news
    recorded_.emplace(record.info.step, AttemptId{*id});
    for (const FileReference& file : record.references) referenced_.insert(file.attempt);
    // The folder is what a crash leaves ahead when a step is pinned or tagged, and behind when it is deleted.
    const bool was_pinned = record.info.pinned;
    absl::StatusOr<bool> change = LookForPin(record.info);
    if (!change.ok()) {
      pins = change.status();
      return false;
    }
    const StepFolder own{record.info.step, AttemptId{*id}};
    if (*change) {
      told.push_back({StoreChange::Kind::kPinned, own,
                      was_pinned ? "its pin.json has tags that its record lacks" : "its folder has a pin.json"});
    }
    const std::optional<StepFolder> missing = MissingFolder(record);
    if (record.info.state == StepState::kCommitted && missing) {
      MarkLost(record, *missing);
      told.push_back({StoreChange::Kind::kMarkedLost, own, record.info.reason});
      *change = true;
    } else if (record.info.state == StepState::kLost && !missing) {
      if (IsBack(record)) {
        record.info.state = StepState::kCommitted;
        record.info.reason.clear();
        told.push_back({StoreChange::Kind::kCommittedAgain, own, "its files are back"});
        *change = true;
      } else {
        settled_ = false;  // a file may come back inside its folder
      }
    }
    if (*change) changed.push_back(std::move(record));
    return true;
  });
  if (status.ok()) status = pins;
  for (size_t i = 0; status.ok() && i < changed.size(); ++i) status = manifest_.Update(changed[i]);
  if (!status.ok()) return status;
  for (const Told& one : told) Tell(one.kind, one.folder, one.why);
  return absl::OkStatus();
}

// The first of the folders in which the record's chunks lie that is not there. Precondition: it has an attempt.
std::optional<StepFolder> Reconciliation::MissingFolder(const StepRecord& record) const {
  const StepFolder own{record.info.step, AttemptId{*FromHex(record.info.attempt)}};
  if (!present_.contains({own.step, own.attempt})) return own;
  for (const FileReference& file : record.references) {
    if (!present_.contains({file.step, file.attempt})) return StepFolder{file.step, file.attempt};
  }
  return std::nullopt;
}

void Reconciliation::MarkLost(StepRecord& record, const StepFolder& missing) {
  const std::string name = StepFolderName(missing.step, missing.attempt);
  const bool own = ToHex(missing.attempt.bytes) == record.info.attempt;
  record.info.state = StepState::kLost;
  record.info.kept.clear();
  record.info.reason = own ? "its folder is gone" : fmt::format("{}, which holds some of its chunks, is gone", name);
  warn_(fmt::format("step {} is lost: it was committed, but {}/{}{} is gone", record.info.step, layout_.steps(), name,
                    own ? "" : ", which holds some of its chunks,"));
}

// Whether what there is of a lost step whose folders are there is what was lost: every byte of it.
bool Reconciliation::IsBack(const StepRecord& record) {
  const StepFolder own{record.info.step, AttemptId{*FromHex(record.info.attempt)}};
  absl::StatusOr<Attempt> attempt = ReadAttempt(files_, layout_, store_, own);
  if (!attempt.ok()) return false;
  absl::Status sound;
  for (const FileReference& file : record.references) {
    auto shard = files_.OpenForRead(layout_.shard(file.step, file.attempt, file.rank, file.world_size), false);
    if (absl::IsNotFound(shard.status())) return false;
    sound.Update(shard.ok() ? (*shard)->SyncData() : shard.status());
    sound.Update(files_.SyncDirectory(layout_.attempt(file.step, file.attempt)));
  }
  if (sound.ok() && attempt->record.shards != record.shards) {
    sound = absl::DataLossError("its shards differ from those that were recorded");
  }
  if (sound.ok()) sound = VerifyAndSync(files_, layout_, own, *attempt, read_);
  if (sound.ok()) return true;
  warn_(fmt::format("step {} stays lost, although its files are back (run `checkpoint-inspect repair`): {}", own.step,
                    std::string(sound.message())));
  return false;
}

absl::StatusOr<bool> Reconciliation::IsOfDeletedStep(const StepFolder& folder) const {
  absl::StatusOr<std::optional<StepRecord>> record = manifest_.Find(folder.step);
  if (!record.ok()) return record.status();
  return record->has_value() && (*record)->info.state == StepState::kDeleted &&
         (*record)->info.attempt == ToHex(folder.attempt.bytes);
}

// Adopts an attempt that has no record, or notes why it is none of ours to keep.
absl::Status Reconciliation::ReconcileFolder(const StepFolder& folder) {
  // It was deleted, and what it refers to may be gone.
  absl::StatusOr<std::optional<std::string>> mark = ReadDeletionMark(files_, layout_, folder);
  if (!mark.ok()) return mark.status();
  if (mark->has_value()) {
    const absl::Status why = absl::NotFoundError(fmt::format("its deleted.json says that it was deleted: {}", **mark));
    discards_.push_back({folder, why, /*to_quarantine=*/true});
    return absl::OkStatus();
  }
  absl::StatusOr<Attempt> attempt = ReadAttempt(files_, layout_, store_, folder);
  if (!attempt.ok()) {
    // The store's format and the manifest's are not too new, so a newer shard is more likely a flipped bit.
    if (absl::IsFailedPrecondition(attempt.status()) || absl::IsUnimplemented(attempt.status())) {
      warn_(fmt::format("left alone: {}", std::string(attempt.status().message())));
      Tell(StoreChange::Kind::kLeftAlone, folder, std::string(attempt.status().message()));
      settled_ = false;
      return absl::OkStatus();
    }
    if (!IsMissingOrDamaged(attempt.status())) return attempt.status();  // nothing is known about the attempt
    // What retention removes has its mark in the manifest until it is gone. So what there is of a deleted step was put
    // back by somebody, and may be all there is of it.
    absl::StatusOr<bool> put_back = IsOfDeletedStep(folder);
    if (!put_back.ok()) return put_back.status();
    discards_.push_back({folder, attempt.status(), /*to_quarantine=*/*put_back});
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<StepRecord>> record = manifest_.Find(folder.step);
  if (!record.ok()) return record.status();
  // Of two attempts at a step the later one wins, here as in a rebuild. It was never acknowledged, so either would do;
  // but should the record of a later one have rotted away, taking the earlier one would undo an acknowledged save.
  if (record->has_value() && (*record)->info.sequence > attempt->record.info.sequence) {
    const StepState state = (*record)->info.state;
    if (state == StepState::kCommitted || state == StepState::kDeleted) {
      const absl::Status why = absl::AlreadyExistsError(fmt::format(
          "a later attempt at the step {} {}", state == StepState::kDeleted ? "was" : "is", StepStateName(state)));
      discards_.push_back({folder, why, /*to_quarantine=*/false});
      return absl::OkStatus();
    }
  }
  if (absl::Status sound = VerifyAndSync(files_, layout_, folder, *attempt, read_); !sound.ok()) {
    if (!IsMissingOrDamaged(sound)) return sound;
    discards_.push_back({folder, sound, /*to_quarantine=*/true});
    return absl::OkStatus();
  }
  return Adopt(*record, attempt->record);
}

// A pin.json that cannot be read may have tags: the next Open looks again.
absl::StatusOr<bool> Reconciliation::LookForPin(StepInfo& info) {
  return JoinPinOfFolder(files_, layout_, warn_and_look_again_, info);
}

// Commits what was found, with what is known of it from elsewhere.
absl::Status Reconciliation::Adopt(const std::optional<StepRecord>& old, StepRecord record) {
  StepInfo& info = record.info;
  const StepFolder own{info.step, AttemptId{*FromHex(info.attempt)}};
  for (const FileReference& file : record.references) referenced_.insert(file.attempt);
  if (absl::StatusOr<bool> pinned = LookForPin(info); !pinned.ok()) return pinned.status();
  if (old && old->info.attempt == info.attempt) {
    // A deleted step that is back.
    info.metrics = old->info.metrics;
    info.evaluations = old->info.evaluations;
    absl::Status status = manifest_.Commit(record).status();
    if (status.ok()) Tell(StoreChange::Kind::kAdopted, own, "the step was deleted, and its files are back");
    return status;
  }
  absl::Status status = ApplyStoredReports(files_, layout_, store_, own, warn_, info);
  if (status.ok() && old) status = InheritPin(files_, layout_, old->info, warn_and_look_again_, info);
  if (status.ok()) status = manifest_.Commit(record).status();
  if (status.ok()) Tell(StoreChange::Kind::kAdopted, own, "complete, but not recorded");
  return status;
}

// Takes a folder that has no record out of steps/.
absl::Status Reconciliation::DiscardFolder(const Discard& discard) {
  const auto& [folder, why, to_quarantine] = discard;
  absl::StatusOr<bool> referenced = manifest_.IsReferenced(folder.attempt);
  if (!referenced.ok()) return referenced.status();
  const std::string name = StepFolderName(folder.step, folder.attempt);
  if (*referenced) {
    warn_(
        fmt::format("left in place: {} has no record, but a step refers to it: {}", name, std::string(why.message())));
    Tell(StoreChange::Kind::kLeftAlone, folder, fmt::format("but a step refers to it: {}", std::string(why.message())));
    settled_ = false;  // it goes when the step goes
    return absl::OkStatus();
  }
  absl::StatusOr<bool> deleted = IsOfDeletedStep(folder);
  if (!deleted.ok()) return deleted.status();
  if (!to_quarantine) {
    // What every kill leaves, so no warning; what a step may need is not among it. on_change_ is told the details.
    if (note_ != nullptr) {
      note_(fmt::format("removed the unfinished save of step {} ({})", folder.step,
                        absl::IsAlreadyExists(why) ? std::string(why.message())
                                                   : "the previous process ended before it was committed"));
    }
  } else {
    warn_(fmt::format("{} was {} and is moved to quarantine: {}", name, *deleted ? "deleted" : "never committed",
                      std::string(why.message())));
  }
  absl::Status status;
  if (to_quarantine) {
    status = MoveToQuarantine(files_, layout_, folder);
  } else {
    status = RemoveAttempt(files_, layout_, folder);
    if (status.ok()) status = files_.SyncDirectory(layout_.steps());
  }
  if (status.ok()) {
    Tell(to_quarantine ? StoreChange::Kind::kQuarantined : StoreChange::Kind::kRemoved, folder,
         fmt::format("{}: {}", *deleted ? "deleted" : "never committed", std::string(why.message())));
  }
  return status;
}

// At the end, when whatever took the place of a replaced attempt has it again; where that is lost by now, the replaced
// one is not the step's all the same. Looks only into folders that steps refer to: of those that were deleted these
// stay for long, and a look into every folder is felt where there are very many.
absl::Status Reconciliation::FindForgotten() {
  for (const StepFolder& folder : folders_) {
    if (!referenced_.contains(folder.attempt)) continue;
    absl::StatusOr<std::optional<StepRecord>> record = manifest_.Find(folder.step);
    if (!record.ok()) return record.status();
    if (!record->has_value() || (*record)->info.state != StepState::kCommitted) continue;
    if ((*record)->info.attempt != ToHex(folder.attempt.bytes)) continue;
    absl::StatusOr<std::optional<std::string>> mark = ReadDeletionMark(files_, layout_, folder);
    if (!mark.ok()) return mark.status();
    if (mark->has_value()) forgotten_.push_back({folder, **std::move(mark)});
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> FinishDeletions(FileSystem& files, const StoreLayout& layout, Manifest& manifest,
                                     const std::set<AttemptId>& in_use, size_t removals_max,
                                     const Reconciliation::Warn& warn) {
  absl::StatusOr<std::vector<DeletionRecord>> deletions = manifest.Deletions();
  if (!deletions.ok()) return deletions.status();
  std::vector<DeletionRecord> staying, going;
  for (DeletionRecord& deletion : *deletions) {
    absl::StatusOr<bool> needed = IsOfALiveStep(manifest, deletion);
    if (!needed.ok()) return needed.status();
    if (*needed) {
      warn(
          fmt::format("step {} stays, although its files are marked for deletion: its record says that it is committed",
                      deletion.step));
      continue;
    }
    absl::StatusOr<bool> referenced = manifest.IsReferenced(deletion.attempt);
    if (!referenced.ok()) return referenced.status();
    (*referenced ? staying : going).push_back(std::move(deletion));
  }
  // They come in the order of their ids, which are random. A discard also deletes the highest step first.
  std::stable_sort(going.begin(), going.end(),
                   [](const DeletionRecord& a, const DeletionRecord& b) { return a.step > b.step; });
  if (!going.empty()) {
    absl::StatusOr<std::set<AttemptId>> read = LeasedAttempts(files, layout);
    if (!read.ok()) {
      warn(fmt::format("no files of deleted steps are removed, because it is not known which are being read: {}",
                       std::string(read.status().message())));
      return false;
    }
    read->insert(in_use.begin(), in_use.end());
    std::set<AttemptId> kept = *read;
    // The step that let go of an attempt may have been marked after the first look, and may be leased.
    if (!read->empty()) deletions = manifest.Deletions();
    if (!deletions.ok()) return deletions.status();
    for (const DeletionRecord& deletion : *deletions) {
      if (read->contains(deletion.attempt)) kept.insert(deletion.references.begin(), deletion.references.end());
    }
    const auto first_kept = std::stable_partition(
        going.begin(), going.end(), [&](const DeletionRecord& deletion) { return !kept.contains(deletion.attempt); });
    staying.insert(staying.end(), first_kept, going.end());
    going.erase(first_kept, going.end());
  }
  MarkFolders(files, layout, manifest, staying, warn);
  return RemoveFiles(files, layout, manifest, ReferringFirst(std::move(going)), removals_max, warn);
}

}  // namespace tidemark::storage
