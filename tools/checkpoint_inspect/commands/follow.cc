#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "tools/checkpoint_inspect/checks/commit_watch.h"
#include "tools/checkpoint_inspect/cli/interrupt.h"
#include "tools/checkpoint_inspect/commands/commands.h"
#include "tools/checkpoint_inspect/commands/steps.h"
#include "tools/checkpoint_inspect/output/json.h"

namespace tidemark::inspect {
namespace {

// Asked again and again, and not told by inotify, which hears nothing of another machine's writes.
constexpr absl::Duration kPollInterval = absl::Milliseconds(200);

// Where asking takes long, as without a journal, it is done more seldom: it may take a tenth of the time.
constexpr int kRestFactor = 9;

// Waits for so long, or until a signal comes or nobody reads standard output any more: then false.
bool WaitForMore(absl::Duration duration) {
  pollfd out = {.fd = STDOUT_FILENO, .events = 0, .revents = 0};
  const int ready = poll(&out, 1, static_cast<int>(absl::ToInt64Milliseconds(duration)));
  return ready <= 0 || (out.revents & (POLLERR | POLLHUP | POLLNVAL)) == 0;
}

ExitCode PrintSteps(Console& console, const std::vector<StepInfo>& steps) {
  for (const StepInfo& info : steps) {
    Json line = {{"schema_version", kSchemaVersion}};
    line.update(ToJson(info));
    console.PrintData(DumpLine(line));
  }
  const absl::Status written = steps.empty() ? absl::OkStatus() : console.FlushData();
  if (written.ok()) return ExitCode::kOk;
  console.Fail(written);
  return ExitCode::kFailure;
}

}  // namespace

ExitCode FollowSteps(const Invocation& invocation) {
  Console& console = invocation.console;
  CatchInterrupts();
  // The first line may be hours away.
  if (const absl::Status writable = console.CheckData(); !writable.ok()) {
    console.Fail(writable);
    return ExitCode::kFailure;
  }
  CommitWatch watch(invocation.reader.Steps());
  console.Note(fmt::format("following {}; Ctrl-C ends it", invocation.directory));
  absl::Duration rest = kPollInterval;
  while (!IsInterrupted()) {
    if (!WaitForMore(rest)) {
      // As a write would have ended it.
      std::raise(SIGPIPE);
      return ExitCode::kOk;
    }
    const absl::Time begin = absl::Now();
    const bool was_read = invocation.reader.journal_problem().ok();
    if (const absl::Status refreshed = RefreshStore(invocation.reader); !refreshed.ok()) {
      console.Fail(refreshed);
      return OpenExitCode(refreshed);
    }
    // What the shards alone say is not what the journal said: steps that it knew as damaged would be told of as new.
    if (const absl::Status& problem = invocation.reader.journal_problem(); was_read && !problem.ok()) {
      console.Fail(problem);
      return OpenExitCode(problem);
    }
    const ExitCode printed = PrintSteps(console, watch.Take(invocation.reader.Steps()));
    if (printed != ExitCode::kOk) return printed;
    rest = std::clamp(kRestFactor * (absl::Now() - begin), kPollInterval, absl::Minutes(1));
  }
  return ExitCode::kInterrupted;
}

}  // namespace tidemark::inspect
