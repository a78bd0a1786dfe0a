// Which of the small files of a store cannot be read: the pins of steps, what evaluators reported of them, why they
// were deleted, and which store it is. No byte of a step is in them. The manifest has what they say, and only a rebuild
// of it needs them, so that a damaged one is not noticed before.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_NOTE_CHECK_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_NOTE_CHECK_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "tidemark/step_info.h"
#include "tidemark/store_reader.h"

namespace tidemark::inspect {

struct NoteProblem {
  int64_t step = 0;
  std::string_view kind;  // "pin", "report", "report in the inbox", "deletion mark"
  std::string path;
  std::string what;  // with the path, or without
};

// Of the pin and the reports in the folder of the step's attempt. What is not there is no problem, for a live trainer
// moves and removes these files; nor is what a newer version has written. `directory`: the store's, without links.
std::vector<NoteProblem> CheckStepNotes(const std::string& directory, const StepInfo& info);

// The same of the reports in inbox/, which no trainer has taken in yet.
std::vector<NoteProblem> CheckInboxReports(const std::string& directory);

// The same of the deletion marks of all attempts in steps/. They have no check: what is still a JSON object passes.
std::vector<NoteProblem> CheckDeletionMarks(const std::string& directory);

// Those of `steps` that are pinned and in whose folder no pin is. It is written before the record and removed after it,
// so a missing one is lost, or could not be written when the step was saved anew. (A report is put there after
// the record, so that one which is missing says nothing.) `reader` is refreshed where any is missing, for a live
// trainer may just have let go of it. Precondition: the reader's steps come from the manifest.
std::vector<NoteProblem> FindMissingPins(StoreReader& reader, const std::string& directory,
                                         const std::vector<StepInfo>& steps);

// kDataLoss, with the path, where store.json is damaged; ok for anything else, which whoever opened the store has said.
absl::Status CheckIdentity(const std::string& directory);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_NOTE_CHECK_H_
