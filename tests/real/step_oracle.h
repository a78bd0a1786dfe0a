// Knows what must be in a store, may be in it and must not be, from what its trainer told before it was cut off. Shares
// no code with the library, except to know of the folders in steps/ which ones are of attempts that were replaced.

#ifndef TIDEMARK_TESTS_REAL_STEP_ORACLE_H_
#define TIDEMARK_TESTS_REAL_STEP_ORACLE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "tests/real/save_log.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/store_reader.h"

namespace tidemark {

// Thread-safe.
class StepOracle final : public SaveLog {
 public:
  // The rules of the store, which the oracle reckons with: the last three, and the best one.
  static constexpr int64_t kMaxToKeep = 3;
  static RetentionOptions Rules();

  void Begun(int64_t step, int64_t version, double loss) override;
  void Committed(int64_t version) override;
  void Reporting(int64_t version, double score) override;
  void Reported(int64_t version, double score) override;
  void Pinning(int64_t step) override;
  void Pinned(int64_t step, bool pinned) override;

  // Of a store that was opened after a crash, and saved nothing since: what is wrong with it, a line each.
  //
  //   - Every acknowledged step restores bit-exact, as it was acknowledged or as a later save of it that was begun,
  //     with its metrics, unless retention may have delete it.
  //   - Every other step in it is one that was begun, and is whole.
  //   - None is lost or damaged, and the latest is not behind an acknowledged one.
  //   - No folder in steps/ is left that belongs to no record.
  //
  // From then on what was found counts as acknowledged, and what was not found as never begun.
  std::vector<std::string> CheckOpened(AsyncCheckpointer& checkpointer, const std::string& directory);

  // The first of these for a store that nobody has opened since, by who only reads it. Learns nothing.
  std::vector<std::string> CheckUnopened(const StoreReader& reader) const;

  // What a restore of the latest step brought.
  std::vector<std::string> CheckRestored(int64_t step, int64_t version) const;

  int64_t next_version() const;
  // Of a new step.
  int64_t next_step() const;
  uint64_t acknowledged() const;  // commits, since the beginning
  uint64_t checked() const;       // acknowledged steps that were held against a store, since the beginning
  // Saves that were begun and not acknowledged when a store was opened: those that were there whole, and the others.
  uint64_t found() const;
  uint64_t vanished() const;

 private:
  struct Attempt {
    int64_t version = 0;
    double loss = 0;
    std::optional<double> score;     // of the last report that was acknowledged
    std::vector<double> new_scores;  // of those that were begun since
    bool acknowledged = false;
  };
  // Ascending by version. From the last acknowledged one on they may be in the store.
  using Attempts = std::vector<Attempt>;

  static const Attempt* LastAcknowledged(const Attempts& attempts);
  static std::vector<Attempt> Possible(const Attempts& attempts);
  bool MayBeGone(int64_t step) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsBest(int64_t step) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Attempt* Find(int64_t version) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What is wrong with a committed step of which only this much is known; empty: nothing.
  std::string CheckInfo(const StepInfo& info, int64_t version) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CheckAbsent(const std::map<int64_t, StepInfo>& infos, std::vector<std::string>* wrong) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  std::map<int64_t, Attempts> steps_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, int64_t> step_of_version_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, std::optional<bool>> pins_ ABSL_GUARDED_BY(mutex_);  // nullopt: pinned or not
  int64_t last_version_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t last_step_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t acknowledged_ ABSL_GUARDED_BY(mutex_) = 0;
  mutable uint64_t checked_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t found_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t vanished_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_REAL_STEP_ORACLE_H_
