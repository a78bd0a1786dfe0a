#include <algorithm>
#include <cstring>
#include <memory>

#include "fmt/format.h"
#include "storage/shard/ids.h"
#include "tools/checkpoint_inspect/commands.h"
#include "tools/checkpoint_inspect/interrupt.h"
#include "tools/checkpoint_inspect/json.h"
#include "tools/checkpoint_inspect/note_check.h"
#include "tools/checkpoint_inspect/progress_line.h"
#include "tools/checkpoint_inspect/step_check.h"
#include "tools/checkpoint_inspect/steps.h"
#include "tools/checkpoint_inspect/text.h"

namespace tidemark::inspect {
namespace {

// Of those with the same result, in the last line; each has a line of its own above.
constexpr size_t kStepsNamedMax = 10;

// Pins and reports; JSON has all.
constexpr size_t kNotesNamedMax = 10;

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

// The step that a restore would take, as far as is known now: the highest committed one that was not found unfit. Only
// one of which every byte was read is verified.
struct RestoreCandidate {
  int64_t step = 0;
  bool verified = false;
};

std::optional<RestoreCandidate> FindCandidate(const StoreReader& reader, const std::vector<StepCheck>& checks) {
  for (auto info = reader.steps().rbegin(); info != reader.steps().rend(); ++info) {
    if (info->state != StepState::kCommitted) continue;
    const auto check = std::find_if(checks.begin(), checks.end(),
                                    [&](const StepCheck& done) { return done.info.attempt == info->attempt; });
    if (check == checks.end()) return RestoreCandidate{info->step, false};
    if (check->result == CheckResult::kSound) return RestoreCandidate{info->step, true};
    if (check->result == CheckResult::kSampled) return RestoreCandidate{info->step, false};
  }
  return std::nullopt;
}

std::string FormatCandidate(const std::optional<RestoreCandidate>& candidate) {
  if (!candidate) return "no step can be restored\n";
  return fmt::format("a restore takes step {}{}\n", candidate->step,
                     candidate->verified ? "" : ", which was not verified");
}

// "; damaged: 3, 7"; empty where none is.
std::string WithResult(const std::vector<StepCheck>& checks, CheckResult result) {
  std::string text;
  size_t found = 0;
  for (const StepCheck& check : checks) {
    if (check.result != result) continue;
    if (found < kStepsNamedMax) text += fmt::format("{}{}", found == 0 ? "" : ", ", check.info.step);
    ++found;
  }
  if (found == 0) return "";
  if (found > kStepsNamedMax) text += fmt::format(" and {} more", found - kStepsNamedMax);
  return fmt::format("; {}: {}", CheckResultName(result), text);
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
std::vector<NoteProblem> CheckNotes(const std::string& directory, const std::vector<StepCheck>& checks, bool whole) {
  std::vector<NoteProblem> problems;
  const auto add = [&problems](std::vector<NoteProblem> found) {
    problems.insert(problems.end(), std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()));
  };
  for (const StepCheck& check : checks) {
    if (check.result != CheckResult::kRemoved) add(CheckStepNotes(directory, check.info));
  }
  if (whole) add(CheckInboxReports(directory));
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
         "  no byte of a step is affected; what they say is in the manifest alone, and of a report in the inbox nowhere\n";
}

Json NotesToJson(const std::vector<NoteProblem>& problems) {
  Json list = Json::array();
  for (const NoteProblem& problem : problems) {
    list.push_back({{"step", problem.step}, {"path", problem.path}, {"what", problem.what}});
  }
  return list;
}

// Precondition: `checks` is not empty.
ExitCode Judge(const StoreReader& reader, const std::vector<StepCheck>& checks, bool one_step) {
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

// The steps that the command is about; an error, told already, is an exit code.
ExitCode ChooseSteps(const Invocation& invocation, const std::optional<Selector>& selector,
                     std::vector<StepInfo>* chosen) {
  const StoreReader& reader = invocation.reader;
  if (selector) {
    const absl::StatusOr<StepInfo> info = Resolve(reader, invocation.directory, *selector);
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
  std::copy_if(reader.steps().begin(), reader.steps().end(), std::back_inserter(*chosen), HasFiles);
  if (!chosen->empty()) return ExitCode::kOk;
  invocation.console.Fail(fmt::format("no step is committed in {}", invocation.directory));
  return reader.manifest_problem().ok() ? ExitCode::kNothingRestorable : ExitCode::kIntegrity;
}

uint32_t DrawSeed() {
  uint32_t seed = 0;
  const auto bytes = storage::RandomBytes16();
  std::memcpy(&seed, bytes.data(), sizeof(seed));
  return seed;
}

}  // namespace

ExitCode VerifySteps(const Invocation& invocation, const std::optional<Selector>& selector, const ReadData& read) {
  std::vector<StepInfo> chosen;
  if (const ExitCode code = ChooseSteps(invocation, selector, &chosen); code != ExitCode::kOk) return code;
  uint64_t bytes_total = 0;
  const auto bytes_of = [&](const StepInfo& info) {
    return static_cast<uint64_t>(static_cast<double>(info.stored_bytes) * read.share);
  };
  for (const StepInfo& info : chosen) bytes_total += info.state == StepState::kLost ? 0 : bytes_of(info);

  Console& console = invocation.console;
  const bool sampled = read.share < 1;
  if (sampled && !invocation.json) {
    const double percent = 100 * read.share;
    console.PrintData(fmt::format("a sample of {} of each shard's chunks; --seed {} draws it again\n",
                                  percent < 0.01 ? ShareText(percent, 100) : fmt::format("{:.6g} %", percent),
                                  read.seed));
  }
  std::vector<StepCheck> checks;
  {
    ProgressLine line(console, bytes_total);
    for (const StepInfo& info : chosen) {
      const auto update = [&](const VerifyProgress& progress) {
        line.Update(fmt::format("step {}", info.step), progress.bytes_done);
      };
      checks.push_back(CheckStep(
          invocation.reader, info,
          {.share = read.share, .seed = read.seed, .progress = update, .cancelled = IsInterrupted}));
      if (IsInterrupted()) {
        console.Fail(fmt::format("interrupted; {} of {} steps were read", checks.size() - 1, chosen.size()));
        return ExitCode::kInterrupted;
      }
      line.FinishPart(bytes_of(info));
      if (invocation.json) continue;
      console.PrintData(FormatCheck(console, checks.back()));
      // Seen now, not after the next step's gigabytes; a failure is remembered by the console.
      console.FlushData().IgnoreError();
    }
  }
  const std::optional<RestoreCandidate> candidate = FindCandidate(invocation.reader, checks);
  ExitCode code = Judge(invocation.reader, checks, selector.has_value());
  // Anything else than damage says nothing about the bytes: a live trainer puts tables in the place of others.
  const absl::Status manifest = selector ? absl::OkStatus() : invocation.reader.VerifyManifest();
  const bool is_rotten = absl::IsDataLoss(manifest);
  const std::vector<NoteProblem> notes = CheckNotes(invocation.link_free, checks, !selector);
  if (IsInterrupted()) {
    console.Fail("interrupted; the steps were read, the manifest, pins and reports were not");
    return ExitCode::kInterrupted;
  }
  if ((is_rotten || !notes.empty()) && code == ExitCode::kOk) code = ExitCode::kDamagedButUsable;
  if (!invocation.json) {
    console.PrintData(FormatNotes(console, notes));
    if (is_rotten) {
      console.PrintData(
          fmt::format("manifest: {}: {}\n  the records of the steps could still be read; repair --apply rebuilds it\n",
                      console.Paint("damaged", Colour::kBad), Escape(std::string(manifest.message()))));
    }
    if (!selector) {
      console.PrintData(FormatCounts(checks, sampled));
      if (!notes.empty()) console.PrintData(fmt::format("pins and reports that cannot be read: {}; ", notes.size()));
      if (is_rotten) console.PrintData("the manifest is damaged; ");
      if (!invocation.reader.manifest_problem().ok()) console.PrintData("the manifest cannot be read; ");
    }
    if (!selector || code != ExitCode::kOk) console.PrintData(FormatCandidate(candidate));
    return code;
  }
  Json document = NewDocument(invocation.reader, invocation.directory);
  document["sample"] = nullptr;
  if (sampled) document["sample"] = {{"share", read.share}, {"seed", read.seed}};
  Json& steps = document["steps"] = Json::array();
  for (const StepCheck& check : checks) steps.push_back(CheckToJson(check));
  document["manifest_damage"] = is_rotten ? Json(std::string(manifest.message())) : Json(nullptr);
  document["unreadable_notes"] = NotesToJson(notes);
  document["restore"] = nullptr;
  if (candidate) document["restore"] = {{"step", candidate->step}, {"verified", candidate->verified}};
  console.PrintData(Dump(document));
  return code;
}

void AddVerify(CommandLine& line) {
  const auto selector = std::make_shared<std::optional<Selector>>();
  const auto share = std::make_shared<std::string>("100%");
  const auto seed = std::make_shared<std::optional<uint32_t>>();
  CLI::App* verify = line.Add(
      {.group = CommandGroup::kCheck,
       .name = "verify",
       .description = "Read every byte and hold it against its checksum"},
      [selector, share, seed](const Invocation& invocation) {
        CatchInterrupts();
        return VerifySteps(invocation, *selector,
                           {.share = ParsePercentage(*share).value_or(1), .seed = *seed ? **seed : DrawSeed()});
      });
  AddSelector(verify, "STEP", *selector, fmt::format("{}; by default every committed one", kSelectorHelp));
  verify
      ->add_flag("--read-data{100%}", *share,
                 "How many of the chunks to read, drawn at random, as in --read-data=10%; by default all. 0%: only "
                 "header, index and footer of each shard")
      ->check([](const std::string& text) {
        return ParsePercentage(text) ? "" : fmt::format("'{}' is no share from 0% to 100%", text);
      });
  verify
      ->add_option_function<uint32_t>(
          "--seed", [seed](const uint32_t& number) { *seed = number; }, "Which chunks: those of an earlier run's seed")
      ->type_name("N");
  verify->footer(R"(
The last line sums up, and says which step a restore takes. Nothing is changed. 'repair' says what it would do about
what is damaged or lost, and does it with --apply. A pin and what evaluators reported are files of their own beside a
step: they are read, too, and no step is damaged by theirs. 'pin STEP' writes a pin anew.

Exit status:
   0  every step that was read is sound; of a sample: no damage was found
   3  a step is damaged or lost, and another one is sound; or the manifest, a pin or a report cannot be read
  12  no step was ever committed
  13  no step is sound; or the one that STEP names is damaged or lost
The others are those of every command: see 'checkpoint-inspect --help'.

Examples:
  checkpoint-inspect --store run/ckpt verify
  checkpoint-inspect --store run/ckpt verify latest --read-data=10%
  checkpoint-inspect --store downloaded --untrusted verify latest)");
}

}  // namespace tidemark::inspect
