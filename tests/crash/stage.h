// What a scenario does to a store, with production code, on a disk that logs it; and what has been promised by then, in
// the disk's log.

#ifndef TIDEMARK_TESTS_CRASH_STAGE_H_
#define TIDEMARK_TESTS_CRASH_STAGE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "storage/bytes/ids.h"
#include "storage/io/file_system.h"
#include "storage/journal/entry.h"
#include "storage/records/fact.h"
#include "storage/store/lease.h"
#include "storage/store/store_journal.h"
#include "tests/crash/small_trainer.h"
#include "tests/storage/io/simulated_disk.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark::crash {

inline constexpr const char* kStore = "/run/store";

// Options with which a checkpointer does the same operations in the same order every time, and is opened in little
// time. `warnings` gets lines; null: they are dropped.
CheckpointerOptions SmallOptions(std::vector<std::string>* warnings = nullptr);

// Opens a checkpointer. RocksDB compacts what it finds, from the fourth opening of a store on, and on a thread of its
// own: all of that comes after everything else that is done to the disk here, and before this returns.
absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> OpenOrderly(storage::FileSystem& files, CheckpointerOptions options);

// Owned by one thread. What fails fails the test. Each call ends when the housekeeper has nothing left to do.
class Stage {
 public:
  // `files`: the disk, or what stands in front of it. Marks go to `disk`.
  Stage(storage::SimulatedDisk& disk, storage::FileSystem& files) : disk_(disk), files_(files) {}
  ~Stage() { gate_.Open(); }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  storage::FileSystem& files() { return files_; }
  storage::SimulatedDisk& disk() { return disk_; }
  void Mark(std::string mark) { disk_.Mark(std::move(mark)); }

  // With SmallOptions, and the retention, reuse and compression of `options`.
  void Open(const CheckpointerOptions& options = {});
  // Replaces the step, if there is one. Waits for the commit and then until retention, if there is any, has deleted
  // `going`, which may go no sooner than the save is promised, and nothing else.
  void Save(int64_t step, int64_t content, const std::vector<int64_t>& going = {});
  // Around operations after which retention must have deleted `going`: before, and after.
  void LetGoOf(const std::vector<int64_t>& going);
  void ExpectGone(const std::vector<int64_t>& going);
  // A save that is refused: nothing of it is there, now or later.
  void SaveInVain(int64_t step, int64_t content);
  // A save that ends in kUnknown.
  void SaveIntoTheUnknown(int64_t step, int64_t content);
  // Of a metric "score", by the trainer.
  void Report(int64_t step, const std::string& evaluator, double value);
  // The same of evaluators that report while the row of `first`, which is 1, is recorded: they are recorded at once.
  void ReportTogether(int64_t step, const std::string& first, const std::map<std::string, double>& behind);
  void Pin(int64_t step, bool pin);
  // What other processes append to the journal beside the trainer, which is promised when they have. Tidy has the
  // trainer look at it.
  void ReportAsWorker(int64_t step, const std::string& evaluator, double value);
  void PinAsTool(int64_t step, bool pin);
  void TagAsTool(int64_t step, const std::string& name, bool tag);
  // By the trainer, with the step's files.
  void Delete(int64_t step);
  // Asks the trainer to delete the step, which may be gone from now on; ExpectGone sees to it that it is.
  void AskToDelete(int64_t step);
  // The run goes back to a step. All behind it, `going`, the highest first, must be gone with their files then.
  void DiscardAfter(int64_t after, const std::vector<int64_t>& going);
  // As a person does whose store is closed, with one step in each entry of the journal.
  void PruneAfter(int64_t after, const std::vector<int64_t>& going);
  // As an evaluator on this machine does, until it is released: retention must not delete the step meanwhile.
  void Lease(int64_t step);
  void Release(int64_t step) { leases_.erase(step); }
  void Tidy();
  // Appends, until the journal has so many entries, what in the end changes nothing.
  void FillJournal(storage::EntryNumber entries);
  // The number of the journal's last entry.
  storage::EntryNumber LastEntry();
  void Close();
  // As a person does who repairs a store that is closed. `damaged`: the steps that are known once the store is open,
  // and that the repair must name as lost, with no other. RocksDB has nothing to compact yet; see OpenOrderly.
  void Repair(const std::set<int64_t>& damaged);

  // Those that this stage has saved, and that are not deleted, with their contents.
  const std::map<int64_t, int64_t>& steps() const { return steps_; }

 private:
  absl::Status TrySave(int64_t step, int64_t content);
  void Expect(const absl::Status& status, std::string_view what);
  // As a process that does not hold the store.
  void Append(storage::StoreJournal::Compose compose);
  // Of the step as it is listed now; nothing fails the test.
  std::optional<storage::AttemptId> AttemptOf(int64_t step);

  // Retention does not look at the steps before what is promised is in the log.
  class Gate {
   public:
    void Shut() { Set(true); }
    void Open() { Set(false); }
    void Pass() {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(
          +[](bool* shut) { return !*shut; }, &shut_));
    }

   private:
    void Set(bool shut) {
      absl::MutexLock lock(&mutex_);
      shut_ = shut;
    }

    absl::Mutex mutex_;
    bool shut_ ABSL_GUARDED_BY(mutex_) = false;
  };

  storage::SimulatedDisk& disk_;
  storage::FileSystem& files_;
  SmallTrainer trainer_;
  std::map<int64_t, int64_t> steps_;
  std::map<int64_t, std::unique_ptr<storage::Lease>> leases_;  // by step
  std::atomic<int64_t> discards_after_ = -1;                   // while it does, and
  std::atomic<int64_t> discarded_last_ = -1;                   // the step that goes last, after which the promise holds
  // Called on the housekeeping thread once the next row is recorded; null: nothing is.
  std::function<void()> next_report_;
  int64_t asked_ = 0;  // so many requests
  Gate gate_;
  std::unique_ptr<AsyncCheckpointer> checkpointer_;
};

}  // namespace tidemark::crash

#endif  // TIDEMARK_TESTS_CRASH_STAGE_H_
