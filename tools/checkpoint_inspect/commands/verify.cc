#include <algorithm>
#include <cstring>
#include <memory>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "storage/bytes/ids.h"
#include "storage/io/file_system.h"
#include "tools/checkpoint_inspect/checks/record_check.h"
#include "tools/checkpoint_inspect/checks/step_check.h"
#include "tools/checkpoint_inspect/cli/interrupt.h"
#include "tools/checkpoint_inspect/cli/progress_line.h"
#include "tools/checkpoint_inspect/commands/commands.h"
#include "tools/checkpoint_inspect/commands/steps.h"
#include "tools/checkpoint_inspect/output/json.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

// Of those with the same result, in the last line, where each has a line of its own above; and of those whose saves
// were cut short. JSON has all.
constexpr size_t kStepsNamedMax = 10;

struct Findings {
  std::vector<StepCheck> checks;
  std::optional<RecordCheck> records;  // nullopt: one step was asked for
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

// The step that a restore would take, as far as is known now: the highest committed one that was not found unfit. Only
// one of which every byte was read is verified.
struct RestoreCandidate {
  int64_t step = 0;
  bool verified = false;
};

// `healthy`: of those that no evaluator distrusts.
std::optional<RestoreCandidate> FindCandidate(const StoreReader& reader, const std::vector<StepCheck>& checks,
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

std::string FormatCandidate(const StoreReader& reader, const Findings& findings,
                            const std::optional<RestoreCandidate>& candidate) {
  if (!candidate) return "no step can be restored\n";
  std::optional<int64_t> healthy;
  if (const auto found = FindCandidate(reader, findings.checks, /*healthy=*/true)) healthy = found->step;
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

std::string FormatIdentity(const Console& console, const absl::Status& identity) {
  if (identity.ok()) return "";
  return fmt::format(
      "store.json: {}: {}\n  the shards have the store's id, too; repair --apply writes the file again\n",
      console.Paint("damaged", Colour::kBad), Escape(std::string(identity.message())));
}

std::string FormatJournal(const Console& console, const absl::Status& journal) {
  if (journal.ok()) return "";
  return fmt::format(
      "journal: {}: {}\n  repair --apply makes it anew, from the index or from the entries before the damage\n",
      console.Paint("damaged", Colour::kBad), Escape(std::string(journal.message())));
}

std::string FormatIndex(const Console& console, const std::optional<IndexCheck>& index) {
  if (!index || index->problem.ok()) return "";
  return fmt::format(
      "index: {}: {}\n  nothing is lost: the journal has every record, and the next trainer makes the index anew\n",
      console.Paint("unusable", Colour::kWarning), Escape(std::string(index->problem.message())));
}

std::string FormatUnfinished(const std::vector<UnfinishedAttempt>& attempts) {
  if (attempts.empty()) return "";
  std::vector<int64_t> steps;
  for (const UnfinishedAttempt& attempt : attempts) steps.push_back(attempt.step);
  return fmt::format(
      "unfinished: {} of step{} {} {} cut short; repair says which can be committed; the next trainer, or repair "
      "--apply, removes their files\n",
      steps.size() == 1 ? "a save" : "saves", steps.size() == 1 ? "" : "s", FirstNumbers(steps),
      steps.size() == 1 ? "was" : "were");
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

// But for the steps. An index that cannot be used is no damage, because nothing is lost with it.
bool IsFlawless(const Findings& findings) {
  return !findings.records || (findings.records->journal.ok() && findings.records->identity.ok());
}

bool WasLookedAt(const Findings& findings) { return !findings.records || findings.records->error.ok(); }

ExitCode Judge(const StoreReader& reader, const Findings& findings, bool one_step) {
  const ExitCode steps = JudgeSteps(reader, findings.checks, one_step);
  if (steps != ExitCode::kOk) return steps;
  if (!WasLookedAt(findings)) return ExitCode::kFailure;
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

RecordCheck LookAtRecords(const Invocation& invocation) {
  RecordCheck check =
      CheckRecords(storage::PosixFileSystem(), invocation.link_free,
                   storage::StoreId{*storage::FromHex(invocation.reader.store_id())}, !invocation.untrusted);
  if (!check.error.ok() && !absl::IsCancelled(check.error)) {
    invocation.console.Warn(fmt::format("not all records could be looked at: {}", std::string(check.error.message())));
  }
  return check;
}

std::string FormatFindings(const Console& console, const Findings& findings) {
  if (!findings.records) return "";
  const RecordCheck& records = *findings.records;
  return FormatJournal(console, records.journal) + FormatIndex(console, records.index) +
         FormatIdentity(console, records.identity) + FormatUnfinished(records.unfinished);
}

// "2 of 2 steps sound; store.json is damaged; "
std::string FormatSummary(const StoreReader& reader, const Findings& findings, bool sampled) {
  std::string text = FormatCounts(findings.checks, sampled);
  if (findings.records && !findings.records->identity.ok()) text += "store.json is damaged; ";
  if (!reader.journal_problem().ok()) {
    text += "the journal cannot be read; ";
  } else if (findings.records && !findings.records->journal.ok()) {
    text += "the journal is damaged; ";
  }
  return text;
}

void AddRecords(const RecordCheck& check, Json& document) {
  const auto text_of = [](const absl::Status& status) {
    return status.ok() ? Json(nullptr) : Json(std::string(status.message()));
  };
  document["journal"] = {{"entries", check.entries}, {"damage", text_of(check.journal)}};
  document["index"] = nullptr;
  if (check.index) document["index"] = {{"entry", check.index->entry}, {"problem", text_of(check.index->problem)}};
  document["identity_damage"] = text_of(check.identity);
  document["unfinished"] = nullptr;
  if (!check.error.ok()) return;
  Json& unfinished = document["unfinished"] = Json::array();
  for (const UnfinishedAttempt& attempt : check.unfinished) {
    unfinished.push_back({{"step", attempt.step}, {"attempt", attempt.attempt}});
  }
}

Json FindingsToJson(const Invocation& invocation, const Findings& findings,
                    const std::optional<RestoreCandidate>& candidate, const ReadData& read) {
  Json document = NewDocument(invocation.reader, invocation.directory);
  document["sample"] = nullptr;
  if (read.share < 1) document["sample"] = {{"share", read.share}, {"seed", read.seed}};
  Json& steps = document["steps"] = Json::array();
  for (const StepCheck& check : findings.checks) steps.push_back(CheckToJson(check));
  for (const char* field : {"journal", "index", "identity_damage", "unfinished"}) document[field] = nullptr;
  if (findings.records) AddRecords(*findings.records, document);
  document["restore"] = nullptr;
  document["restore_healthy"] = nullptr;
  if (!candidate) return document;
  document["restore"] = {{"step", candidate->step}, {"verified", candidate->verified}};
  if (const auto healthy = FindCandidate(invocation.reader, findings.checks, /*healthy=*/true)) {
    document["restore_healthy"] = healthy->step;
  }
  return document;
}

// What was found all the same.
ExitCode FailWithoutSteps(const Invocation& invocation, const Findings& findings, const ReadData& read) {
  Console& console = invocation.console;
  if (const std::string text = FormatFindings(console, findings); !text.empty()) {
    console.PrintData(invocation.json ? Dump(FindingsToJson(invocation, findings, std::nullopt, read)) : text);
  }
  console.Fail(fmt::format("no step is committed in {}", invocation.directory));
  if (!WasLookedAt(findings)) return ExitCode::kFailure;
  // What the journal has lost may have said that steps are committed.
  const bool is_damaged = findings.records && !findings.records->journal.ok();
  return invocation.reader.journal_problem().ok() && !is_damaged ? ExitCode::kNothingRestorable : ExitCode::kIntegrity;
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
  if (!selector) findings.records = LookAtRecords(invocation);
  if (IsInterrupted()) {
    console.Fail("interrupted; the steps were read; the journal and the index were not");
    return ExitCode::kInterrupted;
  }
  if (!selector && chosen.empty()) return FailWithoutSteps(invocation, findings, read);
  const ExitCode code = Judge(invocation.reader, findings, selector.has_value());
  const std::optional<RestoreCandidate> candidate = FindCandidate(invocation.reader, findings.checks);
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
damaged and lost steps, and does it with --apply. Without STEP, 'verify' also reads every entry of the journal and every
block of the index, and looks for saves that were cut short. If the index has applied all entries, its records are
compared with theirs. An index that cannot be used is no damage: it is made anew from the journal.

Exit status:
   0  every step that was read is sound; with --read-data: no damage was found
   3  a step is damaged or lost, and a sound one remains; or the journal or store.json is damaged
  12  no step is committed
  13  no step is sound; or STEP is damaged or lost; or no step is committed, and the journal is damaged
'checkpoint-inspect --help' lists the exit status of all commands.

Examples:
  checkpoint-inspect --store run/ckpt verify
  checkpoint-inspect --store run/ckpt verify --quiet
  checkpoint-inspect --store run/ckpt verify latest --read-data=10%
  checkpoint-inspect --store downloaded --untrusted verify latest)");
}

}  // namespace tidemark::inspect
