// What an evaluator says of a step: what may be in it, and what it makes of the step's record. And metric reports, the
// files that had it in the first format: one for each evaluator and attempt, named by both, in inbox/ until it was
// recorded and then in the step's folder. A conversion reads both.
//
// Pure functions between structs and bytes; no I/O. A report is a JSON object with a version, like the records of the
// index, and a check of all its bytes.

#ifndef TIDEMARK_STORAGE_RECORDS_METRIC_REPORT_H_
#define TIDEMARK_STORAGE_RECORDS_METRIC_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/bytes/ids.h"
#include "tidemark/step_info.h"

namespace tidemark::storage {

inline constexpr int kMetricReportVersion = 1;
inline constexpr size_t kMetricReportBytesMax = 1 << 20;

struct MetricReport {
  StoreId store;
  int64_t step = 0;
  AttemptId attempt;
  Evaluation evaluation;
};

// kInvalidArgument: the evaluator's name is empty, longer than 256 bytes, not UTF-8 or has a '/' or a control
// character; a metric's name is not 1 to EntrySpec::kNameBytesMax bytes of UTF-8.
absl::Status ValidateEvaluation(const Evaluation& evaluation);

// kDataLoss: not such a report, or not as it was written; the message says what is wrong. kUnimplemented: written by a
// newer version. Takes no more memory than a small multiple of `bytes`, whatever they are.
absl::StatusOr<MetricReport> DecodeMetricReport(std::string_view bytes);

// "metrics-<32 hexadecimal digits of the evaluator's name's XXH3-128>.json": the report's name in a step's folder.
std::string MetricFileName(std::string_view evaluator);
bool IsMetricFileName(std::string_view name);

// What a report's name in inbox/ says: "<name of the step's folder>-<the same digits>.json".
struct InboxName {
  StepFolder folder;
  std::string metric_file;  // MetricFileName of the evaluator
};
// Nothing for any other name.
std::optional<InboxName> ParseInboxFileName(std::string_view name);

// Whether the step has a row of that evaluator that says more than this one: what it found, or that the step is
// unhealthy, where this one says neither; or why it failed, where this one says that it was not asked.
bool IsOutranked(const StepInfo& info, const Evaluation& evaluation);

// Puts the evaluation among the step's, in the place of what that evaluator said before, and brings info.metrics along.
// Changes nothing where it is outranked.
void ApplyEvaluation(StepInfo& info, const Evaluation& evaluation);

// Whether that would say nothing new. Where two found the same it is no news by whom, when and in what time: a step
// that two workers of one name have evaluated counts once.
bool HasEvaluation(const StepInfo& info, const Evaluation& evaluation);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_RECORDS_METRIC_REPORT_H_
