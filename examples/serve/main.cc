// Serves the best checkpoint of a training that may still be running, without its lock:
//
//   serve STORE [SELECTOR [PATTERN...]]
//
// SELECTOR is a selector of checkpoint-inspect: latest, best:validation/loss, tag:paper, 1000. The default is latest.
// The program reads the entries that match, or all, into memory, and prints a line for each.
// model.cc beside this file loads them into a LibTorch module.
// Exit status: 0 loaded, 1 an error, 2 wrong usage.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tidemark/snapshot.h"
#include "tidemark/step_selector.h"
#include "tidemark/store_reader.h"

namespace {

absl::StatusOr<std::shared_ptr<const tidemark::Snapshot>> Load(const std::string& store, const std::string& selector,
                                                               const std::vector<std::string>& patterns) {
  absl::StatusOr<tidemark::StepSelector> step = tidemark::StepSelector::Parse(selector);
  if (!step.ok()) return step.status();
  absl::StatusOr<std::unique_ptr<tidemark::StoreReader>> reader = tidemark::StoreReader::Open(store);
  if (!reader.ok()) return reader.status();
  return (*reader)->Load(*step, patterns);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.empty()) {
    fmt::print(stderr, "usage: serve STORE [SELECTOR [PATTERN...]]\n");
    return 2;
  }
  const std::string selector = arguments.size() > 1 ? arguments[1] : "latest";
  const std::vector<std::string> patterns(arguments.begin() + (arguments.size() > 2 ? 2 : arguments.size()),
                                          arguments.end());
  const auto snapshot = Load(arguments[0], selector, patterns);
  if (!snapshot.ok()) {
    fmt::print(stderr, "serve: {}\n", snapshot.status().ToString());
    return 1;
  }
  fmt::print("step {}\n", (*snapshot)->step());
  for (size_t i = 0; i < (*snapshot)->entries().size(); ++i) {
    const tidemark::EntrySpec& spec = (*snapshot)->entries()[i];
    fmt::print("{} [{}] {} bytes\n", spec.name, fmt::join(spec.shape, ", "), (*snapshot)->bytes(i).size());
  }
  return 0;
}
