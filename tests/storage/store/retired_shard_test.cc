#include "storage/store/retired_shard.h"

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

class RetiredShardTest : public testing::Test {
 protected:
  RetiredShardTest() {
    for (const char* name : {"a", "b"}) {
      std::filesystem::create_directory(directory_ / name);
      std::ofstream(directory_ / name + "/notes.json") << "{}";
      std::ofstream(directory_ / name + "/shard-00000-of-00001.tmk") << name;
    }
  }
  std::string Contents(const std::string& path) { return *ReadSmallFile(files_, path, 100); }

  const TestDirectory directory_;
  const StoreLayout layout_{directory_.path()};
  FailingFileSystem files_{PosixFileSystem()};
};

TEST_F(RetiredShardTest, IsTakenFromOneAttemptAndGivenToAnother) {
  RetireShard(files_, layout_, directory_ / "a");
  EXPECT_FALSE(std::filesystem::exists(directory_ / "a/shard-00000-of-00001.tmk"));
  EXPECT_TRUE(std::filesystem::exists(directory_ / "a/notes.json"));
  EXPECT_TRUE(RecycleShard(files_, layout_, directory_ / "new.tmk"));
  EXPECT_EQ(Contents(directory_ / "new.tmk"), "a");
  EXPECT_FALSE(RecycleShard(files_, layout_, directory_ / "more.tmk"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "more.tmk"));
}

TEST_F(RetiredShardTest, IsOneAtMost) {
  RetireShard(files_, layout_, directory_ / "a");
  RetireShard(files_, layout_, directory_ / "b");
  EXPECT_EQ(Contents(layout_.retired()), "b");
  DropRetiredShard(files_, layout_);
  EXPECT_FALSE(std::filesystem::exists(layout_.retired()));
  DropRetiredShard(files_, layout_);
}

TEST_F(RetiredShardTest, StaysWhereItIsWhereItCannotBeTaken) {
  files_.FailOperation("Rename", absl::InternalError("EIO"));
  RetireShard(files_, layout_, directory_ / "a");
  EXPECT_EQ(Contents(directory_ / "a/shard-00000-of-00001.tmk"), "a");
  RetireShard(files_, layout_, directory_ / "nothing here");
  EXPECT_FALSE(std::filesystem::exists(layout_.retired()));
}

}  // namespace
}  // namespace tidemark::storage
