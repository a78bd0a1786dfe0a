// A store of which steps are pinned and tagged, and what its records and its folders say of that.

#ifndef TIDEMARK_TESTS_STORAGE_MANIFEST_STORE_PIN_TESTING_H_
#define TIDEMARK_TESTS_STORAGE_MANIFEST_STORE_PIN_TESTING_H_

#include <memory>
#include <string>
#include <string_view>

#include "gtest/gtest.h"
#include "storage/manifest/pin.h"
#include "storage/manifest/store.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/manifest/test_store.h"

namespace tidemark::storage {

class StorePinTest : public testing::Test {
 protected:
  std::unique_ptr<Store> Open() { return OpenSoundStore(path_, &warnings_); }

  std::string PinOf(const ShardIdentity& identity) {
    return layout_.attempt(identity.step, identity.attempt) + "/pin.json";
  }

  static StepInfo InfoOf(const Store& store, int64_t step) {
    auto record = store.manifest().Find(step);
    EXPECT_THAT(record, IsOk());
    return record.ok() && record->has_value() ? (*record)->info : StepInfo{};
  }

  // What a rebuild would know.
  StepInfo InfoInFolder(const ShardIdentity& identity) {
    StepInfo info{.step = identity.step, .attempt = ToHex(identity.attempt.bytes)};
    EXPECT_THAT(JoinPinOfFolder(
                    PosixFileSystem(), layout_, [](std::string_view) {}, info),
                IsOk());
    return info;
  }

  TestDirectory directory_;
  const std::string path_ = directory_ / "store";
  const StoreLayout layout_{path_};
  std::string warnings_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_MANIFEST_STORE_PIN_TESTING_H_
