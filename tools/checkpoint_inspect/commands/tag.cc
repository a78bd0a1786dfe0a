#include "storage/records/tag.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "tools/checkpoint_inspect/cli/request.h"
#include "tools/checkpoint_inspect/commands/commands.h"
#include "tools/checkpoint_inspect/commands/steps.h"
#include "tools/checkpoint_inspect/output/json.h"

namespace tidemark::inspect {
namespace {

struct TagOptions {
  StepSelector selector = StepSelector::Latest();  // of AddTag
  std::string name;
  bool move = false;
};

// Asks that `to`, if there is one, gets the name, and that the steps `from` lose it: all of it or nothing.
ExitCode AskForTag(const Invocation& invocation, const TagOptions& options, const std::vector<StepInfo>& from,
                   const StepInfo* to) {
  std::vector<Request> requests;
  const auto add = [&](Request::Kind kind, const StepInfo& info) {
    requests.push_back(NewRequest(kind, info, options.name));
  };
  if (to != nullptr) add(Request::Kind::kTag, *to);
  if (to != nullptr) requests.back().moves = options.move;
  for (const StepInfo& info : from) add(Request::Kind::kUntag, info);
  Json document = NewDocument(invocation.reader, invocation.directory);
  document["tag"] = options.name;
  return AskAndPrint(invocation, requests, std::move(document));
}

ExitCode Tag(const Invocation& invocation, const TagOptions& options) {
  Console& console = invocation.console;
  const absl::StatusOr<StepInfo> info = Resolve(invocation.reader, invocation.directory, options.selector, IsCommitted);
  if (!info.ok()) {
    console.Fail(info.status());
    return SelectorExitCode(invocation.reader, info.status());
  }
  if (!IsCommitted(*info)) {
    console.Fail(
        fmt::format("step {} is {}: only a committed step can be tagged", info->step, StepStateName(info->state)));
    return ExitCode::kFailure;
  }
  std::vector<StepInfo> others = TaggedSteps(invocation.reader, options.name);
  std::erase_if(others, [&](const StepInfo& other) { return other.step == info->step; });
  if (!others.empty() && !options.move) {
    console.Fail(fmt::format("{} already {} the tag '{}'; --move takes it from there", StepNumbers(others),
                             others.size() == 1 ? "has" : "have", options.name));
    return ExitCode::kFailure;
  }
  // Said here, so that nothing is asked of the others.
  if (info->tags.size() >= storage::kTagsPerStepMax && !storage::HasTag(info->tags, options.name)) {
    console.Fail(fmt::format("step {} has {} tags, the maximum", info->step, info->tags.size()));
    return ExitCode::kFailure;
  }
  return AskForTag(invocation, options, others, &*info);
}

ExitCode Untag(const Invocation& invocation, const TagOptions& options) {
  if (const absl::Status known = CheckSomeStepHasTag(invocation.reader, options.name); !known.ok()) {
    invocation.console.Fail(known);
    return ExitCode::kFailure;
  }
  return AskForTag(invocation, options, TaggedSteps(invocation.reader, options.name), nullptr);
}

// `is_new`: refuses a name that would be confused with another selector of a step.
void AddName(CLI::App* command, const std::string& description, std::string& name, bool is_new) {
  const auto set = [&name, is_new](const std::string& text) {
    if (const absl::Status status = storage::CheckTag(text); !status.ok()) {
      throw CLI::ValidationError("NAME: " + std::string(status.message()));
    }
    if (is_new && StepSelector::Parse(text).ok()) {
      throw CLI::ValidationError(fmt::format("NAME: '{}' already means a step; choose another name", text));
    }
    name = text;
  };
  command->add_option_function<std::string>("NAME", set, description)->required()->type_name("");
}

}  // namespace

void AddTag(CommandLine& line) {
  const auto options = std::make_shared<TagOptions>();
  CLI::App* tag = line.Add(
      {.group = CommandGroup::kKeep, .name = "tag", .description = "Give a step a name, and pin it", .writes = true},
      [options](const Invocation& invocation) { return Tag(invocation, *options); });
  AddSelector(tag, "STEP", options->selector, std::string(kSelectorHelp))->required();
  AddName(tag, "Up to 128 letters, digits, and any of . _ / -", options->name, /*is_new=*/true);
  tag->add_flag("--move", options->move, "Take the name from the step that has it, which stays pinned");
  AcceptWait(tag);
  tag->footer(R"(
Every command that takes a STEP then takes tag:NAME for it. A tagged step is pinned, and 'unpin' removes its tags, too.
The tag counts at once, also for a trainer that holds the store.

Example:
  checkpoint-inspect --store run/ckpt tag best:validation/loss paper
  checkpoint-inspect --store run/ckpt tag latest release/candidate --move
  checkpoint-inspect --store run/ckpt diff tag:paper latest)");
}

void AddUntag(CommandLine& line) {
  const auto options = std::make_shared<TagOptions>();
  CLI::App* untag = line.Add(
      {.group = CommandGroup::kKeep, .name = "untag", .description = "Remove a name from its step", .writes = true},
      [options](const Invocation& invocation) { return Untag(invocation, *options); });
  AddName(untag, "The tag to remove", options->name, /*is_new=*/false);
  AcceptWait(untag);
  untag->footer(R"(
The step stays pinned. 'unpin' removes the pin.

Example:
  checkpoint-inspect --store run/ckpt untag release/candidate)");
}

}  // namespace tidemark::inspect
