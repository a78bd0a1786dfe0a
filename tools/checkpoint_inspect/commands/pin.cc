#include <memory>
#include <string>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "tools/checkpoint_inspect/cli/request.h"
#include "tools/checkpoint_inspect/commands/commands.h"
#include "tools/checkpoint_inspect/commands/steps.h"
#include "tools/checkpoint_inspect/output/json.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

struct PinOptions {
  StepSelector selector = StepSelector::Latest();
  std::string note;
};

// The answer, from the step as it was before: "unpinned", "unpinned, and its tags removed: paper, v1", "was not
// pinned".
std::string UnpinnedText(const StepInfo& info) {
  if (!info.pinned) return "was not pinned";
  if (info.tags.empty()) return "unpinned";
  return fmt::format("unpinned, and its tag{} removed: {}", info.tags.size() == 1 ? "" : "s",
                     Escape(fmt::format("{}", fmt::join(info.tags, ", "))));
}

ExitCode ChangePin(const Invocation& invocation, const PinOptions& options, Request::Kind kind) {
  Console& console = invocation.console;
  const StepPredicate usable = kind == Request::Kind::kPin ? IsCommitted : HasFiles;
  const absl::StatusOr<StepInfo> info = Resolve(invocation.reader, invocation.directory, options.selector, usable);
  if (!info.ok()) {
    console.Fail(info.status());
    return SelectorExitCode(invocation.reader, info.status());
  }
  if (!IsCommitted(*info) && (kind == Request::Kind::kPin || info->attempt.empty())) {
    console.Fail(
        fmt::format("step {} is {}: only a committed step can be pinned", info->step, StepStateName(info->state)));
    return ExitCode::kFailure;
  }
  std::vector<std::string> deeds;
  if (kind == Request::Kind::kUnpin) deeds.push_back(UnpinnedText(*info));
  return AskAndPrint(invocation, {NewRequest(kind, *info, options.note)},
                     NewDocument(invocation.reader, invocation.directory), deeds);
}

}  // namespace

void AddPin(CommandLine& line) {
  const auto options = std::make_shared<PinOptions>();
  CLI::App* pin = line.Add(
      {.group = CommandGroup::kKeep,
       .name = "pin",
       .description = "Protect a step: neither retention nor prune deletes it",
       .writes = true},
      [options](const Invocation& invocation) { return ChangePin(invocation, *options, Request::Kind::kPin); });
  AddSelector(pin, "STEP", options->selector, std::string(kSelectorHelp))->required();
  pin->add_option("--note", options->note, "A text that says why the step is kept")->type_name("TEXT");
  AcceptWait(pin);
  pin->footer(R"(
The pin counts at once, also for a trainer that holds the store.

Example:
  checkpoint-inspect --store run/ckpt pin 120000 --note "the one in the paper"
  checkpoint-inspect --store run/ckpt pin best:validation/loss)");
}

void AddUnpin(CommandLine& line) {
  const auto options = std::make_shared<PinOptions>();
  CLI::App* unpin = line.Add(
      {.group = CommandGroup::kKeep,
       .name = "unpin",
       .description = "Remove the pin and the tags of a step, so that it may be deleted",
       .writes = true},
      [options](const Invocation& invocation) { return ChangePin(invocation, *options, Request::Kind::kUnpin); });
  AddSelector(unpin, "STEP", options->selector, std::string(kSelectorHelp))->required();
  AcceptWait(unpin);
  unpin->footer(R"(
A live trainer deletes the step at once if its retention rules do not keep it.

Example:
  checkpoint-inspect --store run/ckpt unpin 120000)");
}

}  // namespace tidemark::inspect
