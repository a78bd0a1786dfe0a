// For tests of commands that delete steps.

#ifndef TIDEMARK_TESTS_TOOLS_CHECKPOINT_INSPECT_PRUNE_TESTING_H_
#define TIDEMARK_TESTS_TOOLS_CHECKPOINT_INSPECT_PRUNE_TESTING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"
#include "tidemark/store_reader.h"

namespace tidemark::inspect {

// The committed steps, ascending.
inline std::vector<int64_t> Committed(const TestStore& store) {
  std::vector<int64_t> steps;
  const auto reader = StoreReader::Open(store.directory());
  EXPECT_TRUE(reader.ok()) << reader.status();
  for (const StepInfo& info : (*reader)->Steps()) {
    if (info.state == StepState::kCommitted) steps.push_back(info.step);
  }
  return steps;
}

inline Finished Prune(const TestStore& store, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"prune", "--store", store.directory()});
  return RunInspect(arguments);
}

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TESTS_TOOLS_CHECKPOINT_INSPECT_PRUNE_TESTING_H_
