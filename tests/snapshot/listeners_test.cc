#include "snapshot/listeners.h"

#include <stdexcept>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidemark {
namespace {

using testing::ElementsAre;

// A worker's name, a lease's holder and an evaluator's reason come from other processes.
TEST(Listeners, GiveNoControlCharactersToWhoPrintsLines) {
  std::vector<std::string> lines;
  CheckpointerOptions options;
  options.on_warning = [&](std::string_view line) { lines.emplace_back(line); };
  options.on_save_line = options.on_warning;
  const Listeners listeners(options);
  listeners.Warn("evaluator 'a' failed: \x1b[2J\nstep 9: committed");
  listeners.SaveLine("step 1: a skipped: \x1b[2J\nstep 9: committed");
  EXPECT_THAT(lines, ElementsAre("evaluator 'a' failed: \\x1b[2J\\nstep 9: committed",
                                 "step 1: a skipped: \\x1b[2J\\nstep 9: committed"));
}

TEST(Listeners, PrintNoControlCharactersWhereNobodyTakesTheWarning) {
  CheckpointerOptions options;
  for (const bool throws : {false, true}) {
    if (throws) options.on_warning = [](std::string_view) { throw std::runtime_error("full"); };
    testing::internal::CaptureStderr();
    Listeners(options).Warn("a\nb\x1b");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "tidemark: a\\nb\\x1b\n");
  }
}

}  // namespace
}  // namespace tidemark
