#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "storage/io/draft_file_system.h"
#include "storage/io/file_system.h"
#include "storage/manifest/lease.h"
#include "tools/checkpoint_inspect/commands.h"
#include "tools/checkpoint_inspect/json.h"
#include "tools/checkpoint_inspect/prune_plan.h"
#include "tools/checkpoint_inspect/request.h"
#include "tools/checkpoint_inspect/steps.h"
#include "tools/checkpoint_inspect/table.h"
#include "tools/checkpoint_inspect/text.h"

namespace tidemark::inspect {
namespace {

using storage::StoreRequest;

constexpr double kHoursMax = 24 * 365 * 100;

struct PruneOptions {
  RetentionOptions rules;
  std::vector<std::string> without_end;  // metrics of --keep-best of which it was not said which end is the best
  bool apply = false;
  absl::Duration wait = absl::Seconds(5);
};

// What live readers hold, found out as retention does it, and nothing is written: a dead holder's file stays. A lease
// of another machine counts, for whether it stands still one look does not tell.
absl::StatusOr<storage::Claims> ReadLeases(const Invocation& invocation) {
  const storage::StoreLayout layout(invocation.link_free);
  storage::DraftFileSystem draft(storage::PosixFileSystem(), layout.directory());
  storage::LeaseObserver observer(draft, layout, storage::ThisMachine(), storage::MonotonicNow);
  const absl::StatusOr<std::vector<storage::LeaseObserver::Held>> live = observer.Live();
  if (!live.ok()) return live.status();
  std::map<std::string, int64_t> steps;  // by attempt
  for (const StepInfo& info : invocation.reader.steps()) steps.emplace(info.attempt, info.step);
  storage::Claims claims;
  for (const storage::LeaseObserver::Held& held : *live) {
    const auto step = steps.find(storage::ToHex(held.note.attempt.bytes));
    if (step == steps.end()) continue;
    claims.emplace(step->second, held.readable ? fmt::format("leased by {}", held.note.holder)
                                               : "leased by somebody whose note cannot be read");
  }
  return claims;
}

std::string PlanText(const Invocation& invocation, const PrunePlan& plan) {
  using enum Table::Align;
  Table table({{"STEP", kRight}, {"PLAN"}, {"STORED", kRight}, {"FREES", kRight}, {"REASON"}});
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
    text += fmt::format("of these, {} are of steps deleted earlier whose files nobody else needs\n",
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

std::string ResultText(const std::vector<StoreRequest>& requests, const std::vector<Answer>& answers) {
  std::string text;
  size_t done = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (answers[i].outcome == Answer::Outcome::kDone) {
      ++done;
    } else {
      text += fmt::format("step {}: not deleted: {}\n", requests[i].step, Escape(answers[i].reason));
    }
  }
  return text + fmt::format("deleted {} of {}\n", done, requests.size());
}

// The steps that the plan lets go, as requests.
std::vector<StoreRequest> RequestsOf(const StoreReader& reader, const PrunePlan& plan) {
  std::map<int64_t, const PrunedStep*> going;
  for (const PrunedStep& step : plan.steps) {
    if (!step.keep) going.emplace(step.step, &step);
  }
  std::vector<StoreRequest> requests;
  for (const StepInfo& info : reader.steps()) {
    const auto found = going.find(info.step);
    if (found == going.end()) continue;
    const std::string why = "pruned: " + found->second->reason;
    requests.push_back(
        NewRequest(reader, StoreRequest::Kind::kDelete, info, why.substr(0, storage::kRequestTextBytesMax / 2)));
  }
  return requests;
}

ExitCode Prune(const Invocation& invocation, const PruneOptions& options) {
  Console& console = invocation.console;
  if (!options.rules.any()) {
    console.Fail("no rule says which steps to keep: give --keep-latest, --keep-best, --keep-every or --keep-hours");
    return ExitCode::kUsage;
  }
  for (const KeepBest& rule : options.rules.keep_best) {
    if (absl::Status known = CheckMetric(invocation.reader, rule.metric, {.before = "--keep-best "}); !known.ok()) {
      console.Fail(known);
      return ExitCode::kFailure;
    }
  }
  for (size_t i = 0; !invocation.json && i < options.without_end.size(); ++i) {
    const std::string other = OtherEnd(invocation.reader, "--keep-best ", options.without_end[i]);
    if (!other.empty()) console.Note(other);
  }
  const absl::StatusOr<storage::Claims> leases = ReadLeases(invocation);
  if (!leases.ok()) {
    console.Fail(leases.status());
    return ExitCode::kFailure;
  }
  const PrunePlan plan = PlanPruning(
      options.rules, invocation.reader.steps(), [&](int64_t step) { return invocation.reader.References(step); },
      *leases);
  Json document;
  if (invocation.json) {
    document = NewDocument(invocation.reader, invocation.directory);
    document["plan"] = PlanToJson(plan);
    document["freed_bytes"] = plan.freed_bytes;
    document["applied"] = options.apply;
    document["requests"] = Json::array();
  } else {
    console.PrintData(PlanText(invocation, plan));
  }
  ExitCode code = StoreExitCode(invocation.reader);
  if (options.apply && plan.deletions() > 0) {
    const std::vector<StoreRequest> requests = RequestsOf(invocation.reader, plan);
    const absl::StatusOr<std::vector<Answer>> answers = Ask(invocation, requests, options.wait);
    if (!answers.ok()) {
      console.Fail(answers.status());
      return WriteExitCode(answers.status());
    }
    for (size_t i = 0; invocation.json && i < requests.size(); ++i) {
      document["requests"].push_back(ToJson(requests[i], (*answers)[i]));
    }
    if (!invocation.json) console.PrintData(ResultText(requests, *answers));
    code = AnswersExitCode(*answers);
  } else if (!options.apply && plan.deletions() > 0) {
    console.Note("nothing was changed; --apply does it");
  }
  if (invocation.json) console.PrintData(Dump(document));
  return code;
}

}  // namespace

void AddPrune(CommandLine& line) {
  const auto options = std::make_shared<PruneOptions>();
  CLI::App* prune = line.Add({.group = CommandGroup::kKeep,
                              .name = "prune",
                              .description = "Say which steps rules would delete, and delete them",
                              .writes = true},
                             [options](const Invocation& invocation) { return Prune(invocation, *options); });
  RetentionOptions& rules = options->rules;
  prune->add_option("--keep-latest", rules.max_to_keep, "So many, those that were committed last")
      ->type_name("N")
      ->check(CheckPositive);
  AddTexts(
      prune, "--keep-best",
      [options = options.get()](const std::vector<std::string>& texts) {
        for (const std::string& text : texts) {
          absl::StatusOr<BestRule> rule = ParseKeepBest(text);
          if (!rule.ok()) throw CLI::ValidationError(std::string(rule.status().message()));
          if (!rule->names_end) options->without_end.push_back(rule->keep.metric);
          options->rules.keep_best.push_back(std::move(rule->keep));
        }
      },
      "The best COUNT healthy steps by a metric: one, and the lowest, unless it says otherwise")
      ->type_name("METRIC[:highest][:COUNT]");
  prune->add_option("--keep-every", rules.keep_every_steps, "Steps divisible by N")
      ->type_name("N")
      ->check(CheckPositive);
  const auto set_hours = [&rules](const double& hours) {
    // Said so that it is false of a NaN, too.
    if (!(hours >= 0.001 && hours <= kHoursMax)) {
      throw CLI::ValidationError(fmt::format("--keep-hours: {} is not in [0.001, {}]", hours, kHoursMax));
    }
    rules.keep_interval = absl::Hours(hours);
  };
  prune->add_option_function<double>("--keep-hours", set_hours, "The first step in every such span of time")
      ->type_name("HOURS");
  CLI::Option* apply = prune->add_flag("--apply", options->apply, "Do it. Asks nothing");
  AddWait(prune, options->wait)->needs(apply);
  prune->footer(R"(
A step stays if any rule wants it. Whatever the rules say, these stay: the latest step, the one committed last, the
latest healthy one, pinned ones, and those that a reader holds. Beside a live trainer --apply hands the deletions to it.

No byte of a step is checked. One that is recorded as damaged or lost is neither counted among those to keep nor deleted;
one whose damage nobody has found yet counts like a sound one: 'verify' first.

Example:
  checkpoint-inspect --store run/ckpt prune --keep-latest 3 --keep-best validation/loss --keep-every 10000
  checkpoint-inspect --store run/ckpt prune --keep-best validation/accuracy:highest:5 --apply)");
}

}  // namespace tidemark::inspect
