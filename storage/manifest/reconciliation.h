// Reconciliation: lets the manifest's records and the folders in steps/ agree, whatever a crash or a person has done to
// either.

#ifndef TIDEMARK_STORAGE_MANIFEST_RECONCILIATION_H_
#define TIDEMARK_STORAGE_MANIFEST_RECONCILIATION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/manifest/attempt_reader.h"
#include "storage/manifest/manifest.h"
#include "storage/manifest/store_change.h"
#include "storage/manifest/store_layout.h"
#include "storage/shard/shard_reader.h"

namespace tidemark::storage {

// Used once, by one thread, under the store's lock. Refers to what it is made with.
class Reconciliation {
 public:
  using Warn = std::function<void(std::string_view)>;

  // `note`: see StoreOptions.
  Reconciliation(FileSystem& files, const StoreLayout& layout, const StoreId& store, Manifest& manifest,
                 const ShardReadOptions& read, const Warn& warn, const Warn& note, const OnStoreChange& on_change)
      : files_(files),
        layout_(layout),
        store_(store),
        manifest_(manifest),
        read_(read),
        warn_(warn),
        note_(note),
        on_change_(on_change) {}

  // Committed steps whose folder is gone, or that of an attempt that they refer to, become kLost; they are committed
  // again once all of it is back. Steps whose folder has a pin are pinned. Attempts without a record, and those of
  // deleted steps that somebody has put back, are adopted where every byte of them verifies. Else those that are
  // incomplete, or that a later attempt has replaced, are removed; those whose bytes are wrong, all that were put back,
  // and those with a deletion mark move to quarantine; those of other stores and newer versions are left alone. Removes
  // nothing that a step refers to, and nothing that is marked for deletion.
  //
  // kDataLoss: the manifest has to be rebuilt. Any other error says nothing about what is on disk, and nothing was
  // changed because of it.
  absl::Status Run();

  // Whether the next one would find nothing to do as long as no name in steps/ changes. Call after Run.
  bool settled() const { return settled_; }

  // A step whose record says that it is committed, and whose folder, to which another one refers, has a deletion mark.
  // A mark is written when the record is deleted, so the manifest has forgotten that. Run changes nothing about it.
  struct Forgotten {
    StepFolder folder;
    std::string reason;
  };
  // Call after Run.
  const std::vector<Forgotten>& forgotten() const { return forgotten_; }

 private:
  using FolderKey = std::pair<int64_t, AttemptId>;
  struct Discard {
    StepFolder folder;
    absl::Status why;
    bool to_quarantine;  // it may be worth a look
  };

  absl::Status ReconcileRecords();
  std::optional<StepFolder> MissingFolder(const StepRecord& record) const;
  void MarkLost(StepRecord& record, const StepFolder& missing);
  bool IsBack(const StepRecord& record);
  absl::StatusOr<bool> IsOfDeletedStep(const StepFolder& folder) const;
  absl::Status ReconcileFolder(const StepFolder& folder);
  absl::StatusOr<bool> LookForPin(StepInfo& info);
  absl::Status Adopt(const std::optional<StepRecord>& old, StepRecord record);
  absl::Status DiscardFolder(const Discard& discard);
  absl::Status FindForgotten();
  void Tell(StoreChange::Kind kind, const StepFolder& folder, std::string why) const;

  FileSystem& files_;
  const StoreLayout& layout_;
  const StoreId& store_;
  Manifest& manifest_;
  const ShardReadOptions& read_;
  const Warn& warn_;
  const Warn& note_;  // may be null
  const OnStoreChange& on_change_;

  std::vector<StepFolder> folders_;  // as listed, once
  std::set<FolderKey> present_;      // the same
  std::set<FolderKey> recorded_;     // attempts that are the one of their step
  std::vector<Discard> discards_;
  std::set<AttemptId> referenced_;  // by any step, once all are adopted
  std::vector<Forgotten> forgotten_;
  bool settled_ = true;
  // Of what the next one may find otherwise than it is now, without a name in steps/ that changes.
  const Warn warn_and_look_again_ = [this](std::string_view line) {
    settled_ = false;
    warn_(line);
  };
};

// Removes the files of attempts that are marked for deletion, but for those that a step refers to, that are in `in_use`
// or that anybody has a lease on, and what these refer to. It finds out what no step refers to any more, then what is
// leased, then what that refers to: so no reader is overlooked who took a lease and then found the step committed, even
// if that step, which refers to others, is marked meanwhile. One sync and one write for all of them. Folders that stay
// get a deletion mark first.
//
// Removes the files of `removals_max` attempts at most, and an attempt before those that it refers to; returns whether
// there are more to be removed. Files that cannot be removed stand in nobody's way: they do not count, keep their mark,
// with a warning, and the next call tries again. An error is only what the manifest itself fails with. One call at a
// time.
absl::StatusOr<bool> FinishDeletions(FileSystem& files, const StoreLayout& layout, Manifest& manifest,
                                     const std::set<AttemptId>& in_use, size_t removals_max,
                                     const Reconciliation::Warn& warn);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_MANIFEST_RECONCILIATION_H_
