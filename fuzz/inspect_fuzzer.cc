// checkpoint-inspect over a directory of fuzzed files (store_image.h), as with --untrusted: every command ends with an
// exit code that it may have, and whatever is in names, texts and reasons, its output is lines of printable UTF-8.

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "absl/time/time.h"
#include "fuzz/fuzzing.h"
#include "fuzz/store_image.h"
#include "fuzz/temporary_folder.h"
#include "nlohmann/json.hpp"
#include "tools/checkpoint_inspect/commands.h"
#include "tools/checkpoint_inspect/steps.h"
#include "tools/checkpoint_inspect/text.h"

namespace tidemark::fuzz {
namespace {

using inspect::ExitCode;

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

void Try(StoreReader& reader, const std::string& directory, bool json,
         const std::function<ExitCode(const inspect::Invocation&)>& command) {
  Stream out;
  Stream err;
  inspect::Console console(out.file(), err.file());
  const ExitCode code = command({console, reader, directory, json, absl::UnixEpoch() + absl::Hours(1)});
  Require(code != ExitCode::kUsage && code != ExitCode::kNoStore, "a command ends with another's exit code");
  Require(console.FlushData().ok(), "an output is not written");
  const std::string text = out.Text();
  CheckPrintable(err.Text());
  CheckPrintable(text);
  if (!json || text.empty()) return;
  Require(nlohmann::json::accept(text), "an output is no JSON");
}

void TryCommands(const std::string& directory) {
  const absl::StatusOr<std::unique_ptr<StoreReader>> reader = StoreReader::OpenUntrusted(directory);
  if (!reader.ok()) return;
  for (const bool json : {false, true}) {
    const auto run = [&](const auto& command) { Try(**reader, directory, json, command); };
    run([](const inspect::Invocation& invocation) { return ListSteps(invocation, {.all = true}); });
    run([](const inspect::Invocation& invocation) { return ShowHistory(invocation, {}); });
    run([](const inspect::Invocation& invocation) { return ShowHistory(invocation, {"e/loss", "loss"}); });
    run([](const inspect::Invocation& invocation) { return ShowStep(invocation, {}); });
    for (int64_t step = 0; step < 4; ++step) {
      run([step](const inspect::Invocation& invocation) {
        return ShowStep(invocation, {.kind = inspect::Selector::Kind::kStep, .step = step});
      });
    }
    run([](const inspect::Invocation& invocation) { return ShowStatistics(invocation); });
    run([](const inspect::Invocation& invocation) { return VerifySteps(invocation, std::nullopt, {}); });
    run([](const inspect::Invocation& invocation) {
      return VerifySteps(invocation, std::nullopt, {.share = 0.5, .seed = 1});
    });
  }
  for (const bool log : {false, true}) {
    Try(**reader, directory, /*json=*/false,
        [log](const inspect::Invocation& invocation) { return PlotHistory(invocation, {.log = log}); });
  }
}

}  // namespace
}  // namespace tidemark::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tidemark::fuzz;
  const TemporaryFolder folder;
  MakeStore(FuzzInput(data, size), folder.path());
  TryCommands(folder.path());
  return 0;
}
