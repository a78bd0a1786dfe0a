// StoreReader: looks into a store without changing it, beside a live trainer or long after it. What checkpoint-inspect
// is made of.

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
  // Empty: every byte that was read is sound. At most 1000 places of each shard. If a shard has more, one item behind
  // them counts the others, and names the entries that only those affect.
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
// std::bad_alloc, kInternal for others. Never takes the store's lock. Writes nothing to the store but leases, while it
// restores or loads. Holds a few of the manifest's files open, so that Refresh reads only new records.
//
//   auto reader = tidemark::StoreReader::Open("run/ckpt");
//   if (!reader.ok()) return reader.status();
//   auto best = (*reader)->Load(tidemark::StepSelector::Best("validation/loss"), {"model.*"});
//   if (!best.ok()) return best.status();
//   absl::Status loaded = tidemark::LoadModule(**best, "model", *model);  // tidemark/torch.h
class StoreReader {
 public:
  // kNotFound: no such directory, or no store in it. kUnimplemented: written by a newer version. Where the manifest
  // cannot be read the steps are found by their shards, and manifest_problem() says why; where there is none yet and no
  // step either, the store is just being made.
  static absl::StatusOr<std::unique_ptr<StoreReader>> Open(const std::string& directory);

  // The same for a store from a stranger. RocksDB is not made for files that mean harm, so the manifest is never
  // opened: the steps are those of the shards, what only a manifest knows is missing, and manifest_problem() is ok.
  // Decodes on one thread, so that chunks made to be large take their memory once.
  static absl::StatusOr<std::unique_ptr<StoreReader>> OpenUntrusted(const std::string& directory);
  ~StoreReader();

  // 32 hexadecimal digits.
  const std::string& store_id() const;

  // Ok, or why the steps below come from the shards though the manifest was to tell.
  const absl::Status& manifest_problem() const;

  // As of Open or the last Refresh, ascending by step; those that were deleted or only evaluated included. With reports
  // that workers have left and no trainer has taken in yet, as far as these can be read.
  const std::vector<StepInfo>& steps() const;

  // Where the steps come from the shards: of each attempt that is not among them because it could not be read, its
  // folder and why. One that is just being written is among these.
  const std::vector<std::string>& unread() const;

  // Takes in what has been committed, recorded or deleted since. Where that is nothing, at little cost, unless the
  // steps come from the shards. kFailedPrecondition: the store was moved or replaced. The steps read so far stay, and
  // other calls go on reading the store that was opened.
  absl::Status Refresh();

  // The highest committed step; kNotFound if there is none.
  absl::StatusOr<StepInfo> Latest() const;

  // The highest committed step that no evaluator distrusts: RestoreOptions::healthy_only begins with it. kNotFound:
  // there is none.
  absl::StatusOr<StepInfo> LatestHealthy() const;

  // As AsyncCheckpointer::BestStep. Without a mode, kInvalidArgument if neither the record nor the name gives one.
  absl::StatusOr<StepInfo> Best(std::string_view metric, BestMode mode) const;
  absl::StatusOr<StepInfo> Best(std::string_view metric) const;

  // Whether the lowest or the highest value of the metric is the best: the mode that a trainer has recorded, else the
  // mode that the name gives (BestModeOfName). nullopt: neither gives one.
  std::optional<BestMode> BestModeOf(std::string_view metric) const;

  // The modes that trainers have recorded, by metric. Empty if the steps come from the shards.
  const std::map<std::string, BestMode, std::less<>>& recorded_best_modes() const;

  // The selected step; a number selects its step in any state. kNotFound: there is none. kFailedPrecondition: several
  // steps have the tag.
  absl::StatusOr<StepInfo> Find(const StepSelector& step) const;

  // Fills `state` from the selected step, after Refresh. Works beside a trainer and on a read-only disk.
  //
  // While it reads, a lease keeps the trainer's retention from deleting the step. There is no lease without the right
  // to write to leases/, on a read-only disk, or on a full one. If the step is deleted before
  // it is read, the selection is made once more. A damaged step is passed over, as AsyncCheckpointer::RestoreLatest
  // does. Only the holder of the store marks it. RestoreReport::passed_over names it. RestoreOptions::healthy_only
  // waits for nothing. Entries of companions are left out.
  //
  // Errors as of AsyncCheckpointer::RestoreLatest and Restore, and of Refresh.
  absl::StatusOr<RestoreReport> RestoreLatest(State& state, const RestoreOptions& options = {});
  absl::StatusOr<RestoreReport> Restore(const StepSelector& step, State& state, const RestoreOptions& options = {});

  // Reads the entries of the selected step whose names match one of these patterns ('*' any run of characters, '?'
  // one), each chunk checked, into memory of their own. Empty: all entries, except those of companions. Refresh, lease
  // and damaged steps are as in Restore.
  //   kNotFound: no step is selected.
  //   kInvalidArgument: a pattern matches no entry.
  //   kDataLoss: the selected steps are damaged, lost or deleted.
  //   kResourceExhausted: no memory.
  //   kUnimplemented: several ranks saved the step.
  absl::StatusOr<std::shared_ptr<const Snapshot>> Load(const StepSelector& step,
                                                       const std::vector<std::string>& entries = {});

  // The attempts, 32 hexadecimal digits each, in whose files chunks of the step lie besides its own, by its record; no
  // order. None where the step was deleted or never saved, or there is no record of it. kResourceExhausted: no memory.
  absl::StatusOr<std::vector<std::string>> References(int64_t step) const;

  // What the step's save was busy with, and when. Empty where nothing is known: of steps that were never saved, that
  // were saved by a version which did not record it, or whose manifest was rebuilt or is not read. "commit" may be
  // missing: it is recorded by whatever is written next, a later step or the end of the trainer at the latest.
  // kNotFound if there is no record of the step. kDataLoss, kUnimplemented: what was recorded cannot be read.
  absl::StatusOr<std::vector<SavePhase>> Phases(int64_t step) const;

  // Reads the index of each of the step's shards, and no tensor. kDataLoss where one is damaged, kNotFound where one is
  // gone, or the step was deleted or never saved.
  absl::StatusOr<StepContents> Contents(int64_t step) const;

  // Holds the step's shards open to read more of it than one entry. Errors as of Contents.
  absl::StatusOr<std::unique_ptr<StepReader>> OpenStep(int64_t step) const;

  // The bytes of one entry, checked. kNotFound: no such step or entry, or a file is gone. kDataLoss: damaged. A reader
  // holds no lease, so either may also mean that a trainer has deleted the step meanwhile; after Refresh Find tells.
  absl::StatusOr<std::vector<std::byte>> ReadEntry(int64_t step, std::string_view name) const;

  // The bytes [offset, offset + bytes) of the entry, of which those chunks are read and checked in which a byte of them
  // lies, and no others. Rows of a tensor follow each other: row r of one of shape [rows, ...], held as a whole, begins
  // at r times the bytes of a row. kOutOfRange: they do not all lie in the entry. Else as above.
  absl::StatusOr<std::vector<std::byte>> ReadEntry(int64_t step, std::string_view name, uint64_t offset,
                                                   uint64_t bytes) const;

  // Reads every byte of the step's shards and holds it against its checksum: header, index, footer, padding, every
  // chunk as stored and as decoded. Damage is in the report; a Status that is not ok means that reading itself failed.
  // `progress` is called on this thread: when the first bytes have been read, then at most every 100 ms as more are
  // read, and at the end. A disk that does not answer delays it.
  absl::StatusOr<VerifyReport> Verify(int64_t step,
                                      const std::function<void(const VerifyProgress&)>& progress = nullptr) const;

  // The same of a sample of the chunks; no damage in it says little of the rest. kInvalidArgument: the share is not 0
  // to 1.
  absl::StatusOr<VerifyReport> Verify(int64_t step, const VerifyOptions& options) const;

  // Reads every block of the tables that the manifest consists of, those included that no question has needed.
  // kDataLoss where one is damaged: the steps above are right all the same, but the manifest will have to be rebuilt.
  // Ok where the steps come from the shards.
  absl::Status VerifyManifest() const;

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
