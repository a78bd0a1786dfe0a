// StepCheck: what a verification of one step came to.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_STEP_CHECK_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_STEP_CHECK_H_

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "tidemark/store_reader.h"

namespace tidemark::inspect {

enum class CheckResult {
  kSound,       // every byte is what was committed
  kDamaged,     // some are not
  kMarked,      // all that was read is, and yet the step is recorded as damaged: restore passes over it
  kLost,        // the files are gone
  kRemoved,     // a live trainer removed the step while it was read
  kUnreadable,  // reading failed, which says nothing about the bytes
  kSampled,     // no damage in the sample of them that was read, which says little of the others
};

// "sound", "damaged", "marked", "lost", "removed", "unreadable", "sampled"
std::string_view CheckResultName(CheckResult result);

struct StepCheck {
  StepInfo info;  // of the attempt that was read
  CheckResult result = CheckResult::kSound;
  VerifyReport report;
  absl::Status error;  // kUnreadable: why
};

// Reads every byte of the step, or the sample that `options` says. Where that finds damage, `reader` is refreshed: if a
// live trainer has put another attempt in the step's place meanwhile, that one is read instead. Precondition: `info`
// is, or was before a Refresh, a step of `reader`, and no failed one.
StepCheck CheckStep(StoreReader& reader, const StepInfo& info, const VerifyOptions& options);

// The files of other attempts that hold chunks of the step, by its record, and in which `checks` found damage. Paths,
// or "the files of step 3" where a check names no file. Empty: none, or the record cannot be read.
std::set<std::string> DamagedFilesBehind(const StoreReader& reader, const std::vector<StepCheck>& checks, int64_t step);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_STEP_CHECK_H_
