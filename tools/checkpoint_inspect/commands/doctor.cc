#include <algorithm>
#include <memory>
#include <optional>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "tools/checkpoint_inspect/checks/disk_speed.h"
#include "tools/checkpoint_inspect/checks/place_facts.h"
#include "tools/checkpoint_inspect/checks/place_findings.h"
#include "tools/checkpoint_inspect/cli/interrupt.h"
#include "tools/checkpoint_inspect/cli/progress_line.h"
#include "tools/checkpoint_inspect/commands/commands.h"
#include "tools/checkpoint_inspect/output/byte_count.h"
#include "tools/checkpoint_inspect/output/json.h"
#include "tools/checkpoint_inspect/output/table.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

// Half a second gives the median of ten syncs on the slowest disk.
constexpr absl::Duration kSyncDuration = absl::Milliseconds(500);

constexpr absl::Duration kBetweenLines = absl::Milliseconds(100);

struct DoctorOptions {
  std::string directory;  // empty: the store's
  double seconds = 2;
  uint64_t bytes = uint64_t{1} << 30;
};

struct Measured {
  absl::StatusOr<DiskSpeed> speed = absl::UnknownError("");
  absl::StatusOr<SyncSpeed> syncs = absl::UnknownError("");
};

Measured Measure(Console& console, const std::string& directory, SpeedOptions options) {
  storage::FileSystem& files = storage::PosixFileSystem();
  const absl::StatusOr<std::unique_ptr<TrialFile>> file = TrialFile::Create(files, directory);
  if (!file.ok()) return {.speed = file.status()};
  std::optional<ProgressLine> line;
  std::string_view pass;
  options.cancelled = IsInterrupted;
  absl::Time shown = absl::InfinitePast();
  options.progress = [&](std::string_view what, uint64_t bytes_done, uint64_t bytes_max) {
    if (what != pass) line.emplace(console, bytes_max);
    pass = what;
    // A terminal is slower than a disk.
    const absl::Time now = absl::Now();
    if (now - shown < kBetweenLines) return;
    shown = now;
    line->Update(what, bytes_done);
  };
  Measured measured{.speed = MeasureSpeed(files, (*file)->file(), options)};
  line.reset();
  if (measured.speed.ok()) measured.syncs = MeasureSyncs((*file)->file(), kSyncDuration, IsInterrupted);
  return measured;
}

Colour ColourOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return Colour::kGood;
    case Verdict::kSlow:
    case Verdict::kRisk:
      return Colour::kWarning;
    case Verdict::kMissing:
      break;
  }
  return Colour::kBad;
}

std::string Conclusion(Verdict worst) {
  switch (worst) {
    case Verdict::kOk:
      return "a store works here";
    case Verdict::kSlow:
      return "a store works here, but could be faster";
    case Verdict::kRisk:
      return "a store works here, at a risk";
    case Verdict::kMissing:
      break;
  }
  return "no store works here";
}

std::string FindingsAsTable(const Console& console, const std::vector<Finding>& findings) {
  Table table({{"CHECK"}, {"VERDICT"}, {"FOUND", Table::Align::kLeft, Table::Narrow::kWrap}});
  for (const Finding& finding : findings) {
    table.AddRow({{finding.check},
                  {std::string(VerdictName(finding.verdict)), ColourOf(finding.verdict)},
                  {Escape(finding.found)}});
    if (!finding.advice.empty()) table.AddNote(Escape(finding.advice));
  }
  return table.Format(console) + Conclusion(Worst(findings)) + "\n";
}

std::string FindingsAsJson(const std::string& asked, const PlaceFacts& place, const std::vector<Finding>& findings,
                           const std::optional<Measured>& measured) {
  Json document;
  document["schema_version"] = kSchemaVersion;
  document["directory"] = asked;
  document["looked_at"] = place.found.ok() ? Json(place.directory) : Json(nullptr);
  document["verdict"] = VerdictName(Worst(findings));
  Json& checks = document["checks"] = Json::array();
  for (const Finding& finding : findings) {
    checks.push_back({{"check", finding.check},
                      {"verdict", VerdictName(finding.verdict)},
                      {"found", finding.found},
                      {"advice", finding.advice}});
  }
  Json& speed = document["speed"] = nullptr;
  if (measured && measured->speed.ok() && measured->syncs.ok()) {
    speed = {{"bytes", measured->speed->bytes},
             {"write_bytes_per_second", measured->speed->write_bytes_per_second},
             {"read_bytes_per_second", measured->speed->read_bytes_per_second},
             {"direct", measured->speed->direct},
             {"queue", measured->speed->queue},
             {"sync_seconds_median", absl::ToDoubleSeconds(measured->syncs->median)},
             {"sync_seconds_max", absl::ToDoubleSeconds(measured->syncs->longest)}};
  }
  return Dump(document);
}

ExitCode Diagnose(const Session& session, const DoctorOptions& options) {
  CatchInterrupts();
  const std::string& asked = options.directory.empty() ? session.directory : options.directory;
  const PlaceFacts place = LookAtPlace(storage::PosixFileSystem(), asked);
  std::vector<Finding> findings = JudgePlace(place, asked);
  std::optional<Measured> measured;
  if (Worst(findings) != Verdict::kMissing) {
    // Half of what is free: a trainer that is running must not fail for this.
    measured = Measure(
        session.console, place.directory,
        {.bytes_max = std::min(options.bytes, place.free_bytes / 2), .duration_max = absl::Seconds(options.seconds)});
    if (IsInterrupted()) {
      session.console.Fail("interrupted; the trial file was removed");
      return ExitCode::kInterrupted;
    }
    const std::vector<Finding> speed = JudgeSpeed(measured->speed, measured->syncs);
    findings.insert(findings.end(), speed.begin(), speed.end());
  }
  const std::vector<Finding> machine = JudgeMachine(LookAtMachine(storage::PosixFileSystem()));
  findings.insert(findings.end(), machine.begin(), machine.end());
  session.console.PrintData(session.json ? FindingsAsJson(asked, place, findings, measured)
                                         : FindingsAsTable(session.console, findings));
  return Worst(findings) == Verdict::kMissing ? ExitCode::kFailure : ExitCode::kOk;
}

}  // namespace

void AddDoctor(CommandLine& line) {
  const auto options = std::make_shared<DoctorOptions>();
  CLI::App* doctor = line.Add({.group = CommandGroup::kPlace,
                               .name = "doctor",
                               .description = "Check whether a directory can hold a store, and how fast it is",
                               .writes = true},
                              [options](const Session& session) { return Diagnose(session, *options); });
  doctor->add_option("DIR", options->directory, "The directory, which need not exist yet; by default the store")
      ->type_name("");
  doctor->add_option("--seconds", options->seconds, "Write for N seconds, then read for N seconds")
      ->check(CLI::Range(0.0, 3600.0).description(""))
      ->type_name("N")
      ->capture_default_str();
  AddByteCount(doctor, "--bytes", options->bytes, "Write at most this much, and at most half of the free space")
      ->default_str("1GiB");
  doctor->footer(R"(
Writes and reads a file in the directory, as a save and a restore do, and removes it. Each check is ok, slow, risk (a
store works, but may be damaged or lost) or missing (a store cannot work). Below it stands what to change.

Example:
  checkpoint-inspect doctor /data/run
  checkpoint-inspect doctor /data/run --seconds 10 --bytes 20GiB
  checkpoint-inspect --json doctor /data/run

Exit status: 0 a store works here, perhaps slowly or at a risk; 1 something is missing.)");
}

}  // namespace tidemark::inspect
