#include <memory>
#include <string>
#include <utility>

#include "fmt/format.h"
#include "tools/checkpoint_inspect/commands.h"
#include "tools/checkpoint_inspect/json.h"
#include "tools/checkpoint_inspect/request.h"
#include "tools/checkpoint_inspect/steps.h"
#include "tools/checkpoint_inspect/text.h"

namespace tidemark::inspect {
namespace {

using storage::StoreRequest;

struct PinOptions {
  Selector selector;
  std::string note;
  absl::Duration wait = absl::Seconds(5);
};

std::string AnswerText(const Console& console, const StoreRequest& request, const Answer& answer) {
  const std::string what = request.kind == StoreRequest::Kind::kPin ? "pinned" : "unpinned";
  if (answer.outcome == Answer::Outcome::kDone) {
    const std::string note = request.text.empty() ? "" : fmt::format(" ({})", Escape(request.text));
    return fmt::format("step {}: {}{}\n", request.step, console.Paint(what, Colour::kGood), note);
  }
  return fmt::format("step {}: {}: {}\n", request.step, console.Paint("not " + what, Colour::kWarning),
                     Escape(answer.reason));
}

ExitCode ChangePin(const Invocation& invocation, const PinOptions& options, StoreRequest::Kind kind) {
  Console& console = invocation.console;
  const absl::StatusOr<StepInfo> info = Resolve(invocation.reader, invocation.directory, options.selector);
  if (!info.ok()) {
    console.Fail(info.status());
    return SelectorExitCode(invocation.reader, info.status());
  }
  if (info->state != StepState::kCommitted && (kind == StoreRequest::Kind::kPin || info->attempt.empty())) {
    console.Fail(
        fmt::format("step {} is {}: only a committed step can be pinned", info->step, StepStateName(info->state)));
    return ExitCode::kFailure;
  }
  const StoreRequest request = NewRequest(invocation.reader, kind, *info, options.note);
  const absl::StatusOr<std::vector<Answer>> answers = Ask(invocation, {request}, options.wait);
  if (!answers.ok()) {
    console.Fail(answers.status());
    return AskExitCode(answers.status());
  }
  if (invocation.json) {
    Json document = NewDocument(invocation.reader, invocation.directory);
    document["requests"] = Json::array({ToJson(request, answers->front())});
    console.PrintData(Dump(document));
  } else {
    console.PrintData(AnswerText(console, request, answers->front()));
  }
  return AnswersExitCode(*answers);
}

}  // namespace

void AddPin(CommandLine& line) {
  const auto options = std::make_shared<PinOptions>();
  CLI::App* pin = line.AddReaderThatWrites(
      CommandGroup::kKeep, "pin", "Keep a step, whatever retention and prune say",
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
  CLI::App* unpin = line.AddReaderThatWrites(
      CommandGroup::kKeep, "unpin", "Let retention and prune decide on a step",
      [options](const Invocation& invocation) { return ChangePin(invocation, *options, StoreRequest::Kind::kUnpin); });
  AddSelector(unpin, "STEP", options->selector, std::string(kSelectorHelp))->required();
  AddWait(unpin, options->wait);
  unpin->footer(R"(
A trainer that holds the store may delete the step as soon as it is not pinned any more, if its rules let go of it.

Example:
  checkpoint-inspect --store run/ckpt unpin 120000)");
}

}  // namespace tidemark::inspect
