#include "storage/records/metric_report.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "storage/bytes/utf8.h"
#include "storage/io/quoted_name.h"
#include "storage/records/checked_json.h"
#include "storage/records/json_fields.h"
#include "tidemark/entry.h"

namespace tidemark::storage {
namespace {

constexpr size_t kEvaluatorBytesMax = 256;

constexpr std::string_view kMetricFileBegin = "metrics-";
constexpr std::string_view kReportFileEnd = ".json";

// C0, DEL and C1, the last of two bytes.
bool HasControlCharacter(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 || byte == 0x7f) return true;
    if (byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0) return true;
  }
  return false;
}

MetricReport DecodeReportFields(const Json& json) {
  MetricReport report;
  report.store = DecodeId<StoreId>(json.at("store"));
  report.step = DecodeStep(json.at("step"));
  report.attempt = DecodeId<AttemptId>(json.at("attempt"));
  report.evaluation = DecodeEvaluation(json);
  if (const absl::Status status = ValidateEvaluation(report.evaluation); !status.ok()) {
    throw std::invalid_argument(std::string(status.message()));
  }
  return report;
}

std::string MergedName(const Evaluation& evaluation, const std::string& metric) {
  return evaluation.evaluator + "/" + metric;
}

}  // namespace

absl::Status ValidateEvaluation(const Evaluation& evaluation) {
  const std::string& name = evaluation.evaluator;
  const auto shown = [&] { return QuotedName(name); };
  if (name.empty() || name.size() > kEvaluatorBytesMax) {
    return absl::InvalidArgumentError(fmt::format("the evaluator's name {} has {} bytes; it must have 1 to {}", shown(),
                                                  name.size(), kEvaluatorBytesMax));
  }
  if (!IsUtf8(name)) return absl::InvalidArgumentError(fmt::format("the evaluator's name {} is not UTF-8", shown()));
  if (HasControlCharacter(name)) {
    return absl::InvalidArgumentError(fmt::format("the evaluator's name {} has a control character", shown()));
  }
  if (name.find('/') != std::string::npos) {
    return absl::InvalidArgumentError(fmt::format("the evaluator's name {} has a '/'", shown()));
  }
  for (const auto& [metric, value] : evaluation.metrics) {
    if (metric.empty() || metric.size() > EntrySpec::kNameBytesMax) {
      return absl::InvalidArgumentError(
          fmt::format("evaluator {}: the metric's name {} has {} bytes; it must have 1 to {}", shown(),
                      QuotedName(metric), metric.size(), EntrySpec::kNameBytesMax));
    }
    if (!IsUtf8(metric)) {
      return absl::InvalidArgumentError(
          fmt::format("evaluator {}: the metric's name {} is not UTF-8", shown(), QuotedName(metric)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<MetricReport> DecodeMetricReport(std::string_view bytes) {
  // The check comes first, in every version: of bytes that are not as they were written, the version says nothing.
  if (absl::Status status = CheckEnd("metric report", bytes, kMetricReportBytesMax); !status.ok()) return status;
  return DecodeJson<MetricReport>("metric report", bytes, kMetricReportVersion, DecodeReportFields, ParseStrictly);
}

std::string MetricFileName(std::string_view evaluator) {
  return fmt::format("{}{}{}", kMetricFileBegin, ToHex(DigestOf(std::as_bytes(std::span(evaluator))).bytes),
                     kReportFileEnd);
}

bool IsMetricFileName(std::string_view name) {
  if (!name.starts_with(kMetricFileBegin) || !name.ends_with(kReportFileEnd)) return false;
  name.remove_prefix(kMetricFileBegin.size());
  name.remove_suffix(std::min(name.size(), kReportFileEnd.size()));
  return FromHex(name).has_value();
}

std::optional<InboxName> ParseInboxFileName(std::string_view name) {
  const size_t dash = name.rfind('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto folder = ParseStepFolderName(name.substr(0, dash));
  std::string metric_file = fmt::format("{}{}", kMetricFileBegin, name.substr(dash + 1));
  if (!folder || !IsMetricFileName(metric_file)) return std::nullopt;
  return InboxName{.folder = *folder, .metric_file = std::move(metric_file)};
}

bool IsOutranked(const StepInfo& info, const Evaluation& evaluation) {
  if (evaluation.outcome == Evaluation::Outcome::kDone || !evaluation.unhealthy.empty()) return false;
  return std::any_of(info.evaluations.begin(), info.evaluations.end(), [&](const Evaluation& row) {
    if (row.evaluator != evaluation.evaluator) return false;
    const bool failed_before = row.outcome == Evaluation::Outcome::kFailed;
    return row.outcome == Evaluation::Outcome::kDone || !row.unhealthy.empty() ||
           (failed_before && evaluation.outcome == Evaluation::Outcome::kSkipped);
  });
}

void ApplyEvaluation(StepInfo& info, const Evaluation& evaluation) {
  if (IsOutranked(info, evaluation)) return;
  std::vector<Evaluation>& rows = info.evaluations;
  const auto row = std::lower_bound(
      rows.begin(), rows.end(), evaluation.evaluator,
      [](const Evaluation& candidate, const std::string& evaluator) { return candidate.evaluator < evaluator; });
  if (row != rows.end() && row->evaluator == evaluation.evaluator) {
    for (const auto& [name, value] : row->metrics) info.metrics.erase(MergedName(*row, name));
    *row = evaluation;
  } else {
    rows.insert(row, evaluation);
  }
  for (const auto& [name, value] : evaluation.metrics) info.metrics[MergedName(evaluation, name)] = value;
}

bool HasEvaluation(const StepInfo& info, const Evaluation& evaluation) {
  if (IsOutranked(info, evaluation)) return true;
  // As they are written, since one NaN does not equal another.
  const auto written = [](Evaluation row) {
    if (row.outcome == Evaluation::Outcome::kDone) {
      row.worker.clear();
      row.reported = absl::UnixEpoch();
      row.took = absl::ZeroDuration();
    }
    return DumpJson(EncodeEvaluation(row));
  };
  return std::any_of(info.evaluations.begin(), info.evaluations.end(), [&](const Evaluation& row) {
    return row.evaluator == evaluation.evaluator && written(row) == written(evaluation);
  });
}

}  // namespace tidemark::storage
