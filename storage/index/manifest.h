// Manifest: the index of a journal, in RocksDB: what the journal's entries say up to one of them, ready to be asked. It
// may be deleted at any time. A store of the first format has one that is the only record of its steps.

#ifndef TIDEMARK_STORAGE_INDEX_MANIFEST_H_
#define TIDEMARK_STORAGE_INDEX_MANIFEST_H_

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/journal/journal_view.h"
#include "storage/records/best_modes.h"
#include "storage/records/fact.h"
#include "storage/records/kept_steps.h"
#include "storage/records/manifest_records.h"
#include "storage/records/phases_record.h"
#include "storage/records/step_catalog.h"

namespace tidemark::storage {

// Thread-safe. Every write is one batch, which is not synced, and brings the keys of index_keys.h along; so they agree
// with the records at every instant. Writes are one after the other; reads wait for none of them. After a power loss
// it is not known what is there.
//
// Errors: kDataLoss where the database or a record is damaged, kUnimplemented where a record is of a newer version,
// kResourceExhausted on a full disk or without memory, kPermissionDenied, kInternal where the device fails. After one,
// failure() says so, and the journal is to be read instead.
class Manifest : public StepCatalog {
 public:
  // `files`: what the manifest lies on. Not owned, and used as long as the manifest lives.

  // Creates a new, empty database. kAlreadyExists if there is one.
  static absl::StatusOr<std::unique_ptr<Manifest>> Create(FileSystem& files, const std::string& path,
                                                          const StoreId& store);

  // Opens an existing one to read and write. kNotFound if there is none, or one whose making was cut short; kDataLoss
  // if it cannot be used, or is of an older version.
  static absl::StatusOr<std::unique_ptr<Manifest>> Open(FileSystem& files, const std::string& path);

  // Opens it to read what is there now; writes nothing, not even a log, and may stand beside a live writer. Of an older
  // version it has the records, and may lack what FindBest, Committed, FindCommittedAtOrBelow, LatestCommitted and
  // IsReferenced look for.
  static absl::StatusOr<std::unique_ptr<Manifest>> OpenReadOnly(FileSystem& files, const std::string& path);

  ~Manifest() override;

  const StoreId& store_id() const;

  // See StepCatalog. Where the manifest is open for writing, Find does not look on the disk for a step that is above
  // all steps with a record: the trainer's thread asks before each save, and must not wait for that. Committed keeps
  // the steps from the first call on, a KiB or two each: the next one reads nothing. It does not wait for the reading,
  // but for a write that goes on.
  uint64_t last_sequence() const override;
  absl::StatusOr<std::optional<StepRecord>> Find(int64_t step) const override;
  absl::StatusOr<std::optional<StepRecord>> FindAtOrBelow(int64_t step) const override;
  absl::StatusOr<std::optional<StepRecord>> FindCommittedAtOrBelow(int64_t step) const override;
  absl::Status ForEach(const std::function<bool(StepRecord)>& visit, int64_t first_step = 0) const override;
  absl::StatusOr<CommittedSteps> Committed() const override;
  absl::StatusOr<std::optional<int64_t>> LatestCommitted() const override;
  absl::StatusOr<std::optional<StepRecord>> FindBest(std::string_view metric, BestMode mode) const override;
  absl::StatusOr<BestModes> RecordedBestModes() const override;
  absl::StatusOr<std::vector<SavePhase>> Phases(int64_t step, std::string_view attempt) const override;
  absl::StatusOr<bool> IsReferenced(const AttemptId& attempt) const override;
  absl::StatusOr<std::vector<DeletionRecord>> Deletions() const override;
  absl::StatusOr<std::vector<DeletionRequestFact>> Requests() const override;

  // After OpenReadOnly: kDataLoss if a log of the database is damaged. The records after the damage are missing.
  const absl::Status& log_damage() const;

  // Reads every block of every table of the database and compares it with its checksum.
  absl::Status VerifyTables() const;

  // The first error that any call has given since the manifest was opened; ok: none.
  absl::Status failure() const;

  // The last entry of the journal that the manifest has applied. nullopt: it is of no journal.
  absl::StatusOr<std::optional<JournalPlace>> Applied() const;

  // Applies the facts of the entries up to `place`, in order, and notes the place, all in one batch. kInvalidArgument:
  // a record could not be read again; nothing is written.
  absl::Status Apply(const JournalPlace& place, std::span<const Fact> facts);

  // The files of these attempts are gone: Deletions() leaves them out. After a power loss it may have them again.
  absl::Status ForgetDeletions(std::span<const AttemptId> attempts);

 private:
  struct Impl;
  explicit Manifest(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_INDEX_MANIFEST_H_
