// Requests of a person to a store. Pins and tags are recorded at once. Steps are deleted here if no process holds the
// store. Otherwise the journal gets a request, which the holder answers.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_REQUEST_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_REQUEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "storage/bytes/ids.h"
#include "tools/checkpoint_inspect/cli/command_line.h"
#include "tools/checkpoint_inspect/cli/exit_code.h"
#include "tools/checkpoint_inspect/output/json.h"

namespace tidemark::inspect {

// What a person asks of one attempt, so that it never lands on the one that has taken its place.
struct Request {
  enum class Kind { kPin, kUnpin, kDelete, kTag, kUntag };
  Kind kind = Kind::kPin;
  int64_t step = 0;
  storage::AttemptId attempt;
  std::string text;    // kPin: the note; kDelete: why, for the step's record; kTag, kUntag: the name; else empty
  bool moves = false;  // kTag: takes the name from any other step, in the same entry
};

// "pin", "unpin", "delete", "tag", "untag"
std::string_view RequestKindName(Request::Kind kind);

// About the step. Precondition: it has an attempt.
Request NewRequest(Request::Kind kind, const StepInfo& info, std::string text);

struct Answer {
  enum class Outcome {
    kDone,        // and survives power loss
    kRefused,     // the step is not what it was, or must stay
    kHandedOver,  // a deletion: the process that holds the store has not answered yet
  };
  Outcome outcome = Outcome::kDone;
  std::string reason;  // why it is not kDone
};

// One answer for each request. Pins and tags are recorded at once, also if another process holds the store. All of one
// call are recorded or none: if one is refused, all are. Steps are deleted by this process if it can take the store's
// lock. Else it asks the process that holds the store, and waits up to `wait` for the answers. If the lock becomes free
// meanwhile, it deletes them itself. The reader has been refreshed when this returns.
//
// kPermissionDenied: the store is another user's. kInvalidArgument: a text is too long. kCancelled: interrupted.
// kDataLoss: the journal cannot be read, which is for a repair. After any error what the holder had not answered is
// withdrawn; the message says so, or that requests stay in the journal.
absl::StatusOr<std::vector<Answer>> Ask(const Invocation& invocation, const std::vector<Request>& requests,
                                        absl::Duration wait);

// Deletes all committed steps behind `after`, the latest included, as Retention::DiscardAfter does. Takes the store's
// lock. The reader has been refreshed when this returns.
//
// kUnavailable: another process holds the store; the message names it. Else errors of Ask and of DiscardAfter.
absl::Status DiscardAfter(const Invocation& invocation, int64_t after, const std::string& reason);

// kFailure where one is refused, kLocked where one has not been answered. For an error of Ask see WriteExitCode.
ExitCode AnswersExitCode(const std::vector<Answer>& answers);

// {"request": "pin", "step": 1000, "attempt": "..", "outcome": "done", "reason": ""}
Json ToJson(const Request& request, const Answer& answer);

// Carries out pins and tags and prints the answers: a line for each request, or `document` with an array "requests".
// `deeds`: the words for the effect of each request; if empty, the words of the request's kind.
ExitCode AskAndPrint(const Invocation& invocation, const std::vector<Request>& requests, Json document,
                     const std::vector<std::string>& deeds = {});

// --wait: how long Ask waits, in seconds, 5 by default; 0: not at all.
CLI::Option* AddWait(CLI::App* command, absl::Duration& wait);

// The same for a command that waits for nothing: it checks the value and has no effect. In no help; for scripts that
// were written when such commands waited for the trainer.
void AcceptWait(CLI::App* command);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_REQUEST_H_
