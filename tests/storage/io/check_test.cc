#include "storage/io/check.h"

#include "gtest/gtest.h"

namespace tidemark::storage {
namespace {

TEST(Check, DoesNothingWhereItHolds) { Check(true, "two is odd"); }

TEST(CheckDeathTest, EndsTheProcessAndSaysWhy) {
  EXPECT_DEATH(Check(false, "two is odd"), "tidemark: internal error: two is odd");
}

}  // namespace
}  // namespace tidemark::storage
