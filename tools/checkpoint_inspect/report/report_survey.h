// A survey of the tensors of many steps: how much each changes from step to step, and how the latest one's numbers are
// spread. Reads no more than it is told to.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_REPORT_REPORT_SURVEY_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_REPORT_REPORT_SURVEY_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tidemark/store_reader.h"
#include "tools/checkpoint_inspect/cli/console.h"
#include "tools/checkpoint_inspect/output/heat_map.h"
#include "tools/checkpoint_inspect/tensors/float_histogram.h"

namespace tidemark::inspect {

struct SurveyLimits {
  uint64_t read_bytes_max = uint64_t{2} << 30;  // of tensors, as they are in memory
  size_t steps_max = 61;                        // that are compared
  size_t rows_max = 60;                         // of the map of changes
  size_t histograms_max = 24;
};

struct GroupHistogram {
  std::string label;
  size_t tensors = 0;
  size_t tensors_read = 0;
  FloatHistogram histogram;
};

// A step of which something could not be read.
struct ReadProblem {
  int64_t step = 0;                    // whose reading failed, whichever step it was compared with
  std::string what;                    // the first error
  bool damaged = false;                // bytes are wrong or a file is gone
  bool failed = false;                 // reading failed, which says nothing about the bytes
  std::vector<std::string> entries;    // of a damaged step those that were found damaged; there may be more
  std::vector<std::string> not_shown;  // what the report lacks for it, or has only a part of
};
// "step 100: read ...: checksum ...; not shown in full: the change from step 90 to 100"
std::string ProblemText(const ReadProblem& problem);

// A step that a trainer took away while it was to be read. That is no finding against it.
struct PassedOverStep {
  int64_t step = 0;
  bool saved_anew = false;  // else it was deleted
  std::vector<std::string> not_shown;
};
// "step 100 was deleted while this page was made, and is left out; not shown in full: ..."
std::string PassedOverText(const PassedOverStep& passed_over);

struct ReportSurvey {
  std::vector<int64_t> steps;  // those that were compared, ascending
  size_t steps_given = 0;
  // Row by row: how much the group changed from steps[i] to steps[i + 1], as the norm of the change over the norm
  // before.
  std::vector<std::string> rows;
  std::vector<HeatCell> cells;
  std::vector<GroupHistogram> histograms;  // of the last of `steps`
  size_t others = 0;                       // entries of that step that are no floating-point tensors
  uint64_t bytes_read = 0;
  size_t steps_read = 0;  // of which some tensor was read
  // Left out for want of read_bytes_max.
  uint64_t bytes_pairs_left_out = 0;
  uint64_t bytes_histograms_left_out = 0;
  // Left out because reading failed.
  uint64_t bytes_pairs_unread = 0;
  uint64_t bytes_histograms_unread = 0;
  std::vector<ReadProblem> problems;  // one for each step that has any, in the order in which they were found
  std::vector<PassedOverStep> passed_over;

  bool damaged() const;  // one of the problems is damage
  bool failed() const;   // one of them is a failure to read
};

// `steps`: committed ones, ascending. What cannot be read is among the problems, and the rest goes on; kCancelled if
// Ctrl-C came. Memory: that of StreamTensors, the indices of two steps, and 56 bytes for each tensor and step.
absl::StatusOr<ReportSurvey> SurveySteps(const StoreReader& reader, std::span<const int64_t> steps,
                                         const SurveyLimits& limits, Console& console);

// Of the steps with problems, those that a trainer has deleted or saved anew since `then` was opened are passed over
// instead, unless reading itself failed. `then`: the reader of the survey. `now`: one that was opened after it.
void PassOverStepsTakenAway(const StoreReader& then, const StoreReader& now, ReportSurvey* survey);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_REPORT_REPORT_SURVEY_H_
