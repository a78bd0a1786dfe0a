// Which of the small files that belong to steps cannot be read: their pins, and what evaluators reported of them. No
// byte of a step is in them. The manifest has what they say, and only a rebuild of it needs them, so that a damaged one
// is not noticed before.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_NOTE_CHECK_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_NOTE_CHECK_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tidemark/step_info.h"

namespace tidemark::inspect {

struct NoteProblem {
  int64_t step = 0;
  std::string_view kind;  // "pin", "report", "report in the inbox"
  std::string path;
  std::string what;  // with the path, or without
};

// Of the pin and the reports in the folder of the step's attempt. What is not there is no problem, for a live trainer
// moves and removes these files; nor is what a newer version has written. `directory`: the store's, without links.
std::vector<NoteProblem> CheckStepNotes(const std::string& directory, const StepInfo& info);

// The same of the reports in inbox/, which no trainer has taken in yet.
std::vector<NoteProblem> CheckInboxReports(const std::string& directory);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_NOTE_CHECK_H_
