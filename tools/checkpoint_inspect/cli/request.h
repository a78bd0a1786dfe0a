// Requests of a person to a store. If no process holds the store, they are carried out here. Otherwise they go to its
// inbox, and its holder carries them out.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_REQUEST_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_REQUEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "storage/manifest/store_request.h"
#include "tools/checkpoint_inspect/cli/command_line.h"
#include "tools/checkpoint_inspect/cli/exit_code.h"
#include "tools/checkpoint_inspect/output/json.h"

namespace tidemark::inspect {

// Of this process about the step. Precondition: it has an attempt.
storage::StoreRequest NewRequest(const StoreReader& reader, storage::StoreRequest::Kind kind, const StepInfo& info,
                                 std::string text);

struct Answer {
  enum class Outcome {
    kDone,        // and survives power loss
    kRefused,     // the step is not what it was, or must stay
    kHandedOver,  // it is in the inbox: the store's holder has not read it yet
  };
  Outcome outcome = Outcome::kDone;
  std::string reason;  // why it is not kDone
};

// One answer for each request. Takes the store's lock where it can be had, and carries out these and what lies in the
// inbox. If another process holds the store, it says so, leaves the requests in the inbox, and waits up to `wait` until
// they have been read. If the store is released meanwhile, it takes the store itself. The reader has been refreshed
// when this returns.
//
// kPermissionDenied: the store is another user's. kInvalidArgument: a text is too long. kCancelled: interrupted.
// kDataLoss: the manifest cannot be read, which is for a repair. After an error what was not taken in has been
// withdrawn.
absl::StatusOr<std::vector<Answer>> Ask(const Invocation& invocation,
                                        const std::vector<storage::StoreRequest>& requests, absl::Duration wait);

// Deletes all committed steps behind `after`, the latest included, as Retention::DiscardAfter does. Takes the store's
// lock. The reader has been refreshed when this returns.
//
// kUnavailable: another process holds the store; the message names it. Else errors of Ask and of DiscardAfter.
absl::Status DiscardAfter(const Invocation& invocation, int64_t after, const std::string& reason);

// kFailure where one is refused, kLocked where one has not been taken in. For an error of Ask see WriteExitCode.
ExitCode AnswersExitCode(const std::vector<Answer>& answers);

// {"request": "pin", "step": 1000, "attempt": "..", "outcome": "done", "reason": ""}
Json ToJson(const storage::StoreRequest& request, const Answer& answer);

// Sends the requests and prints the answers: a line for each request, or `document` with an array "requests". `deeds`:
// the words for the effect of each request; if empty, the words of the request's kind.
ExitCode AskAndPrint(const Invocation& invocation, const std::vector<storage::StoreRequest>& requests,
                     absl::Duration wait, Json document, const std::vector<std::string>& deeds = {});

// --wait: how long Ask waits, in seconds, 5 by default; 0: not at all.
CLI::Option* AddWait(CLI::App* command, absl::Duration& wait);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_REQUEST_H_
