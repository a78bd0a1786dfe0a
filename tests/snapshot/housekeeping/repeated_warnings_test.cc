#include "snapshot/housekeeping/repeated_warnings.h"

#include "gtest/gtest.h"

namespace tidemark {
namespace {

TEST(RepeatedWarnings, AreNewOnceAsLongAsTheyLast) {
  RepeatedWarnings complaints;
  complaints.Begin();
  EXPECT_TRUE(complaints.IsNew("the disk is full"));
  EXPECT_FALSE(complaints.IsNew("the disk is full"));
  EXPECT_TRUE(complaints.IsNew("the disk is slow"));
  for (int run = 0; run < 3; ++run) {
    complaints.Begin();
    EXPECT_FALSE(complaints.IsNew("the disk is full"));
  }
}

TEST(RepeatedWarnings, AreNewAgainAfterARunWithoutThem) {
  RepeatedWarnings complaints;
  complaints.Begin();
  EXPECT_TRUE(complaints.IsNew("the disk is full"));
  complaints.Begin();
  complaints.Begin();
  EXPECT_TRUE(complaints.IsNew("the disk is full"));
}

}  // namespace
}  // namespace tidemark
