// Manifest: the RocksDB database that says what is committed. The single commit point: a step is committed when Commit
// returns.

#ifndef TIDEMARK_STORAGE_MANIFEST_MANIFEST_H_
#define TIDEMARK_STORAGE_MANIFEST_MANIFEST_H_

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

// Thread-safe. Every write is one batch, synced before the call returns; it brings the indices along (index_keys.h), so
// that they agree with the records at every instant. Writes are one after the other; reads wait for none of them.
// Errors: kDataLoss where the database or a record is damaged, kUnimplemented where a record is of a newer version,
// kResourceExhausted on a full disk, kPermissionDenied, kInternal where the device fails, kInvalidArgument for a record
// that could not be read again, of which nothing is written. After a failed write the next
// one opens the database anew; while that fails, so do reads and writes, each of which tries again. Who changes a
// record that it has read keeps others from it meanwhile.
class Manifest : public StepCatalog {
 public:
  // `files`: what the manifest lies on. Not owned, and used as long as the manifest lives.

  // Creates a new, empty database. kAlreadyExists if there is one.
  static absl::StatusOr<std::unique_ptr<Manifest>> Create(FileSystem& files, const std::string& path,
                                                          const StoreId& store);

  // Opens an existing one to read and write; one of before there were indices gets them. kNotFound if there is none, or
  // one whose making was cut short or goes on just now; kDataLoss if it cannot be used.
  static absl::StatusOr<std::unique_ptr<Manifest>> Open(FileSystem& files, const std::string& path);

  // Opens it to read what is there now; writes nothing, not even a log, and may stand beside a live writer. One of
  // before there were indices stays without them: what asks these is kFailedPrecondition.
  static absl::StatusOr<std::unique_ptr<Manifest>> OpenReadOnly(FileSystem& files, const std::string& path);

  // The same, to be brought up to date by CatchUp.
  static absl::StatusOr<std::unique_ptr<Manifest>> OpenFollowing(FileSystem& files, const std::string& path);

  ~Manifest() override;

  // Takes in what a live writer has written since, in this process or another one; returns whether that may be
  // anything. What was committed before the call is there afterwards. A manifest that a rebuild has put in the old
  // one's place is taken for it: kNotFound while there is none, kDataLoss if it is another store's. After an error the
  // manifest is as it was or newer, and the next call tries again. Precondition: made by OpenFollowing.
  absl::StatusOr<bool> CatchUp();

  const StoreId& store_id() const;

  // The highest of all committed attempts; 0 if there was none.
  uint64_t last_sequence() const override;

  // nullopt if there is no record of the step. Where the manifest is open for writing, one that is above all steps with
  // a record is not looked for on the disk: the trainer's thread asks before each save, and must not wait for that.
  absl::StatusOr<std::optional<StepRecord>> Find(int64_t step) const override;

  // All records from `first_step` on, ascending by step, until `visit` returns false. `visit` must not use the
  // manifest.
  absl::Status ForEach(const std::function<bool(StepRecord)>& visit, int64_t first_step = 0) const override;

  // All committed steps at one moment, without the fields that KeptStep leaves out. Other steps cost nothing.
  // kFailedPrecondition: the manifest has no such index.
  //
  // Where the manifest is open for writing it keeps them from the first call on, a KiB or two each: the next one reads
  // nothing. It does not wait for the reading, but for a write that goes on.
  absl::StatusOr<CommittedSteps> Committed() const override;

  // The highest committed step; nullopt if there is none. kFailedPrecondition: the manifest has no such index.
  absl::StatusOr<std::optional<int64_t>> LatestCommitted() const override;

  // The same for who changes the record. A write that failed may have reached the disk all the same, and would come
  // back with the next one, which was thought up without it. So this opens the manifest anew first, where a write has
  // failed; an error where it cannot be.
  absl::StatusOr<std::optional<StepRecord>> FindToChange(int64_t step) const;

  // The record of the highest step that is <= `step`; nullopt if there is none.
  absl::StatusOr<std::optional<StepRecord>> FindAtOrBelow(int64_t step) const override;

  // The record of the highest committed step that is <= `step`; nullopt if there is none. Reads no other record.
  // kFailedPrecondition: the manifest has no such index.
  absl::StatusOr<std::optional<StepRecord>> FindCommittedAtOrBelow(int64_t step) const override;

  // The record of the committed, healthy step whose metric of that name is the lowest or highest; of several such steps
  // the last one's. Values that are not finite do not count. nullopt if no such step has the metric.
  // kFailedPrecondition: the manifest has no indices.
  absl::StatusOr<std::optional<StepRecord>> FindBest(std::string_view metric, BestMode mode) const override;

  // The best mode of each metric for which a trainer has recorded one. AddBestModes replaces the recorded modes of the
  // same metrics by `modes`, and returns all modes. It writes nothing if nothing changes.
  absl::StatusOr<BestModes> RecordedBestModes() const override;
  absl::StatusOr<BestModes> AddBestModes(const BestModes& modes);

  // The phases of the save that has made this attempt at the step; empty: they are not known.
  absl::StatusOr<std::vector<SavePhase>> Phases(int64_t step, std::string_view attempt) const override;

  // Whether any step that is not deleted has chunks in files of the attempt, its own apart. Files are removed on that
  // word, so it survives power loss, which is more than what is merely read after a write that failed. An error where
  // the manifest cannot be opened anew to be written. kFailedPrecondition: the manifest has no indices.
  absl::StatusOr<bool> IsReferenced(const AttemptId& attempt) const override;

  // Reads every block of every table; kDataLoss if one is damaged. Of the records it says nothing, nor of whether the
  // indices agree with them.
  absl::Status VerifyTables() const;

  // Reads every record and makes the indices agree with them, in one batch. Returns how many keys were missing or
  // wrong.
  absl::StatusOr<size_t> RepairIndices();

  // Of one made by OpenReadOnly: kDataLoss if a log of the database is damaged. What stood behind that place is missing.
  const absl::Status& log_damage() const;

  // Whether any call has found damage since the manifest was opened.
  bool damage_found() const;

  // Makes `record` the record of its step and its sequence the last one, unless that is higher. If another attempt was
  // recorded for the step, the same batch marks that attempt for deletion; returned, so that its files can go now. One
  // that was deleted has been marked before. `phases`: of the save, may be null; in the same batch.
  absl::StatusOr<std::optional<DeletionRecord>> Commit(const StepRecord& record, const PhasesRecord* phases = nullptr);

  // What is known of a committed step's phases by now. Writes nothing: the next batch that changes a step, or closes
  // the store, takes it along, whatever that is for, so that nobody waits for a sync because of it. Lost if none
  // follows, or if that one fails.
  void NotePhases(PhasesRecord phases);

  // Replaces the record of a step whose state changed. Preconditions: it was made of what FindToChange has given; same
  // attempt as before, or no files belong to `record`.
  absl::Status Update(const StepRecord& record);

  // Replaces several records and marks attempts for deletion, all in one batch. Preconditions: as of Update; no two are
  // of the same step.
  absl::Status Update(std::span<const StepRecord> records, std::span<const DeletionRecord> deletions);

  // Attempts whose files must go, and whether there are any. The first is as IsReferenced in what it needs.
  absl::StatusOr<std::vector<DeletionRecord>> Deletions() const override;
  absl::StatusOr<bool> HasDeletions() const;

  // Whether those two can answer: the error of opening the manifest anew where a write has failed and that fails too.
  absl::Status EnsureDurable() const;

  // The files of these attempts are gone, and that has been synced. One batch.
  absl::Status FinishDeletions(std::span<const AttemptId> attempts);

  // Where the manifest is the index of a journal: the last entry that it has applied. nullopt: it is of no journal.
  absl::StatusOr<std::optional<JournalPlace>> Applied() const;

  // Applies the facts of the entries up to `place`, in order, and notes the place, all in one batch. The batch is not
  // synced: after a power loss the manifest may be as it was some batches ago, and Applied() says so.
  absl::Status Apply(const JournalPlace& place, std::span<const Fact> facts);

  // FinishDeletions without a sync, for an index: what it forgets may be back after a power loss.
  absl::Status ForgetDeletions(std::span<const AttemptId> attempts);

  absl::StatusOr<std::vector<DeletionRequestFact>> Requests() const override;

  // The mark of a store that was closed in good order; nullopt if there is none. It does not hold if the list of the
  // database's files was another one when the manifest was opened: a list that has lost its end takes tables away, and
  // leaves the mark, which is in the log.
  absl::StatusOr<std::optional<SettledMark>> Settled() const;
  const std::string& list_as_opened() const;
  absl::Status SetSettledMark(const DirectoryStamp& steps);  // the last write before the manifest is closed
  absl::Status RemoveSettledMark();

 private:
  struct Impl;
  explicit Manifest(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_MANIFEST_MANIFEST_H_
