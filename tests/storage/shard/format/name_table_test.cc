#include "storage/shard/format/name_table.h"

#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidemark::storage {
namespace {

using testing::Pointee;

TEST(NameMapTest, AnEmptyOneHasNoName) {
  NameMap<int> names;
  EXPECT_EQ(names.Find("a"), nullptr);
  EXPECT_TRUE(names.empty());
  names.Reserve(100);
  EXPECT_EQ(names.Find("a"), nullptr);
}

TEST(NameMapTest, TheFirstValueOfANameStays) {
  NameMap<int> names;
  const auto [first, is_first_new] = names.Add("", 1);
  EXPECT_TRUE(is_first_new);
  EXPECT_EQ(*first, 1);
  const auto [again, is_again_new] = names.Add("", 2);
  EXPECT_FALSE(is_again_new);
  EXPECT_EQ(*again, 1);
  *again = 3;
  EXPECT_THAT(names.Find(""), Pointee(3));
  EXPECT_EQ(names.items().size(), 1u);
}

// As a standard table does, whether or not there is room from the start.
TEST(NameMapTest, FindsWhatWasAddedAndNothingElse) {
  std::mt19937 random(7);
  for (const size_t count : {1, 2, 3, 6, 7, 1000, 50'000}) {
    std::vector<std::string> pool;
    for (size_t i = 0; i < 2 * count; ++i) pool.push_back(fmt::format("layers.{}.weight", i));
    NameMap<size_t> names;
    if (random() % 2 == 0) names.Reserve(count / 2);
    std::unordered_map<std::string, size_t> expected;
    for (size_t i = 0; i < count; ++i) {
      const std::string& name = pool[random() % pool.size()];
      const bool is_new = expected.emplace(name, i).second;
      ASSERT_EQ(names.Add(name, i).second, is_new) << name;
    }
    ASSERT_EQ(names.items().size(), expected.size());
    for (const std::string& name : pool) {
      const auto place = expected.find(name);
      const size_t* const found = names.Find(name);
      ASSERT_EQ(found != nullptr, place != expected.end()) << name;
      if (found == nullptr) continue;
      ASSERT_EQ(*found, place->second);
    }
    size_t before = 0;
    for (const auto& item : names.items()) {
      ASSERT_GE(item.value, before) << "in the order in which they were added";
      before = item.value;
    }
  }
}

TEST(NameSetTest, TellsWhatIsNew) {
  NameSet names;
  EXPECT_TRUE(names.Add("a"));
  EXPECT_FALSE(names.Add("a"));
  EXPECT_TRUE(names.Contains("a"));
  EXPECT_FALSE(names.Contains("b"));
}

}  // namespace
}  // namespace tidemark::storage
