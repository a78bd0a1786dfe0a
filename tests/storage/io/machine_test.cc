#include "storage/io/machine.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidemark::storage {
namespace {

TEST(ValueOf, IsWhatStandsBehindTheFirstLineOfThatName) {
  constexpr const char* kText = "processor\t: 0\nmodel name\t: A CPU: 3 GHz\nmodel name\t: Another\nVmHWM:\t  12 kB\n";
  EXPECT_EQ(ValueOf(kText, "model name"), "A CPU: 3 GHz");
  EXPECT_EQ(ValueOf(kText, "VmHWM"), "12 kB");
}

TEST(ValueOf, IsEmptyWhereThereIsNoSuchLine) {
  EXPECT_EQ(ValueOf("model : A\n", "model name"), "");
  EXPECT_EQ(ValueOf("", "model name"), "");
}

constexpr const char* kMounts =
    "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
    "30 22 0:25 / /data rw,nosuid shared:2 master:1 - xfs /dev/vdb rw\n"
    "31 30 0:26 / /data/fast rw - tmpfs none rw\n"
    "32 22 0:27 / /data rw - btrfs /dev/vdc rw\n"
    "a line that is none\n";

TEST(FileSystemOf, IsThatOfTheInnermostMount) {
  EXPECT_EQ(FileSystemOf(kMounts, "/home/run"), "ext4 on /dev/vda");
  EXPECT_EQ(FileSystemOf(kMounts, "/data/fast/run"), "tmpfs on none");
  EXPECT_EQ(FileSystemOf(kMounts, "/database"), "ext4 on /dev/vda");
}

TEST(FileSystemOf, IsThatOfTheLastOfTwoMountsAtOnePlace) {
  EXPECT_EQ(FileSystemOf(kMounts, "/data/run"), "btrfs on /dev/vdc");
}

TEST(FileSystemOf, IsUnknownWithoutMounts) { EXPECT_EQ(FileSystemOf("", "/"), "unknown"); }

TEST(DescribeMachine, FillsInWhatTheKernelSays) {
  const Machine machine = DescribeMachine("/");
  EXPECT_GT(machine.cores, 0u);
  EXPECT_GT(machine.memory_bytes, 0u);
  EXPECT_THAT(machine.kernel, testing::StartsWith("Linux "));
  EXPECT_THAT(machine.file_system, testing::HasSubstr(" on "));
}

}  // namespace
}  // namespace tidemark::storage
