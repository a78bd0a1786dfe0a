#include <algorithm>
#include <cstring>
#include <memory>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "storage/io/file_system.h"
#include "storage/shard/ids.h"
#include "tools/checkpoint_inspect/checks/note_check.h"
#include "tools/checkpoint_inspect/checks/step_check.h"
#include "tools/checkpoint_inspect/checks/unrecorded_steps.h"
#include "tools/checkpoint_inspect/cli/interrupt.h"
#include "tools/checkpoint_inspect/cli/progress_line.h"
#include "tools/checkpoint_inspect/commands/commands.h"
#include "tools/checkpoint_inspect/commands/steps.h"
#include "tools/checkpoint_inspect/output/json.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

// Of those with the same result, in the last line, where each has a line of its own above; and of those that the
// manifest does not know. JSON has all.
constexpr size_t kStepsNamedMax = 10;

// Pins, reports and deletion marks; JSON has all.
constexpr size_t kNotesNamedMax = 10;

// What was found. Of one step that was asked for: its check, its pin and its reports.
struct Findings {
  std::vector<StepCheck> checks;
  std::vector<int64_t> unrecorded;  // steps that the manifest does not know, ascending
  absl::Status looked_for;          // not ok: why nobody can say whether there are such steps
  absl::Status manifest;            // kDataLoss: its tables are damaged
  absl::Status identity;            // kDataLoss: store.json is
  std::vector<NoteProblem> notes;
};

std::string FormatDamage(const Damage& damage) {
  std::string text = "  ";
  // The message of some errors begins with the path already.
  if (!damage.path.empty() && damage.what.find(damage.path) == std::string::npos) {
    text += Escape(damage.path) + ": ";
  }
  return text + Escape(damage.what) + "\n" + AffectedEntriesLine(damage.entries);
}

std::string FormatCheck(const Console& console, const StepCheck& check) {
  const auto line = [&](Colour colour, std::string_view rest) {
    return fmt::format("step {}: {}{}\n", check.info.step, console.Paint(CheckResultName(check.result), colour), rest);
  };
  const VerifyReport& report = check.report;
  switch (check.result) {
    case CheckResult::kSound:
      return line(Colour::kGood, fmt::format(", {} in {} chunks", HumanBytes(report.bytes_read), report.chunks));
    case CheckResult::kSampled:
      return fmt::format("step {}: {}, {} of {} chunks, {}\n", check.info.step,
                         console.Paint("no damage found in the sample", Colour::kGood), report.chunks,
                         report.chunks_total, HumanBytes(report.bytes_read));
    case CheckResult::kMarked:
      return line(Colour::kBad,
                  fmt::format(" as damaged ({}), though {} as committed now", Escape(check.info.reason),
                              report.chunks < report.chunks_total ? "the sample reads" : "every byte reads"));
    case CheckResult::kLost:
      return line(Colour::kBad, ": " + Escape(check.info.reason));
    case CheckResult::kRemoved:
      return line(Colour::kWarning, " while it was being read");
    case CheckResult::kUnreadable:
      return line(Colour::kBad, ": " + Escape(std::string(check.error.message())));
    case CheckResult::kDamaged:
      break;
  }
  std::string text = line(Colour::kBad, "");
  for (const Damage& damage : report.damage) text += FormatDamage(damage);
  return text;
}

Json CheckToJson(const StepCheck& check) {
  Json damage = Json::array();
  for (const Damage& place : check.report.damage) {
    damage.push_back({{"path", place.path}, {"what", place.what}, {"entries", place.entries}});
  }
  return {{"step", check.info.step},
          {"attempt", check.info.attempt},
          {"state", StepStateName(check.info.state)},
          {"result", CheckResultName(check.result)},
          {"bytes_read", check.report.bytes_read},
          {"chunks", check.report.chunks},
          {"chunks_total", check.report.chunks_total},
          {"damage", std::move(damage)},
          {"reason", check.error.ok() ? check.info.reason : std::string(check.error.message())}};
}

// Whether the steps are those that the manifest tells of, and not those of the shards.
bool IsOfManifest(const Invocation& invocation) {
  return !invocation.untrusted && invocation.reader.manifest_problem().ok();
}

// The step that a restore would take, as far as is known now: the highest committed one that was not found unfit. Only
// one of which every byte was read is verified.
struct RestoreCandidate {
  int64_t step = 0;
  bool verified = false;
};

// `healthy`: of those that no evaluator distrusts.
std::optional<RestoreCandidate> FindRecorded(const StoreReader& reader, const std::vector<StepCheck>& checks,
                                             bool healthy = false) {
  for (auto info = reader.Steps().rbegin(); info != reader.Steps().rend(); ++info) {
    if (info->state != StepState::kCommitted || (healthy && !info->unhealthy().empty())) continue;
    const auto check = std::find_if(checks.begin(), checks.end(),
                                    [&](const StepCheck& done) { return done.info.attempt == info->attempt; });
    if (check == checks.end()) return RestoreCandidate{info->step, false};
    if (check->result == CheckResult::kSound) return RestoreCandidate{info->step, true};
    if (check->result == CheckResult::kSampled) return RestoreCandidate{info->step, false};
  }
  return std::nullopt;
}

// A process that opens the store to restore from it also finds steps that are not in the manifest. No evaluator has
// called those unhealthy.
std::optional<RestoreCandidate> FindCandidate(const StoreReader& reader, const Findings& findings,
                                              bool healthy = false) {
  const std::optional<RestoreCandidate> recorded = FindRecorded(reader, findings.checks, healthy);
  if (findings.unrecorded.empty()) return recorded;
  const int64_t highest = findings.unrecorded.back();
  return recorded && recorded->step > highest ? recorded : RestoreCandidate{highest, false};
}

std::string FormatCandidate(const StoreReader& reader, const Findings& findings,
                            const std::optional<RestoreCandidate>& candidate) {
  if (!candidate) return "no step can be restored\n";
  std::optional<int64_t> healthy;
  if (const auto found = FindCandidate(reader, findings, /*healthy=*/true)) healthy = found->step;
  std::string unverified = candidate->verified ? "" : ", which was not verified";
  const auto damaged = DamagedFilesBehind(reader, findings.checks, candidate->step);
  if (!candidate->verified && !damaged.empty()) {
    unverified += " and has chunks in damaged files: " + Escape(*damaged.begin());
    if (damaged.size() > 1) unverified += fmt::format(" and {} more", damaged.size() - 1);
  }
  return fmt::format("a restore takes step {}{}{}\n", candidate->step, unverified,
                     UnhealthyText(reader, candidate->step, healthy));
}

// "3, 7 and 2 more"
std::string FirstNumbers(const std::vector<int64_t>& steps) {
  const size_t named = std::min(steps.size(), kStepsNamedMax);
  std::string text = fmt::format("{}", fmt::join(steps.begin(), steps.begin() + static_cast<ptrdiff_t>(named), ", "));
  return steps.size() == named ? text : text + fmt::format(" and {} more", steps.size() - named);
}

// "; damaged: 3, 7"; empty where none is.
std::string WithResult(const std::vector<StepCheck>& checks, CheckResult result) {
  std::vector<int64_t> steps;
  for (const StepCheck& check : checks) {
    if (check.result == result) steps.push_back(check.info.step);
  }
  return steps.empty() ? "" : fmt::format("; {}: {}", CheckResultName(result), FirstNumbers(steps));
}

// "24 of 25 steps sound; damaged: 100; "
std::string FormatCounts(const std::vector<StepCheck>& checks, bool sampled) {
  const CheckResult good = sampled ? CheckResult::kSampled : CheckResult::kSound;
  const auto count =
      std::count_if(checks.begin(), checks.end(), [good](const StepCheck& check) { return check.result == good; });
  std::string text = fmt::format("{} of {} step{} {}", count, checks.size(), checks.size() == 1 ? "" : "s",
                                 sampled ? "without damage in the sample" : "sound");
  for (const CheckResult result : {CheckResult::kDamaged, CheckResult::kMarked, CheckResult::kLost,
                                   CheckResult::kRemoved, CheckResult::kUnreadable}) {
    text += WithResult(checks, result);
  }
  return text + "; ";
}

// `whole`: of all steps, those that were not committed included.
std::vector<NoteProblem> CheckNotes(const Invocation& invocation, const std::vector<StepCheck>& checks, bool whole) {
  const std::string& directory = invocation.link_free;
  std::vector<NoteProblem> problems;
  const auto add = [&problems](std::vector<NoteProblem> found) {
    problems.insert(problems.end(), std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()));
  };
  std::vector<StepInfo> pinned;
  for (const StepCheck& check : checks) {
    if (check.result == CheckResult::kRemoved) continue;
    add(CheckStepNotes(directory, check.info));
    if (check.info.pinned) pinned.push_back(check.info);
  }
  if (IsOfManifest(invocation)) add(FindMissingPins(invocation.reader, directory, pinned));
  if (!whole) return problems;
  add(CheckInboxReports(directory));
  add(CheckDeletionMarks(directory));
  return problems;
}

std::string FormatNotes(const Console& console, const std::vector<NoteProblem>& problems) {
  if (problems.empty()) return "";
  std::string text;
  for (size_t i = 0; i < std::min(problems.size(), kNotesNamedMax); ++i) {
    const NoteProblem& problem = problems[i];
    const bool named = problem.what.find(problem.path) != std::string::npos;
    text += fmt::format("step {}: its {} {}: {}{}\n", problem.step, problem.kind,
                        console.Paint("cannot be read", Colour::kBad), named ? "" : Escape(problem.path) + ": ",
                        Escape(problem.what));
  }
  if (problems.size() > kNotesNamedMax) text += fmt::format("and {} more\n", problems.size() - kNotesNamedMax);
  return text +
         "  no byte of a step is affected; the manifest has their contents, except those of reports in the inbox\n";
}

std::string FormatUnrecorded(const Console& console, const std::vector<int64_t>& steps) {
  if (steps.empty()) return "";
  return fmt::format(
      "manifest: {}: it does not know the latest save of step{} {}, whose files are complete\n"
      "  its end is lost, or a crash came before the record; the next opening records the sound ones, and so does "
      "repair --apply\n",
      console.Paint("incomplete", Colour::kBad), steps.size() == 1 ? "" : "s", FirstNumbers(steps));
}

std::string FormatIdentity(const Console& console, const absl::Status& identity) {
  if (identity.ok()) return "";
  return fmt::format(
      "store.json: {}: {}\n  the shards have the store's id, too; repair --apply writes the file again\n",
      console.Paint("damaged", Colour::kBad), Escape(std::string(identity.message())));
}

std::string FormatManifest(const Console& console, const absl::Status& manifest) {
  if (manifest.ok()) return "";
  return fmt::format(
      "manifest: {}: {}\n  the steps' records could still be read; repair --apply rebuilds the manifest\n",
      console.Paint("damaged", Colour::kBad), Escape(std::string(manifest.message())));
}

Json NotesToJson(const std::vector<NoteProblem>& problems) {
  Json list = Json::array();
  for (const NoteProblem& problem : problems) {
    list.push_back({{"step", problem.step}, {"path", problem.path}, {"what", problem.what}});
  }
  return list;
}

ExitCode JudgeSteps(const StoreReader& reader, const std::vector<StepCheck>& checks, bool one_step) {
  const auto count = [&](auto... results) {
    return std::count_if(checks.begin(), checks.end(),
                         [&](const StepCheck& check) { return ((check.result == results) || ...); });
  };
  for (const StepCheck& check : checks) {
    if (check.result == CheckResult::kUnreadable) return StepExitCode(check.error);
  }
  if (one_step && count(CheckResult::kRemoved) > 0) return ExitCode::kFailure;
  if (count(CheckResult::kDamaged, CheckResult::kMarked, CheckResult::kLost) == 0) return StoreExitCode(reader);
  return one_step || count(CheckResult::kSound, CheckResult::kSampled) == 0 ? ExitCode::kIntegrity
                                                                            : ExitCode::kDamagedButUsable;
}

// But for the steps.
bool IsFlawless(const Findings& findings) {
  return findings.unrecorded.empty() && findings.manifest.ok() && findings.identity.ok() && findings.notes.empty();
}

ExitCode Judge(const StoreReader& reader, const Findings& findings, bool one_step) {
  const ExitCode steps = JudgeSteps(reader, findings.checks, one_step);
  // A step that the next opening takes in remains, too.
  if (!findings.unrecorded.empty() && steps == ExitCode::kIntegrity) return ExitCode::kDamagedButUsable;
  if (steps != ExitCode::kOk) return steps;
  if (!findings.looked_for.ok()) return ExitCode::kFailure;
  return IsFlawless(findings) ? ExitCode::kOk : ExitCode::kDamagedButUsable;
}

// The steps that the command is about, of all none perhaps; an error, told already, is an exit code.
ExitCode ChooseSteps(const Invocation& invocation, const std::optional<StepSelector>& selector,
                     std::vector<StepInfo>* chosen) {
  const StoreReader& reader = invocation.reader;
  if (selector) {
    const absl::StatusOr<StepInfo> info = Resolve(invocation.reader, invocation.directory, *selector, HasFiles);
    if (!info.ok()) {
      invocation.console.Fail(info.status());
      return SelectorExitCode(reader, info.status());
    }
    if (info->state == StepState::kDeleted) {
      invocation.console.Fail(fmt::format("step {} was deleted: {}", info->step, info->reason));
      return ExitCode::kFailure;
    }
    if (!HasFiles(*info)) {
      invocation.console.Fail(fmt::format("step {} was never committed: {}", info->step, info->reason));
      return ExitCode::kFailure;
    }
    chosen->push_back(*info);
    return ExitCode::kOk;
  }
  std::copy_if(reader.Steps().begin(), reader.Steps().end(), std::back_inserter(*chosen), HasFiles);
  return ExitCode::kOk;
}

// An error, told already, is an exit code.
ExitCode CheckSteps(const Invocation& invocation, const std::vector<StepInfo>& chosen, const ReadData& read,
                    std::vector<StepCheck>* checks) {
  Console& console = invocation.console;
  uint64_t bytes_total = 0;
  const auto bytes_of = [&](const StepInfo& info) {
    return static_cast<uint64_t>(static_cast<double>(info.stored_bytes) * read.share);
  };
  for (const StepInfo& info : chosen) bytes_total += info.state == StepState::kLost ? 0 : bytes_of(info);
  ProgressLine line(console, bytes_total);
  for (const StepInfo& info : chosen) {
    const auto update = [&](const VerifyProgress& progress) {
      line.Update(fmt::format("step {}", info.step), progress.bytes_done);
    };
    checks->push_back(
        CheckStep(invocation.reader, info,
                  {.share = read.share, .seed = read.seed, .progress = update, .cancelled = IsInterrupted}));
    if (IsInterrupted()) {
      console.Fail(fmt::format("interrupted; {} of {} steps were read", checks->size() - 1, chosen.size()));
      return ExitCode::kInterrupted;
    }
    line.FinishPart(bytes_of(info));
    const CheckResult result = checks->back().result;
    const bool good = result == CheckResult::kSound || result == CheckResult::kSampled;
    if (invocation.json || (read.quiet && good)) continue;
    console.PrintData(FormatCheck(console, checks->back()));
    // Seen now, not after the next step's gigabytes; a failure is remembered by the console.
    console.FlushData().IgnoreError();
  }
  return ExitCode::kOk;
}

// What is no step's byte. `whole`: all steps were asked for.
void LookAtTheRest(const Invocation& invocation, bool whole, Findings* findings) {
  if (whole) {
    // Anything else than damage says nothing about the bytes: a live trainer puts tables in the place of others.
    const absl::Status manifest = invocation.reader.VerifyManifest();
    if (absl::IsDataLoss(manifest)) findings->manifest = manifest;
    findings->identity = CheckIdentity(invocation.link_free);
  }
  if (whole && IsOfManifest(invocation)) {
    absl::StatusOr<std::vector<int64_t>> unrecorded =
        FindUnrecordedSteps(storage::PosixFileSystem(), invocation.reader, invocation.link_free);
    if (unrecorded.ok()) {
      findings->unrecorded = *std::move(unrecorded);
    } else if (!absl::IsCancelled(unrecorded.status())) {
      findings->looked_for = unrecorded.status();
      invocation.console.Warn(fmt::format("steps that the manifest does not know could not be searched for: {}",
                                          std::string(unrecorded.status().message())));
    }
  }
  findings->notes = CheckNotes(invocation, findings->checks, whole);
}

std::string FormatFindings(const Console& console, const Findings& findings) {
  return FormatNotes(console, findings.notes) + FormatManifest(console, findings.manifest) +
         FormatIdentity(console, findings.identity) + FormatUnrecorded(console, findings.unrecorded);
}

// "2 of 2 steps sound; not in the manifest: 3; "
std::string FormatSummary(const StoreReader& reader, const Findings& findings, bool sampled) {
  std::string text = FormatCounts(findings.checks, sampled);
  if (!findings.unrecorded.empty()) text += fmt::format("not in the manifest: {}; ", FirstNumbers(findings.unrecorded));
  if (!findings.notes.empty()) {
    text += fmt::format("pins, reports and deletion marks that cannot be read: {}; ", findings.notes.size());
  }
  if (!findings.identity.ok()) text += "store.json is damaged; ";
  if (!findings.manifest.ok()) text += "the manifest is damaged; ";
  if (!reader.manifest_problem().ok()) text += "the manifest cannot be read; ";
  return text;
}

Json FindingsToJson(const Invocation& invocation, const Findings& findings,
                    const std::optional<RestoreCandidate>& candidate, const ReadData& read) {
  const auto text_of = [](const absl::Status& status) {
    return status.ok() ? Json(nullptr) : Json(std::string(status.message()));
  };
  Json document = NewDocument(invocation.reader, invocation.directory);
  document["sample"] = nullptr;
  if (read.share < 1) document["sample"] = {{"share", read.share}, {"seed", read.seed}};
  Json& steps = document["steps"] = Json::array();
  for (const StepCheck& check : findings.checks) steps.push_back(CheckToJson(check));
  document["unrecorded_steps"] = findings.looked_for.ok() ? Json(findings.unrecorded) : Json(nullptr);
  document["manifest_damage"] = text_of(findings.manifest);
  document["identity_damage"] = text_of(findings.identity);
  document["unreadable_notes"] = NotesToJson(findings.notes);
  document["restore"] = nullptr;
  document["restore_healthy"] = nullptr;
  if (!candidate) return document;
  document["restore"] = {{"step", candidate->step}, {"verified", candidate->verified}};
  if (const auto healthy = FindCandidate(invocation.reader, findings, /*healthy=*/true)) {
    document["restore_healthy"] = healthy->step;
  }
  return document;
}

// What was found all the same.
ExitCode FailWithoutSteps(const Invocation& invocation, const Findings& findings, const ReadData& read) {
  Console& console = invocation.console;
  if (!IsFlawless(findings)) {
    console.PrintData(invocation.json ? Dump(FindingsToJson(invocation, findings, std::nullopt, read))
                                      : FormatFindings(console, findings));
  }
  console.Fail(fmt::format("no step is committed in {}", invocation.directory));
  if (!findings.looked_for.ok()) return ExitCode::kFailure;
  return invocation.reader.manifest_problem().ok() ? ExitCode::kNothingRestorable : ExitCode::kIntegrity;
}

uint32_t DrawSeed() {
  uint32_t seed = 0;
  const auto bytes = storage::RandomBytes16();
  std::memcpy(&seed, bytes.data(), sizeof(seed));
  return seed;
}

}  // namespace

ExitCode VerifySteps(const Invocation& invocation, const std::optional<StepSelector>& selector, const ReadData& read) {
  std::vector<StepInfo> chosen;
  if (const ExitCode code = ChooseSteps(invocation, selector, &chosen); code != ExitCode::kOk) return code;
  Console& console = invocation.console;
  if (read.share < 1 && !invocation.json && !chosen.empty()) {
    const double percent = 100 * read.share;
    console.PrintData(fmt::format("a sample of {} of each shard's chunks; --seed {} draws it again\n",
                                  percent < 0.01 ? ShareText(percent, 100) : fmt::format("{:.6g} %", percent),
                                  read.seed));
  }
  Findings findings;
  if (const ExitCode code = CheckSteps(invocation, chosen, read, &findings.checks); code != ExitCode::kOk) return code;
  LookAtTheRest(invocation, /*whole=*/!selector, &findings);
  if (IsInterrupted()) {
    console.Fail("interrupted; the steps were read; the manifest, pins and reports were not");
    return ExitCode::kInterrupted;
  }
  if (!selector && chosen.empty() && findings.unrecorded.empty()) {
    return FailWithoutSteps(invocation, findings, read);
  }
  const ExitCode code = Judge(invocation.reader, findings, selector.has_value());
  const std::optional<RestoreCandidate> candidate = FindCandidate(invocation.reader, findings);
  if (invocation.json) {
    console.PrintData(Dump(FindingsToJson(invocation, findings, candidate, read)));
    return code;
  }
  console.PrintData(FormatFindings(console, findings));
  if (!selector) console.PrintData(FormatSummary(invocation.reader, findings, read.share < 1));
  if (!selector || code != ExitCode::kOk) console.PrintData(FormatCandidate(invocation.reader, findings, candidate));
  return code;
}

void AddVerify(CommandLine& line) {
  const auto selector = std::make_shared<std::optional<StepSelector>>();
  const auto share = std::make_shared<std::string>("100%");
  const auto seed = std::make_shared<std::optional<uint32_t>>();
  const auto quiet = std::make_shared<bool>(false);
  CLI::App* verify = line.Add(
      {.group = CommandGroup::kCheck,
       .name = "verify",
       .description = "Read every byte and compare it with its checksum"},
      [selector, share, seed, quiet](const Invocation& invocation) {
        CatchInterrupts();
        return VerifySteps(
            invocation, *selector,
            {.share = ParsePercentage(*share).value_or(1), .seed = *seed ? **seed : DrawSeed(), .quiet = *quiet});
      });
  AddSelector(verify, "STEP", *selector, fmt::format("{}; by default every committed step", kSelectorHelp));
  CLI::Option* read_data =
      verify
          ->add_flag("--read-data{100%}", *share,
                     "Read only this share of the chunks, drawn at random, as in --read-data=10%; by default all. 0%: "
                     "only header, index and footer of each shard")
          ->check([](const std::string& text) {
            return ParsePercentage(text) ? "" : fmt::format("must be 0% to 100%, not '{}'", text);
          });
  verify
      ->add_option_function<uint32_t>(
          "--seed", [seed](const uint32_t& number) { *seed = number; },
          "Draw the same chunks as the run that printed this seed")
      ->type_name("N")
      ->needs(read_data);
  verify->add_flag("--quiet", *quiet, "Print no line for a step in which nothing is wrong");
  verify->footer(R"(
The last line sums up and says which step a restore takes. Nothing is changed; 'repair' lists what it would do about
damaged and lost steps, and does it with --apply. The pin and the evaluation records of a step are files of their own.
They are read, too; damage in them does not make the step damaged, and 'pin STEP' writes a pin anew. Without STEP,
'verify' also searches for steps whose files exist and that the manifest does not know. All other commands except
'repair' believe the manifest.

Exit status:
   0  every step that was read is sound; with --read-data: no damage was found
   3  a step is damaged, lost or not in the manifest, and a sound one remains; or the manifest or a small file is damaged
  12  no step is committed
  13  no step is sound; or STEP is damaged or lost
'checkpoint-inspect --help' lists the exit status of all commands.

Examples:
  checkpoint-inspect --store run/ckpt verify
  checkpoint-inspect --store run/ckpt verify --quiet
  checkpoint-inspect --store run/ckpt verify latest --read-data=10%
  checkpoint-inspect --store downloaded --untrusted verify latest)");
}

}  // namespace tidemark::inspect
