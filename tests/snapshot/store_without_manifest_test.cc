// StoreReader where the steps come from the shards.

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/manifest/store_identity.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/manifest/test_store.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using storage::TestDirectory;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

TEST(StoreReaderWithoutManifest, NamesTheStepsThatItCouldNotRead) {
  TestDirectory directory;
  const std::string store = directory / "store";
  {
    TestTrainer trainer;
    auto checkpointer = AsyncCheckpointer::Open({.directory = store, .observer = NoWarnings()});
    ASSERT_THAT(checkpointer, IsOk());
    for (const int64_t step : {1, 2}) {
      ASSERT_THAT((*checkpointer)->Save(step, trainer.state), IsOk());
    }
    ASSERT_THAT((*checkpointer)->Close(), IsOk());
  }
  const std::string folder = std::filesystem::path(ShardPath(store, 2)).parent_path().filename();
  std::filesystem::resize_file(ShardPath(store, 2), 4096);
  auto reader = StoreReader::Open(store);
  ASSERT_THAT(reader, IsOk());
  EXPECT_EQ((*reader)->Steps().size(), 2u);
  EXPECT_THAT((*reader)->unread(), IsEmpty()) << "the manifest knows of it";
  std::ofstream(store + "/manifest/CURRENT") << "garbage";
  reader = StoreReader::Open(store);
  ASSERT_THAT(reader, IsOk());
  EXPECT_EQ((*reader)->Steps().size(), 1u);
  EXPECT_THAT((*reader)->unread(), ElementsAre(AllOf(StartsWith(folder + ": "), HasSubstr("shard-00000-of-00001"))));
}

// RocksDB would show what lies in the other tables, as if there had never been more.
TEST(StoreReaderWithoutManifest, IsWhatAManifestIsOfWhichATableIsGone) {
  for (const bool is_cut : {false, true}) {
    SCOPED_TRACE(is_cut ? "cut" : "gone");
    TestDirectory directory;
    const std::string store = directory / "store";
    TestTrainer trainer;
    for (const int64_t step : {1, 2, 3}) {  // what one opening writes to the log is in a table behind the next
      auto checkpointer = AsyncCheckpointer::Open({.directory = store, .observer = NoWarnings()});
      ASSERT_THAT(checkpointer, IsOk());
      ASSERT_THAT((*checkpointer)->Save(step, trainer.state), IsOk());
      ASSERT_THAT((*checkpointer)->Close(), IsOk());
    }
    std::vector<std::string> tables;
    for (const auto& file : std::filesystem::directory_iterator(store + "/manifest")) {
      if (file.path().extension() == ".sst") tables.push_back(file.path());
    }
    ASSERT_GE(tables.size(), 2u);
    for (const std::string& table : tables) {
      SCOPED_TRACE(table);
      TestDirectory copies;
      const std::string copy = copies / "store";
      std::filesystem::copy(store, copy, std::filesystem::copy_options::recursive);
      const std::string rotten = copy + table.substr(store.size());
      if (is_cut) {
        std::filesystem::resize_file(rotten, 5);
      } else {
        std::filesystem::remove(rotten);
      }
      auto reader = StoreReader::Open(copy);
      ASSERT_THAT(reader, IsOk());
      EXPECT_THAT((*reader)->manifest_problem(),
                  StatusIs(absl::StatusCode::kDataLoss, HasSubstr(is_cut ? ".sst" : "(ENOENT)")));
      EXPECT_EQ((*reader)->Steps().size(), 3u);
    }
  }
}

TEST(StoreReaderWithoutManifest, ListsAStepOfMoreShardsThanMayBeOpenAtOnce) {
  constexpr uint32_t kWorldSize = 200;
  TestDirectory directory;
  storage::ShardIdentity identity{.store = storage::StoreId{{7}},
                                  .step = 5,
                                  .attempt = storage::AttemptId{{1}},
                                  .sequence = 1,
                                  .world_size = kWorldSize};
  const storage::StoreLayout layout(directory.path());
  std::filesystem::create_directories(layout.attempt(5, identity.attempt));
  std::ofstream(layout.identity()) << storage::EncodeStoreIdentity(identity.store);
  for (; identity.rank < kWorldSize; ++identity.rank) ASSERT_THAT(storage::WriteShard(layout, identity, 1), IsOk());
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = dup(0);  // descriptors below it are taken
  ASSERT_GE(next, 0);
  close(next);
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(next) + kWorldSize / 2;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  auto reader = StoreReader::OpenUntrusted(directory.path());
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_THAT(reader, IsOk());
  EXPECT_THAT((*reader)->unread(), IsEmpty());
  ASSERT_EQ((*reader)->Steps().size(), 1u);
  EXPECT_EQ((*reader)->Steps()[0].world_size, kWorldSize);
}

}  // namespace
}  // namespace tidemark
