#include "tests/crash/crash_names.h"

#include "gtest/gtest.h"

namespace tidemark::crash {
namespace {

TEST(CrashNames, GiveTheSameDisastersAgain) {
  for (const char* name : {"0", "41", "41!", "41-38", "41-38-40:ff", "41-38-40:ff/17-16", "41-3:8000000000000000!/5",
                           "41!17", "41-3!~ff/5", "41!x", "41!=", "41!=/5-4", "41/5!"}) {
    const auto disasters = ParseDisasters(name);
    ASSERT_TRUE(disasters.has_value()) << name;
    std::string again;
    for (const Disaster& disaster : *disasters) again += (again.empty() ? "" : "/") + NameOf(disaster);
    EXPECT_EQ(again, name);
  }
}

TEST(CrashNames, SayWhatIsLost) {
  const auto disasters = ParseDisasters("41-38-40:f0!");
  ASSERT_TRUE(disasters.has_value());
  ASSERT_EQ(disasters->size(), 1u);
  const Disaster& disaster = disasters->front();
  EXPECT_EQ(disaster.index, IndexFate::kLost);
  EXPECT_EQ(disaster.crash.prefix, 41u);
  ASSERT_EQ(disaster.crash.lost.size(), 2u);
  EXPECT_EQ(disaster.crash.lost[0].index, 38u);
  EXPECT_EQ(disaster.crash.lost[0].sector_mask, ~uint64_t{0});
  EXPECT_EQ(disaster.crash.lost[1].sector_mask, 0xf0u);
}

TEST(CrashNames, RefusesOtherText) {
  for (const char* name : {"", "x", "41-", "41-x", "41:ff", "41-3:", "41-3:x", "41-3:1:2", "41/", "41--3", "41!!",
                           "41!y", "41!~", "41!~g", "41!1!", "!", "41!x-3", "41-3!=", "41!=="}) {
    EXPECT_FALSE(ParseDisasters(name).has_value()) << name;
  }
}

}  // namespace
}  // namespace tidemark::crash
