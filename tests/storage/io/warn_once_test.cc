#include "storage/io/warn_once.h"

#include "gtest/gtest.h"

namespace tidemark::storage {
namespace {

TEST(WarnOnce, SaysAProblemOnce) {
  WarnOnce warnings;
  EXPECT_TRUE(warnings.IsNew("the disk is full"));
  EXPECT_FALSE(warnings.IsNew("the disk is full"));
  EXPECT_TRUE(warnings.IsNew("the disk is slow"));
}

TEST(WarnOnce, SaysItAgainOnceItHasEnded) {
  WarnOnce warnings;
  warnings.Ended("the disk is full");
  EXPECT_TRUE(warnings.IsNew("the disk is full"));
  EXPECT_TRUE(warnings.IsNew("the disk is slow"));
  warnings.Ended("the disk is full");
  EXPECT_TRUE(warnings.IsNew("the disk is full"));
  EXPECT_FALSE(warnings.IsNew("the disk is slow"));
  warnings.BeginRun();
  warnings.Ended("the disk is full");
  EXPECT_TRUE(warnings.IsNew("the disk is full"));
}

TEST(WarnOnce, SaysItOnceForAllRunsThatMeetIt) {
  WarnOnce warnings;
  warnings.BeginRun();
  EXPECT_TRUE(warnings.IsNew("the disk is full"));
  for (int run = 0; run < 3; ++run) {
    warnings.BeginRun();
    EXPECT_FALSE(warnings.IsNew("the disk is full"));
    EXPECT_FALSE(warnings.IsNew("the disk is full"));
  }
}

TEST(WarnOnce, SaysItAgainAfterARunWithoutIt) {
  WarnOnce warnings;
  warnings.BeginRun();
  EXPECT_TRUE(warnings.IsNew("the disk is full"));
  warnings.BeginRun();
  warnings.BeginRun();
  EXPECT_TRUE(warnings.IsNew("the disk is full"));
}

}  // namespace
}  // namespace tidemark::storage
