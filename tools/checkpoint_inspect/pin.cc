#include <memory>
#include <string>

#include "fmt/format.h"
#include "tools/checkpoint_inspect/commands.h"
#include "tools/checkpoint_inspect/json.h"
#include "tools/checkpoint_inspect/request.h"
#include "tools/checkpoint_inspect/step_source.h"
#include "tools/checkpoint_inspect/steps.h"

namespace tidemark::inspect {
namespace {

using storage::StoreRequest;

struct PinOptions {
  Selector selector;
  std::string note;
  absl::Duration wait = absl::Seconds(5);
};

ExitCode ChangePin(const Invocation& invocation, const PinOptions& options, StoreRequest::Kind kind) {
  Console& console = invocation.console;
  const StepPredicate usable = kind == StoreRequest::Kind::kPin ? IsCommitted : HasFiles;
  const absl::StatusOr<StepInfo> info = ResolveStep(invocation, options.selector, usable);
  if (!info.ok()) {
    console.Fail(info.status());
    return SelectorExitCode(invocation.reader, info.status());
  }
  if (!IsCommitted(*info) && (kind == StoreRequest::Kind::kPin || info->attempt.empty())) {
    console.Fail(
        fmt::format("step {} is {}: only a committed step can be pinned", info->step, StepStateName(info->state)));
    return ExitCode::kFailure;
  }
  return AskAndPrint(invocation, {NewRequest(invocation.reader, kind, *info, options.note)}, options.wait,
                     NewDocument(invocation.reader, invocation.directory));
}

}  // namespace

void AddPin(CommandLine& line) {
  const auto options = std::make_shared<PinOptions>();
  CLI::App* pin = line.Add(
      {.group = CommandGroup::kKeep,
       .name = "pin",
       .description = "Keep a step, whatever retention and prune say",
       .writes = true},
      [options](const Invocation& invocation) { return ChangePin(invocation, *options, StoreRequest::Kind::kPin); });
  AddSelector(pin, "STEP", options->selector, std::string(kSelectorHelp))->required();
  pin->add_option("--note", options->note, "Why, for people")->type_name("TEXT");
  AddWait(pin, options->wait);
  pin->footer(R"(
Beside a live trainer the request is handed to it, and it carries it out.

Example:
  checkpoint-inspect --store run/ckpt pin 120000 --note "the one in the paper"
  checkpoint-inspect --store run/ckpt pin best:validation/loss)");
}

void AddUnpin(CommandLine& line) {
  const auto options = std::make_shared<PinOptions>();
  CLI::App* unpin = line.Add(
      {.group = CommandGroup::kKeep,
       .name = "unpin",
       .description = "Let retention and prune decide on a step",
       .writes = true},
      [options](const Invocation& invocation) { return ChangePin(invocation, *options, StoreRequest::Kind::kUnpin); });
  AddSelector(unpin, "STEP", options->selector, std::string(kSelectorHelp))->required();
  AddWait(unpin, options->wait);
  unpin->footer(R"(
Its tags go, too. A trainer that holds the store may delete the step as soon as it is not pinned any more, if its rules
let go of it.

Example:
  checkpoint-inspect --store run/ckpt unpin 120000)");
}

}  // namespace tidemark::inspect
