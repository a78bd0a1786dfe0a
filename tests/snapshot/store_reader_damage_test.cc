// Readers of a store whose journal is damaged in any byte of any file, is cut, has garbage behind it, or lacks a file:
// one that opens it shows every step, by the journal or by the shards, and says why; one that has read the journal
// before goes on. Only if the last entries are gone as if they had never been does a reader show fewer.
//
// The cases are drawn; make faults-long takes all.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/store/store_layout.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/file_tree.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::OneOf;
using storage::StatusIs;
using storage::TestDirectory;

class StoreReaderDamageTest : public testing::Test {
 protected:
  static constexpr size_t kSteps = 4;

  void SetUp() override {
    auto opened = AsyncCheckpointer::Open({.directory = store_, .observer = NoWarnings()});
    ASSERT_THAT(opened, IsOk());
    TestTrainer trainer(100);
    for (size_t step = 1; step <= kSteps; ++step) {
      SaveOptions options;
      // More than a spare has room for.
      if (step == 2) options.user_metadata = "{\"x\":\"" + std::string(30'000, 'x') + "\"}";
      trainer.SetTo(static_cast<int64_t>(step));
      auto save = (*opened)->Save(static_cast<int64_t>(step), trainer.state, options);
      ASSERT_THAT(save, IsOk());
      ASSERT_THAT(save->committed().Wait(), IsOk());
      ASSERT_THAT((*opened)->Tidy(), IsOk());  // with spares from here on
    }
    ASSERT_THAT((*opened)->Close(), IsOk());
    const std::string journal = storage::StoreLayout(store_).journal();
    for (const auto& [name, bytes] : storage::ReadTree(storage::PosixFileSystem(), journal).files) {
      if (std::filesystem::path(name).filename().string().starts_with("00")) files_.emplace(journal + name, bytes);
    }
    ASSERT_GE(files_.size(), kSteps + 1);
    auto reader = StoreReader::Open(store_);
    ASSERT_THAT(reader, IsOk());
    ASSERT_THAT((*reader)->journal_problem(), IsOk());
    follower_ = *std::move(reader);
  }

  static void Write(const std::string& path, const std::string& bytes) {
    std::ofstream out(path, std::ios::binary);  // in place, as a disk rots
    out << bytes << std::flush;
    ASSERT_TRUE(out.good()) << path;
  }

  // What a reader says that has read the store before, and one that opens it now.
  void LookAt(const std::string& path, const std::string& damaged, const std::string& name) {
    SCOPED_TRACE(name);
    Write(path, damaged);
    ASSERT_THAT(follower_->Refresh(), IsOk());
    EXPECT_THAT(follower_->journal_problem(), IsOk());
    EXPECT_EQ(follower_->Steps().size(), kSteps);
    auto opened = StoreReader::Open(store_);
    ASSERT_THAT(opened, IsOk());
    EXPECT_THAT((*opened)->journal_problem(),
                StatusIs(absl::StatusCode::kDataLoss, testing::HasSubstr("journal entry")));
    EXPECT_EQ((*opened)->Steps().size(), kSteps) << "by their shards";
    Write(path, files_.at(path));
    ++cases_;
  }

  const TestDirectory directory_ = TestDirectory::InMemory();
  const std::string store_ = directory_ / "store";
  std::map<std::string, std::string> files_;  // by path
  std::unique_ptr<StoreReader> follower_;
  const uint32_t seed_ = storage::SeedOfCases();
  std::mt19937_64 random_{seed_};
  int cases_ = 0;
};

TEST_F(StoreReaderDamageTest, ShowsEveryStepWhicheverByteOfTheJournalChanges) {
  SCOPED_TRACE(testing::Message() << "seed " << seed_);
  const size_t one_of = OneOf(7, 97);
  for (const auto& [path, bytes] : files_) {
    for (size_t at = random_() % one_of; at < bytes.size() && !HasFailure(); at += one_of) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(bytes[at] ^ 1 << random_() % 8);
      LookAt(path, damaged, path + " byte " + std::to_string(at));
    }
  }
  std::printf("%d bytes changed\n", cases_);
}

TEST_F(StoreReaderDamageTest, ShowsEveryStepWhateverLengthAnEntryHas) {
  SCOPED_TRACE(testing::Message() << "seed " << seed_);
  const size_t one_of = OneOf(31, 997);
  for (const auto& [path, bytes] : files_) {
    for (size_t length = random_() % one_of; length < bytes.size() && !HasFailure(); length += one_of) {
      LookAt(path, bytes.substr(0, length), path + " cut to " + std::to_string(length));
    }
    for (const size_t more : {1, 512, 70'000}) {
      std::string garbage(more, '\0');
      if (random_() % 2 == 0) std::generate(garbage.begin(), garbage.end(), [&] { return random_() % 256; });
      LookAt(path, bytes + garbage, path + " with " + std::to_string(more) + " bytes behind it");
    }
  }
  std::printf("%d lengths\n", cases_);
}

TEST_F(StoreReaderDamageTest, ShowsEveryStepWhicheverEntryIsGoneButTheLast) {
  for (const auto& [path, bytes] : files_) {
    SCOPED_TRACE(path);
    ASSERT_TRUE(std::filesystem::remove(path));
    auto opened = StoreReader::Open(store_);
    ASSERT_THAT(opened, IsOk());
    if (path == files_.rbegin()->first) {
      EXPECT_THAT((*opened)->journal_problem(), IsOk());
    } else {
      EXPECT_THAT((*opened)->journal_problem(), StatusIs(absl::StatusCode::kDataLoss, testing::_));
      EXPECT_EQ((*opened)->Steps().size(), kSteps);
    }
    Write(path, bytes);
  }
}

}  // namespace
}  // namespace tidemark
