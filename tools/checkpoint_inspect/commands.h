// The commands. Each Add function puts one on the command line; the functions below them run it, print its data through
// the console and return the exit code; errors have been printed when they return.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_COMMANDS_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_COMMANDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/checkpoint_inspect/command_line.h"
#include "tools/checkpoint_inspect/selector.h"

namespace tidemark::inspect {

void AddLs(CommandLine& line);
void AddShow(CommandLine& line);
void AddTrace(CommandLine& line);
void AddHistory(CommandLine& line);
void AddReport(CommandLine& line);
void AddVerify(CommandLine& line);
void AddRepair(CommandLine& line);

// The steps that the store has a record of; deleted and unsaved ones only if `all`.
ExitCode ListSteps(const Invocation& invocation, bool all);

// One step, from its record and the index of its shards.
ExitCode ShowStep(const Invocation& invocation, const Selector& selector);

// What evaluators said, a row for each step and evaluator; or, of the steps that have any of them, these metrics.
ExitCode ShowHistory(const Invocation& invocation, const std::vector<std::string>& metrics);

struct ReportOptions {
  std::string path;  // the page
  bool force = false;
  std::string title;                            // empty: the store's directory
  std::vector<std::string> metrics;             // as MetricChoice; none: all
  int64_t last = 0;                             // steps to show; 0: all
  uint64_t read_bytes_max = uint64_t{2} << 30;  // of tensors
  bool tensors = true;                          // false: reads none
};

// A web page of what is known of the steps and how their tensors change.
ExitCode WriteReport(const Invocation& invocation, const ReportOptions& options);

// Every byte of one step, or of all that were committed.
ExitCode VerifySteps(const Invocation& invocation, const std::optional<Selector>& selector);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_COMMANDS_H_
