#include "snapshot/complaints.h"

#include "gtest/gtest.h"

namespace tidemark {
namespace {

TEST(Complaints, AreNewOnceAsLongAsTheyLast) {
  Complaints complaints;
  complaints.Begin();
  EXPECT_TRUE(complaints.IsNew("the disk is full"));
  EXPECT_FALSE(complaints.IsNew("the disk is full"));
  EXPECT_TRUE(complaints.IsNew("the disk is slow"));
  for (int run = 0; run < 3; ++run) {
    complaints.Begin();
    EXPECT_FALSE(complaints.IsNew("the disk is full"));
  }
}

TEST(Complaints, AreNewAgainAfterARunWithoutThem) {
  Complaints complaints;
  complaints.Begin();
  EXPECT_TRUE(complaints.IsNew("the disk is full"));
  complaints.Begin();
  complaints.Begin();
  EXPECT_TRUE(complaints.IsNew("the disk is full"));
}

}  // namespace
}  // namespace tidemark
