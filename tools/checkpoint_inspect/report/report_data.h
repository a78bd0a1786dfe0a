// What a report says of a store: which steps and metrics it shows, and how the store is, in words and rows. Nothing of
// it is escaped.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_REPORT_REPORT_DATA_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_REPORT_REPORT_DATA_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tidemark/store_reader.h"
#include "tools/checkpoint_inspect/cli/metric_choice.h"

namespace tidemark::inspect {

struct ReportMetric {
  std::string name;
  std::optional<BestMode> mode;   // nullopt: not known; no step is the best
  std::optional<int64_t> best;    // as `best:METRIC` stands for, of the whole store
  double best_value = 0;          // of that step
  std::optional<int64_t> latest;  // the highest step that has it, in whatever state
  double latest_value = 0;
};

// Something that a person should know.
struct HealthRow {
  enum class Kind { kUnhealthy, kDamaged, kLost, kFailedSave, kFailedEvaluation, kSkippedEvaluation, kUnread };
  Kind kind = Kind::kUnhealthy;
  std::optional<int64_t> step;
  std::string by;  // the evaluator, or "this report"; empty: the store
  std::string what;
};
// "unhealthy", "damaged", "lost", "save failed", "evaluation failed", "evaluation skipped", "not readable"
std::string_view HealthKindName(HealthRow::Kind kind);

// A part of the time for which Save held the trainer.
struct BlockedPart {
  std::string name;
  size_t colour = 0;                                    // the same on every page; below kSeriesColours
  std::unordered_map<int64_t, absl::Duration> by_step;  // of steps that spent any on it
};

enum class HealthGrade { kGood, kWarning, kBad };

struct ReportSurvey;

struct ReportData {
  std::span<const StepInfo> steps;  // those that the report shows, ascending; the reader's, until its next Refresh
  size_t steps_all = 0;             // of the store
  std::optional<StepInfo> latest;
  std::optional<StepInfo> latest_healthy;
  size_t committed = 0;        // of the whole store, as are these:
  uint64_t stored_bytes = 0;   // in the files of committed and damaged steps
  uint64_t logical_bytes = 0;  // of committed steps
  std::vector<ReportMetric> metrics;
  std::vector<std::string> metrics_left_out;  // for want of room
  std::vector<BlockedPart> blocked;           // of the steps shown; together they are StepInfo::blocked
  std::vector<HealthRow> health;              // by step, of the whole store
  HealthGrade grade = HealthGrade::kGood;
  std::string verdict;  // the store's health in a few sentences
};

// `last`: shows so many of the steps, the highest; 0: all. `metrics`: those to show; none: all that there are, as far
// as there is room. If a choice has no mode, StoreReader::BestModeOf gives it. `grade` and `verdict` are left to
// JudgeHealth. kNotFound: no step has one of them; the message names those that there are.
absl::StatusOr<ReportData> GatherReport(const StoreReader& reader, const std::vector<MetricChoice>& metrics,
                                        int64_t last);

// What is on record and what reading tensors has found, as the grade and the verdict; what was found joins the rows of
// `health`. `survey`: null where no tensor was read. Precondition: `data` was gathered from `reader`.
void JudgeHealth(const StoreReader& reader, const ReportSurvey* survey, ReportData* data);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_REPORT_REPORT_DATA_H_
