// checkpoint-inspect over a directory of fuzzed files (store_image.h), as with --untrusted, after each step was loaded
// as a worker does it: every command that looks ends with an exit code that it may have, and whatever is in names,
// texts and reasons, its output is lines of printable UTF-8.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "fuzz/allocation_count.h"
#include "fuzz/fuzzing.h"
#include "fuzz/inspect_commands.h"
#include "fuzz/store_image.h"
#include "fuzz/temporary_folder.h"
#include "nlohmann/json.hpp"
#include "tidemark/store_reader.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::fuzz {
namespace {

// A stream into memory.
class Stream {
 public:
  Stream() : file_(open_memstream(&text_, &size_)) { Require(file_ != nullptr, "no memory for a stream"); }
  ~Stream() {
    std::fclose(file_);
    std::free(text_);
  }
  std::FILE* file() { return file_; }
  std::string Text() {
    std::fflush(file_);
    return {text_, size_};
  }

 private:
  char* text_ = nullptr;
  size_t size_ = 0;
  std::FILE* const file_;
};

void CheckPrintable(std::string_view text) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    Require(inspect::Escape(line) == line, "an output has what a terminal should not get");
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
}

// `journal` writes a document for each line.
void CheckJson(const InspectCommand& command, std::string_view text) {
  const bool by_line = command.words.front() == "journal";
  while (!text.empty()) {
    const std::string_view document = by_line ? text.substr(0, text.find('\n')) : text;
    Require(nlohmann::json::accept(document), "an output is no JSON");
    text.remove_prefix(std::min(text.size(), document.size() + 1));
  }
}

// `input_bytes`: the size of the input that the store was made from.
void Try(const InspectCommand& command, const std::string& store, size_t input_bytes, bool json) {
  const AllocationBudget budget(input_bytes);
  Stream out;
  Stream err;
  inspect::Console console(out.file(), err.file());
  Run(command, console, store, json);
  Require(console.FlushData().ok(), "an output is not written");
  const std::string text = out.Text();
  CheckPrintable(err.Text());
  CheckPrintable(text);
  if (json) CheckJson(command, text);
}

void TryCommands(const std::string& store, size_t input_bytes, const std::string& out) {
  const auto reader = StoreReader::OpenUntrusted(store);
  if (!reader.ok()) return;
  const std::vector<StepInfo> steps = (*reader)->Steps();  // Load reads them anew
  for (const StepInfo& info : steps) {
    const AllocationBudget budget(input_bytes);
    (*reader)->Load(info.step).status().IgnoreError();
  }
  for (const InspectCommand& command : LookingCommands()) {
    Try(command, store, input_bytes, /*json=*/false);
    if (!std::count(command.words.begin(), command.words.end(), "--plot"))
      Try(command, store, input_bytes, /*json=*/true);
  }
  bool json = false;
  for (const char* step : {"0", "1"}) {
    for (const InspectCommand& command : TensorCommands(step, out)) Try(command, store, input_bytes, json);
    json = true;
  }
}

}  // namespace
}  // namespace tidemark::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tidemark::fuzz;
  const TemporaryFolder folder;
  MakeStore(FuzzInput(data, size), folder.path());
  const TemporaryFolder out;
  TryCommands(folder.path(), size, out.path());
  return 0;
}
