// KeptSteps: what is known of the committed steps, so that whoever asks again need not read and decode all of them.

#ifndef TIDEMARK_STORAGE_RECORDS_KEPT_STEPS_H_
#define TIDEMARK_STORAGE_RECORDS_KEPT_STEPS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "tidemark/step_info.h"

namespace tidemark::storage {

// Ascending by step, each made by KeptStep. Shared by its holders, and never changed.
using CommittedSteps = std::vector<std::shared_ptr<const StepInfo>>;

// What user_metadata, and the metrics and reasons of evaluation records, may take of memory in all.
inline constexpr size_t kKeptTextBytesMax = 1024;

// The step as it is kept in memory: without user_metadata, and without the metrics and reasons of evaluation records,
// if these take more than kKeptTextBytesMax. Metrics are in StepInfo::metrics too. The catalog has the whole record.
std::shared_ptr<const StepInfo> KeptStep(StepInfo info);

// Whether nothing was left out: metadata is a JSON object, so it is never empty in a record.
inline bool IsWhole(const StepInfo& kept) { return !kept.user_metadata.empty(); }

// Thread-compatible. Has to be told of every write of step records.
class KeptSteps {
 public:
  // nullopt: nothing is kept.
  std::optional<CommittedSteps> Get() const;

  // How many writes there were.
  uint64_t writes() const { return writes_; }

  // Keeps what was read when there had been so many writes, unless there have been others since, which it may lack.
  // Nor does it keep anything after a write that failed, until one has succeeded: nobody knows before then what of the
  // failed one is on disk.
  void Keep(const CommittedSteps& steps, uint64_t writes_before);

  // These steps were written, as they will be read.
  void Wrote(const absl::Status& status, std::vector<StepInfo> steps);

  // Which steps are committed has changed otherwise.
  void Forget();

 private:
  std::optional<std::map<int64_t, std::shared_ptr<const StepInfo>>> steps_;
  uint64_t writes_ = 0;
  bool in_doubt_ = false;  // the last write failed
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_RECORDS_KEPT_STEPS_H_
