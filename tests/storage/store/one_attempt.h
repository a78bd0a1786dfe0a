// A store whose only step, 10, has one shard with the value 42.

#ifndef TIDEMARK_TESTS_STORAGE_STORE_ONE_ATTEMPT_H_
#define TIDEMARK_TESTS_STORAGE_STORE_ONE_ATTEMPT_H_

#include <string>

#include "gtest/gtest.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/store/test_store.h"

namespace tidemark::storage {

class OneAttemptTest : public testing::Test {
 protected:
  void SetUp() override {
    auto store = OpenStore(directory_.path(), &warnings_);
    ASSERT_THAT(store, IsOk());
    identity_ = CommitStep(**store, 10, 42);
    store_id_ = (*store)->id();
  }

  StepFolder folder() const { return {10, identity_.attempt}; }
  std::string shard() const { return layout_.shard(10, identity_.attempt, 0, 1); }

  FileSystem& files_ = PosixFileSystem();
  TestDirectory directory_;
  const StoreLayout layout_{directory_.path()};
  StoreId store_id_;
  ShardIdentity identity_;
  std::string warnings_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_STORE_ONE_ATTEMPT_H_
