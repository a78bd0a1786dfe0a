#include "snapshot/listeners.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/observers.h"

namespace tidemark {
namespace {

using testing::ElementsAre;

// A worker's name, a lease's holder and an evaluator's reason come from other processes.
TEST(Listeners, GiveNoControlCharactersToWhoPrintsLines) {
  std::vector<std::string> lines;
  const auto add = [&](std::string_view line) { lines.emplace_back(line); };
  const Listeners listeners(ObserverOf({.save_line = add, .warning = add}));
  listeners.Warn("evaluator 'a' failed: \x1b[2J\nstep 9: committed");
  listeners.SaveLine("step 1: a skipped: \x1b[2J\nstep 9: committed");
  EXPECT_THAT(lines, ElementsAre("evaluator 'a' failed: \\x1b[2J\\nstep 9: committed",
                                 "step 1: a skipped: \\x1b[2J\\nstep 9: committed"));
}

TEST(Listeners, PrintNoControlCharactersWhereNobodyTakesTheWarning) {
  const auto throws = ObserverOf({.warning = [](std::string_view) { throw std::runtime_error("full"); }});
  for (const auto& observer : {std::shared_ptr<CheckpointObserver>(), ObserverOf({}), throws}) {
    testing::internal::CaptureStderr();
    Listeners(observer).Warn("a\nb\x1b");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "tidemark: a\\nb\\x1b\n");
  }
}

}  // namespace
}  // namespace tidemark
