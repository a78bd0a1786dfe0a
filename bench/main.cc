// Measures Tidemark against the hardware and against what people use today, row by row, and says which goals are met.
//
// Exit codes: 0 all rows were measured or skipped for a reason; 1 a row failed; 2 a wrong command line; 3 with
// --assert-goals, a row that was measured misses its goal.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <exception>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "bench/context.h"
#include "bench/growth.h"
#include "bench/measure.h"
#include "bench/progress.h"
#include "bench/ranks_probe.h"
#include "bench/report.h"
#include "bench/rows.h"
#include "bench/rows_journal.h"
#include "bench/rss_probe.h"
#include "bench/work_folder.h"
#include "storage/io/machine.h"
#include "torch/version.h"

namespace tidemark::bench {
namespace {

enum ExitCode { kSuccess = 0, kTrouble = 1, kUsage = 2, kGoalMissed = 3 };

struct Flags {
  std::vector<std::string> only;
  std::string json;
  bool growth = false;
  std::string directory = ".";
  bool assert_goals = false;
  Settings settings;
  std::vector<std::string> rss_probe;    // store, bytes, tensors; empty: not asked for
  std::vector<std::string> ranks_probe;  // store, world size, bytes; empty: not asked for
  std::string leave_open;                // store; empty: not asked for
};

std::vector<std::string> RowNames() {
  std::vector<std::string> names;
  for (const Row& row : AllRows()) names.push_back(row.spec.name);
  return names;
}

void AddFlags(CLI::App& app, Flags& flags) {
  app.add_option("--only", flags.only, "Measure this row; may be given several times")
      ->check(CLI::IsMember(RowNames()))
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--json", flags.json, "Write the results to this file as well, as JSON");
  app.add_option("--dir", flags.directory, "Where files are written, in a folder that is removed at the end")
      ->capture_default_str();
  app.add_flag("--growth", flags.growth,
               "Measure instead how times and memory grow with bytes, entries, steps and ranks")
      ->excludes("--only");
  app.add_flag("--assert-goals", flags.assert_goals, "Exit with 3 if a row that is measured misses its goal");
  app.add_option("--size", flags.settings.size_mib,
                 "MiB that stand for a GiB: sizes and counts of all rows shrink or grow with it")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--pairs", flags.settings.pairs, "Pairs of measurements in a row; some take a multiple")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--seed", flags.settings.seed, "Of the training and of all data")->capture_default_str();
  app.add_option(kRssProbeOption, flags.rss_probe)->expected(3)->group("");
  app.add_option(kRanksProbeOption, flags.ranks_probe)->expected(3)->group("");
  app.add_option(kLeaveOpenOption, flags.leave_open)->group("");
}

std::string Summary(const Outcome& outcome) {
  if (!outcome.error.ok()) return "failed: " + outcome.error.ToString();
  if (!outcome.measurement) return "skipped: " + outcome.skipped;
  return fmt::format("{:.3f}, {} ({:.0f} s)", outcome.measurement->ratio,
                     IsMet(outcome.row, outcome.measurement->ratio) ? "met" : "not met", outcome.seconds);
}

Outcome MeasureRow(const Row& row, Context& context) {
  Outcome outcome{.row = row.spec};
  const Stopwatch watch;
  try {
    if (row.obstacle != nullptr) outcome.skipped = row.obstacle(context);
    if (outcome.skipped.empty()) {
      absl::StatusOr<Measurement> measured = row.measure(context);
      if (measured.ok()) {
        outcome.measurement = *std::move(measured);
      } else {
        outcome.error = measured.status();
      }
    }
  } catch (const std::exception& error) {  // LibTorch's, and those of std::filesystem
    outcome.error = absl::InternalError(error.what());
  }
  outcome.seconds = watch.seconds();
  return outcome;
}

std::vector<Outcome> MeasureRows(const Flags& flags, const WorkFolder& folder) {
  std::vector<Row> rows;
  for (const Row& row : AllRows()) {
    const bool wanted = std::find(flags.only.begin(), flags.only.end(), row.spec.name) != flags.only.end();
    if (flags.only.empty() || wanted) rows.push_back(row);
  }
  Progress progress;
  Context context(flags.settings, folder.path(), progress);
  std::vector<Outcome> outcomes;
  for (const Row& row : rows) {
    progress.BeginRow(outcomes.size() + 1, rows.size(), row.spec.name);
    outcomes.push_back(MeasureRow(row, context));
    progress.EndRow(Summary(outcomes.back()));
  }
  return outcomes;
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return file ? absl::OkStatus() : absl::UnknownError(fmt::format("write {}: it cannot be written", path));
}

int RunGrowth(const Flags& flags, const WorkFolder& folder, const Conditions& conditions) {
  Progress progress;
  Context context(flags.settings, folder.path(), progress);
  absl::Status status;
  try {
    const absl::StatusOr<std::vector<GrowthSeries>> growth = MeasureGrowth(context);
    status = growth.status();
    if (growth.ok()) fmt::print("{}\n{}", FormatConditions(conditions), FormatGrowthTables(*growth));
    if (growth.ok() && !flags.json.empty()) status = WriteFile(flags.json, FormatGrowthJson(*growth, conditions));
  } catch (const std::exception& error) {  // LibTorch's, and those of std::filesystem
    status = absl::InternalError(error.what());
  }
  if (status.ok()) return kSuccess;
  fmt::print(stderr, "tidemark-bench: {}\n", status.ToString());
  return kTrouble;
}

int Run(const Flags& flags) {
  absl::StatusOr<WorkFolder> folder = WorkFolder::Create(flags.directory);
  if (!folder.ok()) {
    fmt::print(stderr, "tidemark-bench: {}\n", folder.status().ToString());
    return kTrouble;
  }
  WorkFolder::RemoveAllOnSignal();
  const Conditions conditions{.machine = storage::DescribeMachine(folder->path()),
                              .build = fmt::format("Tidemark {}, LibTorch {}", TIDEMARK_VERSION, TORCH_VERSION),
                              .seed = flags.settings.seed,
                              .size_mib = flags.settings.size_mib,
                              .caches_dropped_by_root = MayDropPageCache()};
  const Stopwatch watch;
  if (flags.growth) return RunGrowth(flags, *folder, conditions);
  const std::vector<Outcome> outcomes = MeasureRows(flags, *folder);
  fmt::print("{}duration     {:.0f} s\n\n{}", FormatConditions(conditions), watch.seconds(), FormatTable(outcomes));

  bool failed = std::any_of(outcomes.begin(), outcomes.end(), [](const Outcome& row) { return !row.error.ok(); });
  if (!flags.json.empty()) {
    if (absl::Status written = WriteFile(flags.json, FormatJson(outcomes, conditions)); !written.ok()) {
      fmt::print(stderr, "tidemark-bench: {}\n", written.ToString());
      failed = true;
    }
  }
  if (failed) return kTrouble;
  const bool missed = std::any_of(outcomes.begin(), outcomes.end(), [](const Outcome& outcome) {
    return outcome.measurement && !IsMet(outcome.row, outcome.measurement->ratio);
  });
  return flags.assert_goals && missed ? kGoalMissed : kSuccess;
}

int RunProbe(const Flags& flags) {
  absl::StatusOr<uint64_t> extra =
      MeasureSaveMemory(flags.rss_probe[0], std::stoull(flags.rss_probe[1]), std::stoull(flags.rss_probe[2]));
  if (!extra.ok()) {
    fmt::print(stderr, "{}\n", extra.status().ToString());
    return kTrouble;
  }
  fmt::print("{}\n", *extra);
  return kSuccess;
}

int RunRanks(const Flags& flags) {
  const absl::StatusOr<RanksCost> cost =
      MeasureRanks(flags.ranks_probe[0], std::stoi(flags.ranks_probe[1]), std::stoull(flags.ranks_probe[2]));
  if (!cost.ok()) {
    fmt::print(stderr, "{}\n", cost.status().ToString());
    return kTrouble;
  }
  fmt::print("{} {}\n", cost->blocked, cost->committed);
  return kSuccess;
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Measures Tidemark against the hardware and against what people use today.");
  AddFlags(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kSuccess : kUsage;
  }
  if (!flags.leave_open.empty()) {
    fmt::print(stderr, "{}\n", LeaveStoreOpen(flags.leave_open).ToString());
    return kTrouble;
  }
  if (!flags.ranks_probe.empty()) return RunRanks(flags);
  return flags.rss_probe.empty() ? Run(flags) : RunProbe(flags);
}

}  // namespace
}  // namespace tidemark::bench

int main(int argc, char** argv) { return tidemark::bench::Main(argc, argv); }
