// StoreReader: reads a store without changing it, beside a live trainer or long after it. checkpoint-inspect is built
// on it.

#ifndef TIDEMARK_STORE_READER_H_
#define TIDEMARK_STORE_READER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tidemark/entry.h"
#include "tidemark/restore_options.h"
#include "tidemark/snapshot.h"
#include "tidemark/state.h"
#include "tidemark/step_info.h"
#include "tidemark/step_reader.h"
#include "tidemark/step_selector.h"

namespace tidemark {

struct VerifyProgress {
  uint64_t bytes_done = 0;
  uint64_t bytes_total = 0;
};

struct Damage {
  std::string path;
  std::string what;  // with offset, expected and found
  // Entries that lose data. Empty: none, or not known. Once a shard's list has 4096 names, no entry is named in it
  // again.
  std::vector<std::string> entries;
};

struct VerifyReport {
  uint64_t bytes_read = 0;
  uint64_t chunks = 0;        // that this call read
  uint64_t chunks_total = 0;  // that the step has
  // Empty: every byte that was read is sound. At most 1000 places of each shard, and 100 missing shards. If there are
  // more, one item behind them counts the others, and names the entries that only those affect.
  std::vector<Damage> damage;
};

// How much of a step is read to verify it.
struct VerifyOptions {
  // Of the chunks of each shard, 0 to 1, rounded up. Header, index and footer are read in any case, and the bytes
  // between chunks only at 1.
  double share = 1;
  // Which of them: of the same step the same seed draws the same ones.
  uint64_t seed = 0;
  // As of Verify.
  std::function<void(const VerifyProgress&)> progress = {};
  // Asked before each chunk, on several threads at once: true ends the call with kCancelled. May be null.
  std::function<bool()> cancelled = {};
  // An exception of one of them ends the verification with kInternal and its message.
};

// Thread-compatible. An exception becomes an error of the function that returns a status: kResourceExhausted for
// std::bad_alloc, kInternal for others. Never takes the store's lock. Writes only leases to the store, and only while
// it restores or loads. Keeps the records of all steps in memory, so that Refresh reads only what is new.
//
//   auto reader = tidemark::StoreReader::Open("run/ckpt");
//   if (!reader.ok()) return reader.status();
//   auto best = (*reader)->Load(tidemark::StepSelector::Best("validation/loss"), {"model.*"});
//   if (!best.ok()) return best.status();
//   absl::Status loaded = tidemark::LoadModule(**best, "model", *model);  // tidemark/torch.h
class StoreReader {
 public:
  // If the journal cannot be read, the steps come from the shards, and journal_problem() says why. A store without a
  // journal and without steps is one that a trainer is just making; that is no error.
  //   kNotFound: no such directory, or no store in it.
  //   kUnimplemented: a newer version wrote the store.
  //   kFailedPrecondition: an older version wrote the store, and it has to be opened for writing once, which converts
  //   it. The message says how.
  static absl::StatusOr<std::unique_ptr<StoreReader>> Open(const std::string& directory);

  // The same for a store that may be malicious. Decodes on one thread, so that large chunks take memory once. A step
  // with an index of more than 32 MiB, or more than 4 MiB of names, is an error where it is read. The steps of a store
  // that an older version wrote come from the shards, and journal_problem() is ok.
  static absl::StatusOr<std::unique_ptr<StoreReader>> OpenUntrusted(const std::string& directory);
  ~StoreReader();

  // 32 hexadecimal digits.
  const std::string& store_id() const;

  // Ok, or why the steps come from the shards and not from the journal.
  const absl::Status& journal_problem() const;

  // As of Open or the last Refresh, ascending by step, including steps that were deleted or only evaluated. Reports of
  // workers are in it as soon as they are in the journal. Unlike AsyncCheckpointer::Steps, this reads nothing and
  // cannot fail. The reference is valid until the next Refresh, Restore or Load.
  const std::vector<StepInfo>& Steps() const;

  // If the steps come from the shards: a line for each attempt that could not be read, with its folder and the reason.
  // An attempt that a trainer is writing now is among them.
  const std::vector<std::string>& unread() const;

  // Reads what has been committed, recorded or deleted since. Costs little if nothing has, unless the steps come from
  // the shards. kFailedPrecondition: the store was moved or replaced. The steps read so far stay, and other calls go on
  // reading the store that was opened.
  absl::Status Refresh();

  // The highest committed step; kNotFound if there is none.
  absl::StatusOr<StepInfo> LatestStep() const;

  // The highest committed step that no evaluator called unhealthy. RestoreOptions::healthy_only begins with it.
  // kNotFound: there is none.
  absl::StatusOr<StepInfo> LatestHealthyStep() const;

  // As AsyncCheckpointer::BestStep. Without a mode, kInvalidArgument if neither the record nor the name gives one.
  absl::StatusOr<StepInfo> BestStep(std::string_view metric, BestMode mode) const;
  absl::StatusOr<StepInfo> BestStep(std::string_view metric) const;

  // Whether the lowest or the highest value of the metric is the best: the mode that a trainer has recorded, else the
  // mode that the name gives (BestModeOfName). nullopt: neither gives one.
  std::optional<BestMode> BestModeOf(std::string_view metric) const;

  // The modes that trainers have recorded, by metric. Empty if the steps come from the shards.
  const std::map<std::string, BestMode, std::less<>>& recorded_best_modes() const;

  // The selected step; a number selects its step in any state. kNotFound: there is none. kFailedPrecondition: several
  // steps have the tag.
  absl::StatusOr<StepInfo> FindStep(const StepSelector& step) const;

  // Fills `state` from the selected step, after Refresh. Works beside a trainer and on a read-only disk.
  //
  // While it reads, a lease keeps the trainer's retention from deleting the step. There is no lease without the right
  // to write to leases/, on a read-only disk, or on a full one. If the step is deleted before it is read, a step is
  // selected once more. A damaged step is passed over, as by AsyncCheckpointer::RestoreLatest, but only the holder of
  // the store marks it. RestoreReport::passed_over names it. RestoreOptions::healthy_only does not wait for
  // evaluations. Entries of companions are left out.
  //
  // Errors as of AsyncCheckpointer::RestoreLatest and Restore, and of Refresh.
  absl::StatusOr<RestoreReport> RestoreLatest(State& state, const RestoreOptions& options = {});
  absl::StatusOr<RestoreReport> Restore(const StepSelector& step, State& state, const RestoreOptions& options = {});

  // Reads the entries of the selected step whose names match one of these patterns ('*' any run of characters, '?'
  // one), each chunk checked, into memory of their own. Empty: all entries, except those of companions. A tensor
  // that was saved in parts is made of all of them, and any other value is the lowest rank's. Refresh, lease and
  // damaged steps are as in Restore.
  //   kNotFound: no step is selected.
  //   kInvalidArgument: a pattern matches no entry.
  //   kDataLoss: the selected steps are damaged, lost or deleted.
  //   kResourceExhausted: no memory.
  absl::StatusOr<std::shared_ptr<const Snapshot>> Load(const StepSelector& step,
                                                       const std::vector<std::string>& entries = {});

  // The other attempts (32 hexadecimal digits each, in no order) whose files hold chunks of the step, by its record.
  // Empty if the step was deleted or never saved, or has no record. kResourceExhausted: no memory.
  absl::StatusOr<std::vector<std::string>> References(int64_t step) const;

  // The phases of the step's save and their times. Empty if nothing is recorded: the step was never saved, an old
  // version saved it, or the journal cannot be read. "commit" and "vote" may be missing, because the trainer's next
  // entry records them.
  //   kNotFound: no record of the step.
  //   kDataLoss, kUnimplemented: the phases are recorded and cannot be read.
  absl::StatusOr<std::vector<SavePhase>> Phases(int64_t step) const;

  // Reads the index of each of the step's shards, and no tensor. kDataLoss: an index is damaged. kNotFound: a shard is
  // gone, or the step was deleted or never saved.
  absl::StatusOr<StepContents> Contents(int64_t step) const;

  // Holds the step's shards open, to read several entries. Errors as of Contents.
  absl::StatusOr<std::unique_ptr<StepReader>> OpenStep(int64_t step, StepView view = StepView::kParts) const;
  // The selected step. If its files are gone, Refresh is called, and a step is selected once more. Errors also of
  // FindStep and Refresh.
  absl::StatusOr<std::unique_ptr<StepReader>> OpenSelected(const StepSelector& step, StepView view = StepView::kParts);

  // The bytes of one entry, checked. If it was saved in parts, it is the whole, made of all of them: see
  // StepReader::ReadBox, also for the errors. kNotFound: no such step or entry, or a file is gone. kDataLoss: damaged.
  // This takes no lease, so a trainer may delete the step meanwhile, with either error. Refresh and FindStep then show
  // that.
  absl::StatusOr<std::vector<std::byte>> ReadEntry(int64_t step, std::string_view name) const;

  // The bytes [offset, offset + bytes) of the entry. Reads and checks only the chunks that hold them. Tensors are
  // row-major: row r of a tensor of shape [rows, ...] begins at r times the bytes of a row. kOutOfRange: the range
  // leaves the entry. Else as above.
  absl::StatusOr<std::vector<std::byte>> ReadEntry(int64_t step, std::string_view name, uint64_t offset,
                                                   uint64_t bytes) const;

  // Reads every byte of the step's shards and compares it with its checksum: header, index, footer, padding, and every
  // chunk as stored and as decoded. The report lists the damage. A Status that is not ok means that reading itself
  // failed. `progress` is called on this thread: when the first bytes have been read, then at most every 100 ms as more
  // are read, and at the end. A disk that does not answer delays it.
  absl::StatusOr<VerifyReport> Verify(int64_t step,
                                      const std::function<void(const VerifyProgress&)>& progress = nullptr) const;

  // The same for a sample of the chunks. A sample without damage says little about the other chunks. kInvalidArgument:
  // the share is not 0 to 1.
  absl::StatusOr<VerifyReport> Verify(int64_t step, const VerifyOptions& options) const;

 private:
  StoreReader();
  static absl::StatusOr<std::unique_ptr<StoreReader>> OpenAs(const std::string& directory, bool trusted);
  class Catalog;  // snapshot/store_reader_catalog.h
  std::unique_ptr<Catalog> NewCatalog();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidemark

#endif  // TIDEMARK_STORE_READER_H_
