#include "tools/checkpoint_inspect/checks/store_holder.h"

#include <unistd.h>

#include "gmock/gmock.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

TEST(HolderText, NamesTheProgramAndItsPlace) {
  EXPECT_EQ(HolderText(R"({"host":"vm","pid":7040,"program":"char_lm","since":"2026"})"),
            "the trainer (char_lm, pid 7040 on vm)");
  EXPECT_EQ(HolderText(R"({"host":"vm","pid":7,"program":"checkpoint-inspect"})"), "checkpoint-inspect (pid 7 on vm)");
}

TEST(HolderText, TakesANoteThatSaysNothingAsItIs) {
  EXPECT_EQ(HolderText(""), "another process");
  EXPECT_EQ(HolderText("a repair\n"), "another process (a repair)");
  EXPECT_EQ(HolderText(R"({"host":"vm","pid":"x","program":"a"})"),
            R"(another process ({"host":"vm","pid":"x","program":"a"}))");
}

TEST(StoreHolder, IsTheProcessThatHoldsTheLock) {
  const TestStore store;
  store.Save({1});
  EXPECT_EQ(StoreHolder(store.directory()), "");
  const auto trainer = store.OpenCheckpointer();
  const auto before = store.Listing();
  EXPECT_THAT(StoreHolder(store.directory()), testing::HasSubstr("pid " + std::to_string(getpid())));
  EXPECT_EQ(store.Listing(), before);
}

}  // namespace
}  // namespace tidemark::inspect
