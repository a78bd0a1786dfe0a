#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "fmt/format.h"
#include "snapshot/exchange/output_file.h"
#include "tools/checkpoint_inspect/cli/interrupt.h"
#include "tools/checkpoint_inspect/cli/output_path.h"
#include "tools/checkpoint_inspect/commands/commands.h"
#include "tools/checkpoint_inspect/commands/steps.h"
#include "tools/checkpoint_inspect/output/byte_count.h"
#include "tools/checkpoint_inspect/output/json.h"
#include "tools/checkpoint_inspect/output/text.h"
#include "tools/checkpoint_inspect/report/report_data.h"
#include "tools/checkpoint_inspect/report/report_page.h"
#include "tools/checkpoint_inspect/report/report_survey.h"

namespace tidemark::inspect {
namespace {

std::string ReportAsJson(const Invocation& invocation, const ReportOptions& options, const ReportData& data,
                         const ReportSurvey* survey, size_t page_bytes) {
  Json document = NewDocument(invocation.reader, invocation.directory);
  Json& report = document["report"];
  report = {{"path", options.path},     {"bytes", page_bytes},     {"steps", data.steps.size()},
            {"metrics", Json::array()}, {"verdict", data.verdict}, {"tensors", nullptr}};
  for (const ReportMetric& metric : data.metrics) report["metrics"].push_back(metric.name);
  if (survey != nullptr) {
    report["tensors"] = {{"steps", survey->steps},
                         {"bytes_read", survey->bytes_read},
                         {"bytes_left_out", survey->bytes_pairs_left_out + survey->bytes_histograms_left_out +
                                                survey->bytes_pairs_unread + survey->bytes_histograms_unread},
                         {"problems", Json::array()},
                         {"passed_over", Json::array()}};
    for (const ReadProblem& problem : survey->problems) {
      report["tensors"]["problems"].push_back(ProblemText(problem));
    }
    for (const PassedOverStep& step : survey->passed_over) {
      report["tensors"]["passed_over"].push_back(PassedOverText(step));
    }
  }
  return Dump(document);
}

ExitCode SurveyExitCode(const Invocation& invocation, const ReportSurvey* survey) {
  if (survey != nullptr && survey->failed()) return ExitCode::kFailure;
  if (survey != nullptr && survey->damaged()) return ExitCode::kDamagedButUsable;
  return StoreExitCode(invocation.reader);
}

// A page is read elsewhere, where "." means nothing.
std::string AbsoluteDirectory(const std::string& directory) {
  std::error_code error;
  std::string path = std::filesystem::absolute(directory, error).lexically_normal().string();
  if (error) return directory;
  if (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

}  // namespace

ExitCode WriteReport(const Invocation& invocation, const ReportOptions& options) {
  Console& console = invocation.console;
  const StoreReader& reader = invocation.reader;
  const auto fail = [&](const absl::Status& status) {
    console.Fail(status);
    return ExitCode::kFailure;
  };
  const auto interrupted = [&] {
    console.Fail("interrupted; nothing was written");
    return ExitCode::kInterrupted;
  };
  std::vector<MetricChoice> choices;
  for (const std::string& text : options.metrics) choices.push_back(ParseMetricChoice(text));
  absl::StatusOr<ReportData> data = GatherReport(reader, choices, options.last);
  if (!data.ok()) return fail(data.status());

  CatchInterrupts();
  // Before minutes of reading, and not after them.
  const absl::StatusOr<std::unique_ptr<OutputFile>> file = OutputFile::Create(options.path, options.force);
  if (!file.ok()) return fail(file.status());

  absl::StatusOr<ReportSurvey> survey;
  if (options.tensors) {
    std::vector<int64_t> committed;
    for (const StepInfo& info : data->steps) {
      if (info.state == StepState::kCommitted) committed.push_back(info.step);
    }
    survey = SurveySteps(reader, committed, {.read_bytes_max = options.read_bytes_max}, console);
    // The only error that it has.
    if (!survey.ok()) return interrupted();
    if (!survey->problems.empty() && !invocation.untrusted) {
      // A store that cannot be opened any more tells nothing better of them.
      const absl::StatusOr<std::unique_ptr<StoreReader>> now = OpenStore(invocation.directory, /*untrusted=*/false);
      if (now.ok()) PassOverStepsTakenAway(reader, **now, &*survey);
    }
    for (const ReadProblem& problem : survey->problems) console.Warn(ProblemText(problem));
    for (const PassedOverStep& step : survey->passed_over) console.Note(PassedOverText(step));
  }
  const ReportSurvey* surveyed = options.tensors ? &*survey : nullptr;
  JudgeHealth(reader, surveyed, &*data);
  const std::string directory = AbsoluteDirectory(invocation.directory);
  const std::string page = ReportPage({.title = options.title.empty() ? "Checkpoints in " + directory : options.title,
                                       .directory = directory,
                                       .store_id = reader.store_id(),
                                       .now = invocation.now,
                                       .data = *data,
                                       .survey = surveyed,
                                       .read_bytes_max = options.read_bytes_max});
  if (absl::Status written = (*file)->Write(page); !written.ok()) return fail(written);
  if (IsInterrupted()) return interrupted();
  if (absl::Status committed = (*file)->Commit(); !committed.ok()) return fail(committed);
  if (invocation.json) {
    console.PrintData(ReportAsJson(invocation, options, *data, surveyed, page.size()));
  } else {
    console.Note(fmt::format("wrote {}: {}", options.path, HumanBytes(page.size())));
  }
  return SurveyExitCode(invocation, surveyed);
}

void AddReport(CommandLine& line) {
  const auto options = std::make_shared<ReportOptions>();
  const auto without_tensors = std::make_shared<bool>(false);
  CLI::App* report = line.Add({.group = CommandGroup::kLook,
                               .name = "report",
                               .description = "Write one web page: metrics, sizes, times, how tensors change, health",
                               .writes = true},
                              [options, without_tensors](const Invocation& invocation) {
                                options->tensors = !*without_tensors;
                                return WriteReport(invocation, *options);
                              });
  report->add_option("-o,--output", options->path, "The file to write")
      ->type_name("FILE")
      ->required()
      ->check(CheckOutputPath);
  report->add_flag("--force", options->force, "Replace an existing file");
  report->add_option("--title", options->title, "The title of the page; by default the store's directory")
      ->type_name("TEXT");
  AddTexts(report, "--metric", options->metrics,
           "Show this metric; may be given several times. METRIC:highest or METRIC:lowest says which value is best")
      ->type_name("METRIC");
  report->add_option("--last", options->last, "Show only the N steps with the highest numbers")
      ->type_name("N")
      ->check(CheckPositive);
  CLI::Option* max_read = AddByteCount(report, "--max-read", options->read_bytes_max,
                                       "Read at most this much of the tensors; by default 2GiB");
  report->add_flag("--no-tensors", *without_tensors, "Read no tensor, so draw no map of changes and no histograms")
      ->excludes(max_read);
  report->footer(R"(
The page needs no network and runs no script. It says what is missing because of --max-read.

Example:
  checkpoint-inspect --store run/ckpt report -o report.html
  checkpoint-inspect --store run/ckpt report -o report.html --force --metric validation/accuracy:highest --last 200)");
}

}  // namespace tidemark::inspect
