#include "snapshot/housekeeping/retry_warnings.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/observers.h"

namespace tidemark {
namespace {

using testing::ElementsAre;

TEST(RetryWarnings, AreOfTheFirstFailureAfterASuccess) {
  std::vector<std::string> lines;
  const Listeners listeners(ObserverOf({.warning = [&](std::string_view line) { lines.emplace_back(line); }}));
  RetryWarnings warnings(listeners);
  warnings.Note("old steps cannot be deleted", absl::OkStatus());
  for (int i = 0; i < 2; ++i) {
    warnings.Note("old steps cannot be deleted", absl::InternalError("EIO"));
    warnings.Note("evaluations cannot be recorded", absl::ResourceExhaustedError("ENOSPC"));
  }
  EXPECT_THAT(lines, ElementsAre("old steps cannot be deleted, which is tried again until it works: EIO",
                                 "evaluations cannot be recorded, which is tried again until it works: ENOSPC"));
  lines.clear();
  warnings.Note("old steps cannot be deleted", absl::OkStatus());
  warnings.Note("old steps cannot be deleted", absl::InternalError("EBUSY"));
  warnings.Note("evaluations cannot be recorded", absl::ResourceExhaustedError("ENOSPC"));
  EXPECT_THAT(lines, ElementsAre("old steps cannot be deleted, which is tried again until it works: EBUSY"));
}

}  // namespace
}  // namespace tidemark
