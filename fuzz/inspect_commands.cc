#include "fuzz/inspect_commands.h"

#include "fuzz/fuzzing.h"
#include "tools/checkpoint_inspect/commands/commands.h"

namespace tidemark::fuzz {

using inspect::ExitCode;

std::vector<InspectCommand> LookingCommands() {
  return {
      {inspect::AddLs, {"ls", "--all"}},
      {inspect::AddHistory, {"history"}},
      {inspect::AddHistory, {"history", "e/loss", "loss"}},
      {inspect::AddHistory, {"history", "--plot"}},
      {inspect::AddHistory, {"history", "--plot", "--log"}},
      {inspect::AddShow, {"show", "latest"}},
      {inspect::AddShow, {"show", "0"}},
      {inspect::AddShow, {"show", "1"}},
      {inspect::AddStats, {"stats"}},
      {inspect::AddVerify, {"verify"}},
      {inspect::AddVerify, {"verify", "--read-data=50%", "--seed", "1"}},
      {inspect::AddJournal, {"journal"}},
  };
}

std::vector<InspectCommand> TensorCommands(const std::string& step, const std::string& out) {
  return {
      {inspect::AddTensors, {"tensors", step, "--stats", "--sort", "size"}},
      {inspect::AddTensors, {"tensors", step, "--tree", "--stats"}},
      {inspect::AddDiff, {"diff", step, "latest"}},
      {inspect::AddDiff, {"diff", "latest", step, "--structure-only", "--sort", "name"}},
      {inspect::AddReport, {"report", "--output", out + "/report.html", "--force"}},
      {inspect::AddExport, {"export", step, "--output", out + "/step.safetensors", "--force"}},
      {inspect::AddExport, {"export", step, "--output", out + "/step.npz", "--dtype", "float32", "--force"}},
      {inspect::AddTrace, {"trace", "all", "--output", out + "/trace.json", "--force"}},
  };
}

ExitCode Run(const InspectCommand& command, inspect::Console& console, const std::string& store, bool json) {
  inspect::CommandLine line;
  command.add(line);
  std::vector<const char*> words = {"checkpoint-inspect", "--store", store.c_str(), "--untrusted"};
  if (json) words.push_back("--json");
  for (const std::string& word : command.words) words.push_back(word.c_str());
  const ExitCode code = line.RunUnconfined(console, static_cast<int>(words.size()), words.data());
  Require(code != ExitCode::kNoStore, "a command finds no store where there is one");
  Require(code != ExitCode::kUsage || line.trouble() == ExitCode::kTrouble, "a command does not know its own words");
  return code;
}

}  // namespace tidemark::fuzz
