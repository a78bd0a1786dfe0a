#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/ranks/trainer_ranks.h"
#include "tests/storage/io/status_matchers.h"
#include "tidemark/ranks.h"

namespace tidemark {
namespace {

using absl::StatusCode;
using storage::IsOk;
using storage::StatusIs;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

// Thread-safe.
class KeysInMemory final : public RankKeys {
 public:
  absl::Status Set(const std::string& key, const std::string& value) override {
    absl::MutexLock lock(&mutex_);
    if (!failure_.ok()) return failure_;
    values_[key] = value;
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<std::string>> Find(const std::string& key) override {
    absl::MutexLock lock(&mutex_);
    if (!failure_.ok()) return failure_;
    const auto found = values_.find(key);
    return found == values_.end() ? std::nullopt : std::make_optional(found->second);
  }
  void Remove(const std::string& key) override {
    absl::MutexLock lock(&mutex_);
    values_.erase(key);
  }
  size_t size() {
    absl::MutexLock lock(&mutex_);
    return values_.size();
  }
  void FailWith(absl::Status failure) {
    absl::MutexLock lock(&mutex_);
    failure_ = std::move(failure);
  }

 private:
  absl::Mutex mutex_;
  std::map<std::string, std::string> values_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

TEST(GatherOverKeysTest, EachRankGetsWhatEachGaveInEachRound) {
  const auto keys = std::make_shared<KeysInMemory>();
  const auto rounds = OnEachRank(4, [&](int32_t rank) {
    const AllGather gather = GatherOverKeys(keys, "job", rank, 4);
    std::vector<std::vector<std::string>> gathered;
    for (int round = 0; round < 20; ++round) {
      const auto given = gather(std::string(1, static_cast<char>('a' + round)) + std::to_string(rank));
      EXPECT_THAT(given, IsOk());
      gathered.push_back(given.value_or(std::vector<std::string>()));
    }
    return gathered;
  });
  for (const auto& of_rank : rounds) {
    for (size_t round = 0; round < 20; ++round) {
      const std::string letter(1, static_cast<char>('a' + round));
      EXPECT_THAT(of_rank[round], ElementsAre(letter + "0", letter + "1", letter + "2", letter + "3"));
    }
  }
  EXPECT_LE(keys->size(), 8u) << "of the last two rounds";
}

TEST(GatherOverKeysTest, AnyBytesArePassed) {
  const auto keys = std::make_shared<KeysInMemory>();
  const std::string bytes("\0\xff\n", 3);
  const auto given = OnEachRank(2, [&](int32_t rank) { return GatherOverKeys(keys, "", rank, 2)(rank ? bytes : ""); });
  for (const auto& texts : given) EXPECT_THAT(*texts, ElementsAre("", bytes));
}

TEST(GatherOverKeysTest, RanksThatDoNotComeAreNamedOnEveryRank) {
  const auto keys = std::make_shared<KeysInMemory>();
  const auto told = OnEachRank(
      2, [&](int32_t rank) { return GatherOverKeys(keys, "job", rank, 30, absl::Milliseconds(200))("x").status(); });
  EXPECT_THAT(told,
              Each(StatusIs(StatusCode::kDeadlineExceeded,
                            AllOf(HasSubstr("ranks 2, 3"), HasSubstr("21 and 8 more did not come within 200ms")))));
}

TEST(GatherOverKeysTest, AStoreThatFailsIsAnError) {
  const auto keys = std::make_shared<KeysInMemory>();
  keys->FailWith(absl::UnavailableError("the connection is lost"));
  for (const int32_t rank : {0, 1}) {
    EXPECT_THAT(GatherOverKeys(keys, "job", rank, 2)("x"),
                StatusIs(StatusCode::kUnavailable, HasSubstr("the connection is lost")));
  }
}

TEST(GatherOverKeysTest, WhatRank0DidNotSetIsAnError) {
  const auto keys = std::make_shared<KeysInMemory>();
  ASSERT_THAT(keys->Set("job/1/all", "something"), IsOk());
  EXPECT_THAT(GatherOverKeys(keys, "job", 1, 2)("x"),
              StatusIs(StatusCode::kDataLoss, HasSubstr("what rank 0 has gathered")));
}

}  // namespace
}  // namespace tidemark
