#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "storage/io/draft_file_system.h"
#include "storage/io/file_system.h"
#include "storage/store/lease.h"
#include "storage/store/step_changes.h"
#include "tools/checkpoint_inspect/checks/prune_plan.h"
#include "tools/checkpoint_inspect/checks/store_holder.h"
#include "tools/checkpoint_inspect/cli/request.h"
#include "tools/checkpoint_inspect/commands/commands.h"
#include "tools/checkpoint_inspect/commands/steps.h"
#include "tools/checkpoint_inspect/output/json.h"
#include "tools/checkpoint_inspect/output/table.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

constexpr double kHoursMax = 24 * 365 * 100;

struct PruneOptions {
  RetentionOptions rules;
  std::optional<int64_t> after;  // all steps behind it go; then there are no rules
  bool apply = false;
  absl::Duration wait = absl::Seconds(5);
};

// The steps that a live trainer would refuse to delete, by its notes on the steps: those that its evaluators have yet
// to read, and by rules also the one that they come to next.
void AddHoldsOfTrainer(const Invocation& invocation, bool by_rules, storage::Claims* claims) {
  if (StoreHolder(invocation.link_free).empty()) return;
  const std::set<int64_t> unjudged = storage::UnjudgedByRecord(CommittedOf(invocation.reader.Steps()));
  for (const StepInfo& info : invocation.reader.Steps()) {
    for (std::string& hold : storage::NotedHolds(info)) claims->emplace(info.step, std::move(hold));
    const bool may_be_judged = info.evaluations.empty() || unjudged.contains(info.step);
    if (by_rules && may_be_judged && storage::IsNotedNextToJudge(info))
      claims->emplace(info.step, storage::kNextToJudge);
  }
}

// What live readers hold, found out as retention does it, and nothing is written: a dead holder's file stays. A lease
// of another machine counts, for whether it stands still one look does not tell.
absl::StatusOr<storage::Claims> ReadClaims(const Invocation& invocation, bool by_rules) {
  const storage::StoreLayout layout(invocation.link_free);
  storage::DraftFileSystem draft(storage::PosixFileSystem(), layout.directory());
  storage::LeaseObserver observer(draft, layout, storage::ThisMachine(), storage::MonotonicNow);
  const absl::StatusOr<std::vector<storage::LeaseObserver::Held>> live = observer.Live();
  if (!live.ok()) return live.status();
  std::map<std::string, int64_t> steps;  // by attempt
  for (const StepInfo& info : invocation.reader.Steps()) steps.emplace(info.attempt, info.step);
  storage::Claims claims;
  for (const storage::LeaseObserver::Held& held : *live) {
    const auto step = steps.find(storage::ToHex(held.note.attempt.bytes));
    if (step == steps.end()) continue;
    claims.emplace(step->second, held.readable ? fmt::format("leased by {}", held.note.holder)
                                               : "leased by a process whose note cannot be read");
  }
  AddHoldsOfTrainer(invocation, by_rules, &claims);
  return claims;
}

std::string PlanText(const Invocation& invocation, const PrunePlan& plan) {
  using enum Table::Align;
  using enum Table::Narrow;
  Table table({{"STEP", kRight}, {"PLAN"}, {"STORED", kRight, kWhole, 1}, {"FREES", kRight}, {"REASON", kLeft, kWrap}});
  for (const PrunedStep& step : plan.steps) {
    table.AddRow({{fmt::format("{}", step.step)},
                  {step.keep ? "keep" : "delete", step.keep ? Colour::kGood : Colour::kWarning},
                  {HumanBytes(step.stored_bytes)},
                  {step.keep ? "-" : HumanBytes(step.freed_bytes)},
                  {Escape(step.reason)}});
    if (!step.needed_by.empty()) {
      const bool one = step.needed_by.size() == 1;
      table.AddNote(fmt::format("its files stay: {} {} {} chunks in them", one ? "step" : "steps",
                                fmt::join(step.needed_by, ", "), one ? "has" : "have"));
    }
  }
  std::string text = table.Format(invocation.console);
  text += fmt::format("{} of {} steps to delete, {} to free\n", plan.deletions(), plan.steps.size(),
                      HumanBytes(plan.freed_bytes));
  if (plan.bygone_bytes > 0) {
    text += fmt::format("of these, {} are files of steps deleted earlier that no other step needs\n",
                        HumanBytes(plan.bygone_bytes));
  }
  return text;
}

Json PlanToJson(const PrunePlan& plan) {
  Json list = Json::array();
  for (const PrunedStep& step : plan.steps) {
    list.push_back({{"step", step.step},
                    {"attempt", step.attempt},
                    {"action", step.keep ? "keep" : "delete"},
                    {"reason", step.reason},
                    {"stored_bytes", step.stored_bytes},
                    {"freed_bytes", step.freed_bytes},
                    {"needed_by", step.needed_by}});
  }
  return list;
}

std::string ResultText(const std::vector<Request>& requests, const std::vector<Answer>& answers) {
  std::string text;
  size_t done = 0;
  std::vector<std::pair<std::string, std::vector<int64_t>>> refusals;  // by reason, in the order of the first step
  for (size_t i = 0; i < requests.size(); ++i) {
    if (answers[i].outcome == Answer::Outcome::kDone) {
      ++done;
      continue;
    }
    const auto same = std::find_if(refusals.begin(), refusals.end(),
                                   [&](const auto& refusal) { return refusal.first == answers[i].reason; });
    if (same == refusals.end()) {
      refusals.push_back({answers[i].reason, {requests[i].step}});
    } else {
      same->second.push_back(requests[i].step);
    }
  }
  for (const auto& [reason, steps] : refusals) {
    text += fmt::format("{}: not deleted: {}\n", StepsText(steps), Escape(reason));
  }
  return text + fmt::format("deleted {} of {}\n", done, requests.size());
}

// The steps that the plan deletes, as requests.
std::vector<Request> RequestsOf(const StoreReader& reader, const PrunePlan& plan) {
  std::map<int64_t, const PrunedStep*> going;
  for (const PrunedStep& step : plan.steps) {
    if (!step.keep) going.emplace(step.step, &step);
  }
  std::vector<Request> requests;
  for (const StepInfo& info : reader.Steps()) {
    const auto found = going.find(info.step);
    if (found == going.end()) continue;
    const std::string why = "pruned: " + found->second->reason;
    requests.push_back(NewRequest(Request::Kind::kDelete, info, why.substr(0, storage::kStepNoteBytesMax / 2)));
  }
  return requests;
}

// Gives each rule of keep_best its mode. A deletion must not guess: kUsage if neither the trainer's record nor the
// metric's name gives a mode.
ExitCode SettleBestRules(const Invocation& invocation, RetentionOptions* rules) {
  const StoreReader& reader = invocation.reader;
  for (KeepBest& rule : rules->keep_best) {
    if (absl::Status known = CheckMetric(reader, rule.metric, {.before = "--keep-best "}); !known.ok()) {
      invocation.console.Fail(known);
      return ExitCode::kFailure;
    }
    const auto recorded = reader.recorded_best_modes().find(rule.metric);
    if (rule.mode && recorded != reader.recorded_best_modes().end() && *rule.mode != recorded->second) {
      invocation.console.Warn(fmt::format("--keep-best {0}:{1} keeps the {1}; the trainer recorded that {2} is better",
                                          rule.metric, BestModeName(*rule.mode),
                                          recorded->second == BestMode::kLowest ? "lower" : "higher"));
    }
    if (!rule.mode) rule.mode = reader.BestModeOf(rule.metric);
    if (rule.mode) continue;
    invocation.console.Fail(
        fmt::format("--keep-best {0}: neither the trainer nor the name says whether lower or higher is better; use "
                    "--keep-best {0}:lowest or --keep-best {0}:highest",
                    rule.metric));
    return ExitCode::kUsage;
  }
  return ExitCode::kOk;
}

// What the rules, or --after, delete. nullopt: `*code` says how the command ends.
std::optional<PrunePlan> MakePlan(const Invocation& invocation, const PruneOptions& options, ExitCode* code) {
  Console& console = invocation.console;
  *code = ExitCode::kUsage;
  if (!options.rules.any() && !options.after) {
    console.Fail(
        "no rule says which steps to keep; give --keep-latest, --keep-best, --keep-every, --keep-hours or --after");
    return std::nullopt;
  }
  RetentionOptions rules = options.rules;
  *code = SettleBestRules(invocation, &rules);
  if (*code != ExitCode::kOk) return std::nullopt;
  *code = ExitCode::kFailure;
  const absl::StatusOr<storage::Claims> claims = ReadClaims(invocation, /*by_rules=*/!options.after);
  if (!claims.ok()) {
    console.Fail(claims.status());
    return std::nullopt;
  }
  const std::vector<StepInfo>& steps = invocation.reader.Steps();
  if (options.after) {
    if (absl::Status may = storage::CheckDiscard(*options.after, CommittedOf(steps), *claims); !may.ok()) {
      console.Fail(may);
      return std::nullopt;
    }
  }
  absl::Status unread;
  const auto references = [&](int64_t step) {
    absl::StatusOr<std::vector<std::string>> attempts = invocation.reader.References(step);
    unread.Update(attempts.status());
    return attempts.ok() ? *std::move(attempts) : std::vector<std::string>();
  };
  PrunePlan plan =
      options.after ? PlanDiscard(*options.after, steps, references) : PlanPruning(rules, steps, references, *claims);
  if (!unread.ok()) {
    console.Fail(unread);
    return std::nullopt;
  }
  *code = ExitCode::kOk;
  return plan;
}

// One answer for each request. With --after all of them are done, or none.
absl::StatusOr<std::vector<Answer>> Apply(const Invocation& invocation, const PruneOptions& options,
                                          const std::vector<Request>& requests) {
  if (!options.after) return Ask(invocation, requests, options.wait);
  absl::Status status = DiscardAfter(invocation, *options.after, fmt::format("pruned: after step {}", *options.after));
  if (!status.ok()) return status;
  return std::vector<Answer>(requests.size());
}

ExitCode Prune(const Invocation& invocation, const PruneOptions& options) {
  Console& console = invocation.console;
  ExitCode code = ExitCode::kOk;
  const std::optional<PrunePlan> plan = MakePlan(invocation, options, &code);
  if (!plan) return code;
  Json document;
  if (invocation.json) {
    document = NewDocument(invocation.reader, invocation.directory);
    document["plan"] = PlanToJson(*plan);
    document["freed_bytes"] = plan->freed_bytes;
    document["applied"] = options.apply;
    document["requests"] = Json::array();
  } else {
    console.PrintData(PlanText(invocation, *plan));
  }
  code = StoreExitCode(invocation.reader);
  if (options.apply && plan->deletions() > 0) {
    const std::vector<Request> requests = RequestsOf(invocation.reader, *plan);
    const absl::StatusOr<std::vector<Answer>> answers = Apply(invocation, options, requests);
    if (!answers.ok()) {
      console.Fail(answers.status());
      return WriteExitCode(answers.status());
    }
    for (size_t i = 0; invocation.json && i < requests.size(); ++i) {
      document["requests"].push_back(ToJson(requests[i], (*answers)[i]));
    }
    if (!invocation.json) console.PrintData(ResultText(requests, *answers));
    code = AnswersExitCode(*answers);
  } else if (!options.apply && plan->deletions() > 0) {
    console.Note("nothing was changed; --apply does it");
  }
  if (invocation.json) console.PrintData(Dump(document));
  return code;
}

}  // namespace

void AddPrune(CommandLine& line) {
  const auto options = std::make_shared<PruneOptions>();
  CLI::App* prune =
      line.Add({.group = CommandGroup::kKeep,
                .name = "prune",
                .description = "List the steps that retention rules would delete; with --apply delete them",
                .writes = true},
               [options](const Invocation& invocation) { return Prune(invocation, *options); });
  RetentionOptions& rules = options->rules;
  CLI::Option* after = prune
                           ->add_option("--after", options->after,
                                        "Delete all steps after STEP, the latest included: the run goes back to STEP")
                           ->type_name("STEP")
                           ->check(CLI::NonNegativeNumber);
  CLI::Option* latest =
      prune->add_option("--keep-latest", rules.max_to_keep, "Keep the N steps that were committed last")
          ->type_name("N")
          ->check(CheckPositive);
  CLI::Option* best = AddTexts(
                          prune, "--keep-best",
                          [options = options.get()](const std::vector<std::string>& texts) {
                            for (const std::string& text : texts) {
                              absl::StatusOr<KeepBest> rule = ParseKeepBest(text);
                              if (!rule.ok()) throw CLI::ValidationError(std::string(rule.status().message()));
                              options->rules.keep_best.push_back(*std::move(rule));
                            }
                          },
                          "Keep the best COUNT healthy steps by a metric; COUNT is 1 by default")
                          ->type_name("METRIC[:lowest|:highest][:COUNT]");
  CLI::Option* every =
      prune->add_option("--keep-every", rules.keep_every_steps, "Keep the steps whose number is divisible by N")
          ->type_name("N")
          ->check(CheckPositive);
  const auto set_hours = [&rules](const double& hours) {
    // Said so that it is false of a NaN, too.
    if (!(hours >= 0.001 && hours <= kHoursMax)) {
      throw CLI::ValidationError(fmt::format("--keep-hours: {} is not in [0.001, {}]", hours, kHoursMax));
    }
    rules.keep_interval = absl::Hours(hours);
  };
  CLI::Option* hours =
      prune->add_option_function<double>("--keep-hours", set_hours, "Keep the first step of each span of HOURS hours")
          ->type_name("HOURS");
  for (CLI::Option* rule : {latest, best, every, hours}) after->excludes(rule);
  CLI::Option* apply = prune->add_flag("--apply", options->apply, "Delete the steps, without asking again");
  AddWait(prune, options->wait)->needs(apply);
  prune->footer(R"(
A step stays if any rule keeps it. These stay under all rules:
  - the latest step, and the step that was committed last
  - the latest healthy step, and the latest that evaluators found healthy
  - pinned and tagged steps, and steps that a process is reading
  - steps that an evaluator of a live trainer has not read yet, and the next one that it is to judge
If a trainer holds the store, --apply asks it to delete the others.

METRIC:lowest or METRIC:highest says which value of a metric is the best. Without it the trainer's record decides, then
the metric's name (loss, accuracy). If neither tells, nothing is deleted.

--after STEP is for a run that goes on from an older step. It deletes every later step, the highest first. If one of
them is pinned, tagged or being read, nothing is deleted. A trainer that holds the store must do it itself.

No byte of a step is checked. A step that is recorded as damaged or lost is neither counted nor deleted. A damaged step
that is not recorded as such counts as sound, so run 'verify' first.

Examples:
  checkpoint-inspect --store run/ckpt prune --keep-latest 3 --keep-best validation/loss --keep-every 10000
  checkpoint-inspect --store run/ckpt prune --keep-best validation/accuracy:highest:5 --apply
  checkpoint-inspect --store run/ckpt prune --after 12000 --apply)");
}

}  // namespace tidemark::inspect
