#include "storage/index/log_blocks.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rocksdb/write_batch.h"
#include "storage/index/database.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

using testing::HasSubstr;

constexpr size_t kHeader = 7;

// A log that RocksDB has written: three records, the last one of more than a block.
class LogBlocksTest : public testing::Test {
 protected:
  LogBlocksTest() {
    auto database = Database::Create(PosixFileSystem(), directory_ / "index");
    EXPECT_THAT(database, IsOk());
    for (const size_t bytes : {10, 20, 50'000}) {
      rocksdb::WriteBatch batch;
      batch.Put("key", std::string(bytes, 'v'));
      EXPECT_THAT((*database)->Write(batch), IsOk());
      if (bytes == 10) first_ = Log().size();
      if (bytes == 20) second_ = Log().size();
    }
    log_ = Log();
    block_ = log_.substr(0, kLogBlockBytes);
  }

  std::string Log() {
    const auto entries = PosixFileSystem().ListDirectory(directory_ / "index");
    for (const DirectoryEntry& entry : *entries) {
      if (entry.name.ends_with(".log"))
        return *ReadSmallFile(PosixFileSystem(), directory_ / "index/" + entry.name, 1 << 20);
    }
    return "";
  }

  TestDirectory directory_;
  size_t first_ = 0;   // where the first record ends
  size_t second_ = 0;  // where the second one does
  std::string log_;
  std::string block_;  // the first one
};

TEST_F(LogBlocksTest, RecordsAsTheyWereWrittenAreSound) {
  for (size_t at = 0; at < log_.size(); at += kLogBlockBytes) {
    const std::string block = log_.substr(at, kLogBlockBytes);
    const SoundRecords sound = FindSoundRecords(block, kLogBlockBytes);
    EXPECT_EQ(sound.bytes, block.size());
    EXPECT_EQ(sound.damage, "");
  }
  // From a record in the middle of the block on.
  EXPECT_EQ(FindSoundRecords(block_.substr(first_), kLogBlockBytes - first_).bytes, kLogBlockBytes - first_);
}

TEST_F(LogBlocksTest, ARecordThatIsNotAllThereIsNotDamaged) {
  for (size_t size = 0; size < block_.size(); ++size) {
    const SoundRecords sound = FindSoundRecords(block_.substr(0, size), kLogBlockBytes);
    EXPECT_EQ(sound.bytes, size < first_ ? 0 : size < second_ ? first_ : second_) << size;
    EXPECT_EQ(sound.damage, "") << size;
  }
}

TEST_F(LogBlocksTest, FindsEveryFlippedBit) {
  for (size_t bit = 0; bit < 8 * second_; ++bit) {
    std::string changed = block_;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ 1 << bit % 8);
    const SoundRecords sound = FindSoundRecords(changed, kLogBlockBytes);
    EXPECT_EQ(sound.bytes, bit / 8 < first_ ? 0 : first_) << bit;
    EXPECT_NE(sound.damage, "") << bit;
  }
}

TEST_F(LogBlocksTest, SaysWhatIsWrong) {
  const auto damage = [&](size_t at, char byte) {
    std::string changed = block_;
    changed[first_ + at] = byte;
    return FindSoundRecords(changed, kLogBlockBytes).damage;
  };
  for (const char type : {5, 6, 7, 8}) EXPECT_EQ(damage(6, type), "a record's type is " + std::to_string(type));
  EXPECT_THAT(damage(5, '\xff'), HasSubstr("does not fit into its block"));
  EXPECT_THAT(damage(kHeader, '!'), testing::MatchesRegex("the checksum of a record of [0-9]+ bytes is wrong"));
}

TEST_F(LogBlocksTest, EndsAtZeros) {
  const SoundRecords sound = FindSoundRecords(block_.substr(0, first_) + std::string(100, '\0'), kLogBlockBytes);
  EXPECT_EQ(sound.bytes, first_);
  EXPECT_EQ(sound.damage, "");
}

}  // namespace
}  // namespace tidemark::storage
