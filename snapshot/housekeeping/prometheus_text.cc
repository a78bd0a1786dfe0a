// PrometheusText of tidemark/statistics.h: the text exposition format, version 0.0.4.

#include <cmath>
#include <string>
#include <string_view>

#include "fmt/format.h"
#include "tidemark/statistics.h"

namespace tidemark {
namespace {

// Inside double quotes, these three are escaped and nothing else.
std::string LabelValue(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || c == '"') escaped += '\\';
    if (c == '\n') {
      escaped += "\\n";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string Number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

void Head(std::string& text, std::string_view name, std::string_view type, std::string_view help) {
  text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void One(std::string& text, std::string_view name, std::string_view type, std::string_view help, const auto& value) {
  Head(text, name, type, help);
  text += fmt::format("{} {}\n", name, value);
}

void Histograms(std::string& text, std::string_view name, std::string_view help,
                const std::map<std::string, DurationHistogram>& by_phase) {
  Head(text, name, "histogram", help);
  for (const auto& [phase, histogram] : by_phase) {
    const std::string label = LabelValue(phase);
    uint64_t below = 0;
    for (size_t i = 0; i < histogram.bounds.size(); ++i) {
      below += histogram.counts[i];
      text += fmt::format("{}_bucket{{phase=\"{}\",le=\"{}\"}} {}\n", name, label, Number(histogram.bounds[i]), below);
    }
    text += fmt::format("{}_bucket{{phase=\"{}\",le=\"+Inf\"}} {}\n", name, label, histogram.count);
    text += fmt::format("{}_sum{{phase=\"{}\"}} {}\n", name, label, Number(histogram.sum_seconds));
    text += fmt::format("{}_count{{phase=\"{}\"}} {}\n", name, label, histogram.count);
  }
}

}  // namespace

std::string PrometheusText(const CheckpointerStatistics& statistics) {
  std::string text;
  Histograms(text, "tidemark_blocked_seconds", "How long saves blocked the trainer, by phase.", statistics.blocked);
  Histograms(text, "tidemark_background_seconds", "How long work behind the training took, by phase.",
             statistics.background);
  One(text, "tidemark_saves_committed_total", "counter", "Saves that are committed.", statistics.saves_committed);
  One(text, "tidemark_saves_failed_total", "counter", "Saves that failed.", statistics.saves_failed);
  One(text, "tidemark_steps_deleted_total", "counter", "Steps that retention deleted.", statistics.steps_deleted);
  One(text, "tidemark_reports_recorded_total", "counter", "Evaluations that were recorded.",
      statistics.reports_recorded);
  One(text, "tidemark_reports_rejected_total", "counter", "Evaluations of unknown steps, and unreadable ones.",
      statistics.reports_rejected);
  Head(text, "tidemark_skipped_total", "counter", "Saves and evaluations that were left out, by reason.");
  for (const auto& [reason, count] : statistics.skipped) {
    text += fmt::format("tidemark_skipped_total{{reason=\"{}\"}} {}\n", LabelValue(reason), count);
  }
  One(text, "tidemark_logical_bytes_total", "counter", "Bytes of the committed states.", statistics.logical_bytes);
  One(text, "tidemark_stored_bytes_total", "counter", "Bytes of their files.", statistics.stored_bytes);
  One(text, "tidemark_reused_bytes_total", "counter", "Stored bytes shared with earlier steps.",
      statistics.reused_bytes);
  One(text, "tidemark_saves_in_flight", "gauge", "Saves that are neither committed nor failed.", statistics.in_flight);
  One(text, "tidemark_staging_bytes_in_use", "gauge", "Staging memory that snapshots hold.",
      statistics.staging_bytes_in_use);
  One(text, "tidemark_staging_bytes_max", "gauge", "Staging memory that snapshots may hold.",
      statistics.staging_bytes_max);
  if (statistics.last_committed_step) {
    One(text, "tidemark_last_committed_step", "gauge", "The step that was committed last.",
        *statistics.last_committed_step);
    One(text, "tidemark_last_committed_timestamp_seconds", "gauge", "When it was, in seconds since 1970.",
        fmt::format("{:.3f}", absl::ToDoubleSeconds(statistics.last_committed_time - absl::UnixEpoch())));
  }
  return text;
}

}  // namespace tidemark
