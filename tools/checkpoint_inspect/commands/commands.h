// The commands. Each Add function puts one on the command line; the functions below them run it, print its data through
// the console and return the exit code; errors have been printed when they return.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_COMMANDS_COMMANDS_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_COMMANDS_COMMANDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/checkpoint_inspect/cli/command_line.h"
#include "tools/checkpoint_inspect/cli/selector.h"
#include "tools/checkpoint_inspect/tensors/step_order.h"

namespace tidemark::inspect {

void AddLs(CommandLine& line);
void AddShow(CommandLine& line);
void AddTensors(CommandLine& line);
void AddTrace(CommandLine& line);
void AddHistory(CommandLine& line);
void AddStats(CommandLine& line);
void AddDiff(CommandLine& line);
void AddReport(CommandLine& line);
void AddVerify(CommandLine& line);
void AddPin(CommandLine& line);
void AddUnpin(CommandLine& line);
void AddTag(CommandLine& line);
void AddUntag(CommandLine& line);
void AddPrune(CommandLine& line);
void AddExport(CommandLine& line);
void AddImport(CommandLine& line);
void AddRepair(CommandLine& line);
void AddJournal(CommandLine& line);
void AddDoctor(CommandLine& line);
// Completions for shells and the manual page.
void AddShellPages(CommandLine& line);
// The names in a store that the completions offer.
void AddShellNames(CommandLine& line);

// Which steps ls lists.
struct ListOptions {
  bool all = false;             // deleted and unsaved ones too
  std::optional<int64_t> last;  // of those only so many, the highest; 1 or more
  StepOrder order;
};

// The steps that the store has a record of.
ExitCode ListSteps(const Invocation& invocation, const ListOptions& options);

// A line of JSON for each step that is committed from now on, until a signal comes or nobody reads any more.
ExitCode FollowSteps(const Invocation& invocation);

// One step, from its record and the index of its shards.
ExitCode ShowStep(const Invocation& invocation, const StepSelector& selector);

// What evaluators said, a row for each step and evaluator; or, of the steps that have any of them, these metrics.
ExitCode ShowHistory(const Invocation& invocation, const std::vector<std::string>& metrics);

struct HistoryPlotOptions {
  std::vector<std::string> metrics;  // as MetricChoice, the lowest value the best; empty: those that there are
  bool log = false;                  // values are drawn by their logarithm
};

// Metrics against steps, drawn with characters, one plot under the other.
ExitCode PlotHistory(const Invocation& invocation, const HistoryPlotOptions& options);

// What the store is made of, how fast it grows, and when the disk will be full.
ExitCode ShowStatistics(const Invocation& invocation);

// How much verify reads, and says.
struct ReadData {
  double share = 1;  // 0 to 1, of the chunks
  uint32_t seed = 0;
  bool quiet = false;  // no line for a step in which nothing is wrong; of all steps, the last line sums up
};

// Every byte of one step, or of all that were committed; or a sample of them.
ExitCode VerifySteps(const Invocation& invocation, const std::optional<StepSelector>& selector, const ReadData& read);

struct JournalOptions {
  std::optional<int64_t> step;  // only facts of this step
  uint64_t from = 1;            // the first entry; 1 or more
};

// The entries of the journal, in order.
ExitCode DumpJournal(const Invocation& invocation, const JournalOptions& options);

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

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_COMMANDS_COMMANDS_H_
