// A store whose only shard is a hostile file.

#ifndef TIDEMARK_TESTS_FUZZ_HOSTILE_STORE_H_
#define TIDEMARK_TESTS_FUZZ_HOSTILE_STORE_H_

#include <filesystem>
#include <optional>
#include <string>

#include "fuzz/hostile_case.h"
#include "fuzz/store_image.h"
#include "gtest/gtest.h"
#include "storage/journal/entry.h"
#include "storage/store/store_identity.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::fuzz {

// The number in a journal that the case is for; nullopt: it is no file of a journal.
inline std::optional<storage::EntryNumber> NumberOf(const HostileCase& hostile) {
  if (hostile.file.ends_with(".far-entry")) return kUint64Max;
  if (hostile.file.ends_with(".entry") || hostile.file.ends_with(".segment")) return 1;
  return std::nullopt;
}

class HostileStore {
 public:
  explicit HostileStore(const HostileCase& shard) : layout_(directory_.path()) {
    std::filesystem::create_directories(std::filesystem::path(path()).parent_path());
    storage::WriteWhole(layout_.identity(), EncodeStoreIdentity(identity_.store));
    EXPECT_TRUE(WriteHostileFile(shard, path()));
  }

  std::string path() const { return layout_.shard(identity_.step, identity_.attempt, 0, 1); }

 protected:
  const storage::TestDirectory directory_;
  const storage::StoreLayout layout_;
  const storage::ShardIdentity identity_ = IdentityAt(kHostilePlace);
};

}  // namespace tidemark::fuzz

#endif  // TIDEMARK_TESTS_FUZZ_HOSTILE_STORE_H_
