// Logs that are damaged, as a reader finds them: those of a store of the first format, for one.

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/index/log_blocks.h"
#include "storage/index/manifest.h"
#include "tests/storage/index/made_records.h"
#include "tests/storage/io/file_tree.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::HasSubstr;

// Where the type of a log's first record is.
constexpr size_t kTypeAt = 6;
constexpr size_t kLogHeader = 7;

class ManifestDamageTest : public testing::Test {
 protected:
  // Steps 10 and 20 are in the log, 30 is in it too and takes more than a block.
  ManifestDamageTest() {
    auto writer = Manifest::Create(files_, path_, StoreId{{7}});
    EXPECT_THAT(writer, IsOk());
    for (const int64_t step : {10, 20, 30}) {
      StepRecord record = MakeRecord(step, static_cast<uint8_t>(step / 10));
      if (step == 30) record.info.user_metadata = std::string(kLogBlockBytes, 'm');
      EXPECT_THAT(ApplyRecord(**writer, record), IsOk());
      ends_.push_back(Bytes(Find(".log")).size());
    }
  }

  // The name of the newest file that ends or begins so.
  std::string Find(const std::string& part) {
    std::string found;
    const auto entries = files_.ListDirectory(path_);
    EXPECT_THAT(entries, IsOk());
    for (const DirectoryEntry& entry : *entries) {
      if (entry.name.find(part) != std::string::npos) found = std::max(found, entry.name);
    }
    return path_ + "/" + found;
  }
  std::string Bytes(const std::string& file) { return ReadSmallFile(files_, file, 1 << 24).value_or(""); }

  // Changes the byte, or puts it behind the last one.
  void PutByte(const std::string& file, size_t at, char byte) {
    std::string bytes = Bytes(file);
    bytes.resize(std::max(bytes.size(), at + 1));
    bytes[at] = byte;
    WriteInPlace(file, bytes);
  }

  // As a writer does, and not by another file of that name.
  void WriteInPlace(const std::string& file, const std::string& bytes) {
    std::FILE* out = std::fopen(file.c_str(), "r+");
    ASSERT_NE(out, nullptr);
    EXPECT_EQ(std::fwrite(bytes.data(), 1, bytes.size(), out), bytes.size());
    EXPECT_EQ(std::fclose(out), 0);
  }

  static int StepsOf(const Manifest& manifest) {
    int steps = 0;
    EXPECT_THAT(manifest.ForEach([&](const StepRecord&) { return ++steps, true; }), IsOk());
    return steps;
  }

  TestDirectory directory_;
  FileSystem& files_ = PosixFileSystem();
  const std::string path_ = directory_ / "index";
  std::vector<size_t> ends_;  // of the steps' records in the log
};

TEST_F(ManifestDamageTest, AReaderIsToldOfARecordOfAnotherType) {
  for (const std::string& file : {Find(".log"), Find("MANIFEST")}) {
    const std::string sound = Bytes(file);
    const size_t second =
        kLogHeader + static_cast<unsigned char>(sound[4]) + 256 * static_cast<unsigned char>(sound[5]);
    for (const size_t record : {size_t{0}, second}) {
      for (const char type : {0, 5, 6, 7, 8, 9, 100}) {
        SCOPED_TRACE(testing::Message() << file << " record at " << record << " type " << int{type});
        PutByte(file, record + kTypeAt, type);
        const auto reader = Manifest::OpenReadOnly(files_, path_);
        EXPECT_THAT(reader.ok() ? (*reader)->log_damage() : reader.status(),
                    StatusIs(StatusCode::kDataLoss, HasSubstr(file)));
        WriteInPlace(file, sound);
      }
    }
  }
  const auto reader = Manifest::OpenReadOnly(files_, path_);
  ASSERT_THAT(reader, IsOk());
  EXPECT_THAT((*reader)->log_damage(), IsOk());
}

// A file may have its size and not its bytes after power loss.
TEST_F(ManifestDamageTest, AReaderTakesZerosAtTheEndForNothing) {
  const std::string log = Find(".log");
  const std::string sound = Bytes(log);
  for (const size_t zeros : {size_t{1}, size_t{7}, size_t{100}, 3 * kLogBlockBytes}) {
    WriteInPlace(log, sound + std::string(zeros, '\0'));
    const auto reader = Manifest::OpenReadOnly(files_, path_);
    ASSERT_THAT(reader, IsOk()) << zeros;
    EXPECT_THAT((*reader)->log_damage(), IsOk());
    EXPECT_EQ(StepsOf(**reader), 3);
  }
  PutByte(log, sound.size() + 2 * kLogBlockBytes, 'x');
  const auto reader = Manifest::OpenReadOnly(files_, path_);
  ASSERT_THAT(reader, IsOk());
  EXPECT_THAT((*reader)->log_damage(),
              StatusIs(StatusCode::kDataLoss, AllOf(HasSubstr(log), HasSubstr("a record is missing"))));
}

TEST_F(ManifestDamageTest, AReaderHasWhatStandsBeforeTheDamage) {
  const std::string log = Find(".log");
  PutByte(log, ends_[0] + kTypeAt, 5);
  const auto reader = Manifest::OpenReadOnly(files_, path_);
  ASSERT_THAT(reader, IsOk());
  EXPECT_EQ(StepsOf(**reader), 1);
  EXPECT_THAT(
      (*reader)->log_damage(),
      StatusIs(StatusCode::kDataLoss, AllOf(HasSubstr(log), HasSubstr("damaged at byte " + std::to_string(ends_[0])))));
}

// RocksDB no longer needs a log after it has written the log's records to a table.
TEST_F(ManifestDamageTest, ALogThatNoLongerCountsMayBeDamaged) {
  const std::string log = Find(".log");
  std::string old = Bytes(log);
  auto writer = Manifest::Open(files_, path_);
  ASSERT_THAT(writer, IsOk());
  ASSERT_THAT(ApplyRecord(**writer, MakeRecord(40, 4)), IsOk());
  old[kTypeAt] = 5;
  PutFile(files_, log, old);
  const auto reader = Manifest::OpenReadOnly(files_, path_);
  ASSERT_THAT(reader, IsOk());
  EXPECT_EQ(StepsOf(**reader), 4);
  EXPECT_THAT((*reader)->log_damage(), IsOk());
}

}  // namespace
}  // namespace tidemark::storage
