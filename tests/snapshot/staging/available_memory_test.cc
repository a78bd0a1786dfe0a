#include "snapshot/staging/available_memory.h"

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

// A folder with the files of proc/ and sys/ that count.
class AvailableMemoryTest : public testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  uint64_t Available() const { return ReadAvailableMemory(root_).bytes; }

  storage::TestDirectory directory_;
  const std::string root_ = directory_ / "root/";
};

TEST_F(AvailableMemoryTest, IsUnlimitedWhereNothingCanBeRead) {
  EXPECT_EQ(Available(), kUnlimited);
  Write("proc/meminfo", "MemTotal: x\n");
  Write("proc/self/cgroup", "nonsense\n0::\n0::relative\n");
  EXPECT_EQ(Available(), kUnlimited);
}

TEST_F(AvailableMemoryTest, IsThatOfTheMachine) {
  Write("proc/meminfo", "MemTotal:       16 kB\nMemFree:        1 kB\nMemAvailable:   8 kB\n");
  EXPECT_EQ(Available(), 8u * 1024);
  EXPECT_EQ(ReadAvailableMemory(root_).limit, "MemAvailable of " + root_ + "proc/meminfo");
  EXPECT_GT(ReadAvailableMemory().bytes, 0u);
  EXPECT_LT(ReadAvailableMemory().bytes, kUnlimited);
}

TEST_F(AvailableMemoryTest, IsTheLeastOfTheCgroupsUpToTheRoot) {
  Write("proc/meminfo", "MemAvailable: 1000 kB\n");
  Write("proc/self/cgroup", "0::/job/step\n");
  Write("sys/fs/cgroup/job/step/memory.max", "max\n");
  Write("sys/fs/cgroup/job/step/memory.current", "5000\n");
  EXPECT_EQ(Available(), 1000u * 1024);
  Write("sys/fs/cgroup/job/memory.max", "9000\n");
  Write("sys/fs/cgroup/job/memory.current", "8000\n");
  EXPECT_EQ(Available(), 1000u);
  // The cache of files is given back when it is needed.
  Write("sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 300\nactive_file 40\n");
  EXPECT_EQ(Available(), 1340u);
  EXPECT_EQ(ReadAvailableMemory(root_).limit, root_ + "sys/fs/cgroup/job/memory.max");
  // A container sees its own cgroup at the root.
  Write("sys/fs/cgroup/memory.max", "700\n");
  Write("sys/fs/cgroup/memory.current", "800\n");
  EXPECT_EQ(Available(), 0u);
}

TEST_F(AvailableMemoryTest, KnowsCgroupsOfVersion1) {
  Write("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/a/b\n");
  Write("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
  Write("sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "100\n");
  Write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000\n");
  Write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "900\n");
  Write("sys/fs/cgroup/memory/a/memory.stat", "cache 1\ntotal_inactive_file 50\ntotal_active_file 7\n");
  EXPECT_EQ(Available(), 157u);
}

}  // namespace
}  // namespace tidemark
