#include "storage/store/store_layout.h"

#include "gtest/gtest.h"

namespace tidemark::storage {
namespace {

TEST(StoreLayout, KnowsWhatIsAStoresOwn) {
  const StoreLayout layout("/data/run//");
  for (const std::string& path : {layout.lock(), layout.identity(), layout.manifest(), layout.journal(), layout.index(),
                                  layout.steps(), layout.inbox(), layout.leases(), layout.ranks(), layout.retired(),
                                  layout.reserve(), layout.quarantine()}) {
    EXPECT_TRUE(layout.IsOwnName(path.substr(path.rfind('/') + 1))) << path;
  }
  EXPECT_TRUE(layout.IsOwnName("store.json.tmp"));
  EXPECT_EQ(layout.ranks(SessionId{{0xab}}), "/data/run/ranks/ab000000000000000000000000000000");
  for (const char* name : {"", ".", "notes.txt", "lost+found", "manifest.broken-1", "LOCK2", "/LOCK", "steps/"}) {
    EXPECT_FALSE(layout.IsOwnName(name)) << name;
  }
}

TEST(StoreLayout, KnowsWhatMayLieInADirectoryWithoutAStore) {
  const StoreLayout layout("/data/run");
  for (const char* name : {"LOCK", "store.json.tmp", "lost+found", ".snapshot"}) {
    EXPECT_TRUE(layout.MeansNothing(name)) << name;
  }
  for (const char* name :
       {"store.json", "manifest", "journal", "index", "steps", "inbox", "leases", "ranks", "retired.tmk", "disk-reserve", "quarantine", "x"}) {
    EXPECT_FALSE(layout.MeansNothing(name)) << name;
  }
}

}  // namespace
}  // namespace tidemark::storage
