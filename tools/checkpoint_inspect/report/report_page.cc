#include "tools/checkpoint_inspect/report/report_page.h"

#include <algorithm>
#include <span>
#include <vector>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "tools/checkpoint_inspect/commands/steps.h"
#include "tools/checkpoint_inspect/output/html_page.h"
#include "tools/checkpoint_inspect/output/json.h"
#include "tools/checkpoint_inspect/output/text.h"
#include "tools/checkpoint_inspect/report/report_charts.h"

namespace tidemark::inspect {
namespace {

// Beyond these a page is one that no browser likes; what is left out is said, and ls and history list all.
constexpr size_t kStepRowsMax = 2000;
constexpr size_t kHealthRowsMax = 500;
constexpr size_t kProblemsMax = 20;
constexpr size_t kMetadataBytesMax = 64 << 10;

std::string Soft(std::string_view text) { return fmt::format("<p class=\"soft\">{}</p>\n", HtmlEscape(text)); }

std::string_view GradeClass(HealthGrade grade) {
  switch (grade) {
    case HealthGrade::kGood:
      return "good";
    case HealthGrade::kWarning:
      return "warning";
    case HealthGrade::kBad:
      return "bad";
  }
  return "";
}

std::string_view GradeName(HealthGrade grade) {
  switch (grade) {
    case HealthGrade::kGood:
      return "No problem is known.";
    case HealthGrade::kWarning:
      return "Usable, with remarks.";
    case HealthGrade::kBad:
      return "Needs a look.";
  }
  return "";
}

std::string Fact(std::string_view name, std::string_view value, std::string_view more) {
  return fmt::format("<div><dt>{}</dt><dd>{}<small>{}</small></dd></div>\n", HtmlEscape(name), HtmlEscape(value),
                     HtmlEscape(more));
}

std::string AgeText(const StepInfo& info, absl::Time now) {
  const std::string age = AgeOf(info, now);
  return age == "-" ? "age unknown" : age + " old";
}

std::string Facts(const ReportPageContents& contents) {
  const ReportData& data = contents.data;
  std::string html = "<dl class=\"facts\">\n";
  html += Fact("Latest step", data.latest ? fmt::format("{}", data.latest->step) : "none",
               data.latest ? AgeText(*data.latest, contents.now) : "nothing is committed");
  if (data.latest && (!data.latest_healthy || data.latest_healthy->step != data.latest->step)) {
    html += Fact("Latest healthy step", data.latest_healthy ? fmt::format("{}", data.latest_healthy->step) : "none",
                 data.latest_healthy ? AgeText(*data.latest_healthy, contents.now) : "all are unhealthy");
  }
  html += Fact("Committed steps", fmt::format("{}", data.committed), fmt::format("of {} on record", data.steps_all));
  html += Fact("Stored", HumanBytes(data.stored_bytes),
               fmt::format("for {} of tensors and values", HumanBytes(data.logical_bytes)));
  return html + "</dl>\n";
}

std::string BestTable(const ReportData& data) {
  if (data.metrics.empty()) return "";
  std::string html =
      "<div class=\"scroll\"><table>\n<thead><tr><th>Metric</th><th class=\"number\">Best</th><th "
      "class=\"number\">at step</th><th class=\"number\">Latest</th><th class=\"number\">at step</th>"
      "</tr></thead>\n<tbody>\n";
  for (const ReportMetric& metric : data.metrics) {
    const auto value = [](const std::optional<int64_t>& step, double number) {
      return fmt::format("<td class=\"number\">{}</td><td class=\"number\">{}</td>", step ? MetricText(number) : "–",
                         step ? fmt::format("{}", *step) : "–");
    };
    const std::string end =
        metric.mode ? fmt::format(" <span class=\"soft\">({} is best)</span>", BestModeName(*metric.mode)) : "";
    html += fmt::format("<tr><td class=\"metric\">{}{}</td>{}{}</tr>\n", HtmlEscape(metric.name), end,
                        value(metric.best, metric.best_value), value(metric.latest, metric.latest_value));
  }
  return html + "</tbody></table></div>\n";
}

std::string Metadata(const ReportData& data) {
  if (!data.latest) return "";
  const Json metadata = MetadataToJson(data.latest->user_metadata);
  if (!metadata.is_null() && metadata.empty()) return "";
  std::string text = metadata.is_null() ? "not a JSON object of at most " + MetadataLimits() : Dump(metadata);
  const bool is_cut = text.size() > kMetadataBytesMax;
  if (is_cut) text = text.substr(0, kMetadataBytesMax) + "\n...";
  return fmt::format("<details><summary>User metadata of step {}</summary><pre>{}</pre></details>\n", data.latest->step,
                     HtmlEscape(text));
}

std::string MetricsSection(const ReportData& data) {
  std::string html = "<section>\n<h2>Metrics</h2>\n";
  if (data.metrics.empty()) return html + Soft("No step has a metric.") + "</section>\n";
  html += MarksLegend(data.steps) + "<div class=\"grid\">\n";
  for (size_t i = 0; i < data.metrics.size(); ++i) html += MetricFigure(data.steps, data.metrics[i], i);
  html += "</div>\n";
  if (!data.metrics_left_out.empty()) {
    html += Soft(fmt::format("Not shown: {}. --metric METRIC shows one.", fmt::join(data.metrics_left_out, ", ")));
  }
  return html + "</section>\n";
}

std::string CostSection(const ReportData& data) {
  const std::string figures = BytesFigure(data.steps) + BlockedFigure(data.steps, data.blocked);
  if (figures.empty()) return "";
  return "<section>\n<h2>What a save costs</h2>\n<div class=\"grid\">\n" + figures + "</div>\n</section>\n";
}

std::string Problems(const ReportSurvey& survey) {
  if (survey.problems.empty()) return "";
  std::string html = "<p class=\"bad\">Not all could be read:</p>\n<ul>\n";
  const size_t named = std::min(survey.problems.size(), kProblemsMax);
  for (size_t i = 0; i < named; ++i) html += fmt::format("<li>{}</li>\n", HtmlEscape(ProblemText(survey.problems[i])));
  if (survey.problems.size() > named) html += fmt::format("<li>and {} more</li>\n", survey.problems.size() - named);
  return html + "</ul>\n";
}

std::string PassedOver(const ReportSurvey& survey) {
  std::string html;
  const size_t named = std::min(survey.passed_over.size(), kProblemsMax);
  for (size_t i = 0; i < named; ++i) html += Soft("Note: " + PassedOverText(survey.passed_over[i]) + ".");
  if (survey.passed_over.size() > named) {
    html += Soft(fmt::format("{} more steps are left out for that.", survey.passed_over.size() - named));
  }
  return html;
}

std::string LeftOut(uint64_t bytes, uint64_t unread, uint64_t read_bytes_max) {
  std::string html;
  if (bytes > 0) {
    html += Soft(
        fmt::format("Left out: {} of tensors, beyond --max-read {}.", HumanBytes(bytes), HumanBytes(read_bytes_max)));
  }
  if (unread > 0) html += Soft(fmt::format("Left out: {} of tensors that could not be read.", HumanBytes(unread)));
  return html;
}

std::string TensorSections(const ReportPageContents& contents) {
  if (contents.survey == nullptr) {
    return "<section>\n<h2>Tensors</h2>\n" + Soft("No tensor was read (--no-tensors).") + "</section>\n";
  }
  const ReportSurvey& survey = *contents.survey;
  std::string html = "<section>\n<h2>How tensors change</h2>\n";
  html += Soft(
      "The norm of the change from one committed step to the next, divided by the norm before it. A row with a * is of "
      "all tensors whose names begin, and end, like it.");
  html += Problems(survey) + PassedOver(survey);
  if (survey.steps.size() < 2 || survey.rows.empty()) {
    html += Soft("This chart needs two committed steps with floating-point tensors.");
  } else {
    if (survey.steps.size() < survey.steps_given) {
      html += Soft(fmt::format("{} of {} committed steps, evenly chosen; each is compared with the one to its left.",
                               survey.steps.size(), survey.steps_given));
    }
    html += ChangesFigure(survey) +
            LeftOut(survey.bytes_pairs_left_out, survey.bytes_pairs_unread, contents.read_bytes_max);
  }
  html += "</section>\n<section>\n<h2>Distributions, latest step</h2>\n";
  if (survey.histograms.empty()) return html + Soft("It has no floating-point tensor.") + "</section>\n";
  html += Soft(fmt::format(
      "Step {}. Where nearly all numbers would lie in a bin or two, bins are of equal ratio instead of equal width, "
      "mirrored at zero.{}",
      survey.steps.back(),
      survey.others == 0 ? ""
                         : fmt::format(" Not shown: {} entries that are not floating-point tensors.", survey.others)));
  html += HistogramFigures(survey) +
          LeftOut(survey.bytes_histograms_left_out, survey.bytes_histograms_unread, contents.read_bytes_max);
  return html + "</section>\n";
}

std::string_view HealthClass(HealthRow::Kind kind) {
  using Kind = HealthRow::Kind;
  if (kind == Kind::kSkippedEvaluation) return "soft";
  return kind == Kind::kFailedSave || kind == Kind::kFailedEvaluation ? "warning" : "bad";
}

std::string HealthSection(const ReportPageContents& contents) {
  const std::vector<HealthRow>& rows = contents.data.health;
  std::string html = "<section>\n<h2>Health</h2>\n";
  html += Soft(
      "On record: verdicts of evaluators, damage that a restore or a repair has found, failed saves and evaluations, "
      "and what could not be read for this page. Only checkpoint-inspect verify reads every byte.");
  if (rows.empty()) return html + "<p>No problem is known of any step.</p>\n</section>\n";
  html +=
      "<div class=\"scroll\"><table>\n<thead><tr><th "
      "class=\"number\">Step</th><th>What</th><th>Who</th><th>Why</th></tr>"
      "</thead>\n<tbody>\n";
  // The latest are what a person looks for.
  const size_t shown = std::min(rows.size(), kHealthRowsMax);
  for (auto row = rows.rbegin(); row != rows.rbegin() + static_cast<ptrdiff_t>(shown); ++row) {
    html += fmt::format(
        "<tr><td class=\"number\">{}</td><td class=\"{}\">{}</td><td>{}</td><td class=\"wide\">{}</td></tr>\n",
        row->step ? fmt::format("{}", *row->step) : "–", HealthClass(row->kind), HealthKindName(row->kind),
        HtmlEscape(row->by.empty() ? "store" : row->by), HtmlEscape(row->what));
  }
  html += "</tbody></table></div>\n";
  if (shown < rows.size()) html += Soft(fmt::format("{} earlier ones are left out.", rows.size() - shown));
  return html + "</section>\n";
}

std::string_view StateClass(StepState state) {
  switch (StateColour(state)) {
    case Colour::kGood:
      return "good";
    case Colour::kWarning:
      return "warning";
    case Colour::kBad:
      return "bad";
    default:
      return "soft";
  }
}

std::string Notes(const StepInfo& info) {
  std::vector<std::string> notes;
  const auto add = [&](std::string_view css_class, const std::string& text) {
    notes.push_back(fmt::format("<span class=\"{}\">{}</span>", css_class, HtmlEscape(text)));
  };
  if (const std::string why = info.unhealthy(); !why.empty()) add("bad", "unhealthy: " + why);
  if (info.pinned) add("good", PinText(info));
  if (const std::string kept = KeptText(info); !kept.empty()) add("soft", "kept: " + kept);
  if (!info.reason.empty()) add("soft", info.reason);
  return fmt::format("{}", fmt::join(notes, "<br>"));
}

std::string StepsSection(const ReportPageContents& contents) {
  const std::span<const StepInfo> steps = contents.data.steps;
  std::string html = "<section>\n<h2>Steps</h2>\n";
  if (steps.empty()) return html + Soft("There are none.") + "</section>\n";
  const size_t shown = std::min(steps.size(), kStepRowsMax);
  if (shown < contents.data.steps_all) {
    html += Soft(fmt::format("The latest {} of {}; checkpoint-inspect ls --all lists the rest.", shown,
                             contents.data.steps_all));
  }
  html +=
      "<div class=\"scroll\"><table>\n<thead><tr><th class=\"number\">Step</th><th>Saved (UTC)</th><th>State</th>"
      "<th>Metrics</th><th class=\"number\">Logical</th><th class=\"number\">Stored</th><th class=\"number\">Ratio</th>"
      "<th class=\"number\">Reused</th><th class=\"number\">Blocked</th><th>Notes</th></tr></thead>\n<tbody>\n";
  for (auto info = steps.rbegin(); info != steps.rbegin() + static_cast<ptrdiff_t>(shown); ++info) {
    const std::string saved =
        KnowsCreated(*info) ? absl::FormatTime("%Y-%m-%d %H:%M:%S", info->created, absl::UTCTimeZone()) : "–";
    html += fmt::format("<tr><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"{}\">{}</td>",
                        info->step, saved, StateClass(info->state), StepStateName(info->state));
    html += fmt::format("<td class=\"metrics\">{}</td>", HtmlEscape(MetricsText(info->metrics)));
    for (const std::string& number :
         {HumanBytes(info->logical_bytes), HumanBytes(info->stored_bytes),
          Ratio(info->logical_bytes, info->stored_bytes), ReusedShare(info->reused_bytes, info->stored_bytes),
          info->state == StepState::kUnsaved ? "–" : HumanDuration(info->blocked)}) {
      html += fmt::format("<td class=\"number\">{}</td>", HtmlEscape(number));
    }
    html += fmt::format("<td class=\"wide\">{}</td></tr>\n", Notes(*info));
  }
  return html + "</tbody></table></div>\n</section>\n";
}

}  // namespace

std::string ReportPage(const ReportPageContents& contents) {
  const ReportData& data = contents.data;
  std::string body = fmt::format(
      "<header>\n<h1>{}</h1>\n<p class=\"soft\">Tidemark store <code>{}</code>, id "
      "<code>{}</code>, {} UTC</p>\n",
      HtmlEscape(contents.title), HtmlEscape(contents.directory), HtmlEscape(contents.store_id),
      absl::FormatTime("%Y-%m-%d %H:%M", contents.now, absl::UTCTimeZone()));
  body += fmt::format("<p class=\"verdict {}\"><strong>{}</strong> <span>{}</span></p>\n", GradeClass(data.grade),
                      GradeName(data.grade), HtmlEscape(data.verdict));
  body += Facts(contents) + BestTable(data) + Metadata(data) + "</header>\n";
  body += MetricsSection(data) + CostSection(data) + TensorSections(contents) + HealthSection(contents) +
          StepsSection(contents);
  body += fmt::format("<footer>Made by checkpoint-inspect {}. This page loads nothing and runs nothing.</footer>\n",
                      TIDEMARK_VERSION);
  return HtmlPage(contents.title, body);
}

}  // namespace tidemark::inspect
