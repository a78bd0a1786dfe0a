// What a person asks of a store: carried out here where nobody holds the store, and else a request in its inbox, for
// whoever does.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_REQUEST_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_REQUEST_H_

#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "storage/manifest/store_request.h"
#include "tools/checkpoint_inspect/command_line.h"
#include "tools/checkpoint_inspect/exit_code.h"
#include "tools/checkpoint_inspect/json.h"

namespace tidemark::inspect {

// Of this process about the step. Precondition: it has an attempt.
storage::StoreRequest NewRequest(const StoreReader& reader, storage::StoreRequest::Kind kind, const StepInfo& info,
                                 std::string text);

struct Answer {
  enum class Outcome {
    kDone,        // and survives power loss
    kRefused,     // the step is not what it was, or must stay
    kHandedOver,  // it lies in the inbox: whoever holds the store has not taken it in yet
  };
  Outcome outcome = Outcome::kDone;
  std::string reason;  // why it is not kDone
};

// One answer for each request. Takes the store's lock where it can be had, and carries out these and what lies in the
// inbox. Where somebody else holds it, says so, leaves them in the inbox, waits up to `wait` until they have been taken
// in, and takes the store itself once it is let go. The reader has been refreshed when this returns.
//
// kPermissionDenied: the store is another user's. kInvalidArgument: a text is too long. kCancelled: interrupted.
// kDataLoss: the manifest cannot be read, which is for a repair. After an error what was not taken in has been
// withdrawn.
absl::StatusOr<std::vector<Answer>> Ask(const Invocation& invocation,
                                        const std::vector<storage::StoreRequest>& requests, absl::Duration wait);

// kFailure where one is refused, kLocked where one has not been taken in. For an error of Ask see WriteExitCode.
ExitCode AnswersExitCode(const std::vector<Answer>& answers);

// {"request": "pin", "step": 1000, "attempt": "..", "outcome": "done", "reason": ""}
Json ToJson(const storage::StoreRequest& request, const Answer& answer);

// Asks, and prints the answers: a line for each request, or `document` with "requests", an array of them.
ExitCode AskAndPrint(const Invocation& invocation, const std::vector<storage::StoreRequest>& requests,
                     absl::Duration wait, Json document);

// --wait: how long Ask waits, in seconds, 5 by default; 0: not at all.
CLI::Option* AddWait(CLI::App* command, absl::Duration& wait);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_REQUEST_H_
