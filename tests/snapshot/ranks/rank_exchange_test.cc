#include "snapshot/ranks/rank_exchange.h"

#include <stdexcept>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/ranks/trainer_ranks.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {
namespace {

using absl::StatusCode;
using storage::IsOk;
using storage::StatusIs;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

// Runs `function` on each of these ranks.
template <typename Function>
auto OnExchanges(int32_t world_size, const Function& function) {
  ThreadGather gather(world_size);
  return OnEachRank(world_size, [&](int32_t rank) {
    RankExchange exchange({.rank = rank, .world_size = world_size, .all_gather = [&, rank](const std::string& bytes) {
                             return gather.Gather(rank, bytes);
                           }});
    return function(rank, exchange);
  });
}

TEST(RankExchangeTest, GathersWhatEachRankGives) {
  const auto gathered = OnExchanges(3, [](int32_t rank, RankExchange& exchange) {
    EXPECT_THAT(exchange.Gather("Open", ""), IsOk());
    return exchange.Gather("Save", std::string(static_cast<size_t>(rank), 'x'));
  });
  for (const auto& texts : gathered) EXPECT_THAT(*texts, ElementsAre("", "x", "xx"));
}

TEST(RankExchangeTest, TheLowestRanksErrorIsThatOfAll) {
  const auto agreed = OnExchanges(4, [](int32_t rank, RankExchange& exchange) {
    EXPECT_THAT(exchange.Agree("Open", absl::OkStatus()), IsOk());
    return exchange.Agree(
        "Open", rank >= 2 ? absl::NotFoundError(std::string("no ") + std::to_string(rank)) : absl::OkStatus());
  });
  EXPECT_THAT(agreed, Each(StatusIs(StatusCode::kNotFound, HasSubstr("rank 2: no 2"))));
}

TEST(RankExchangeTest, WhatRank0GivesCounts) {
  const auto given = OnExchanges(3, [](int32_t rank, RankExchange& exchange) {
    return exchange.FromRank0("Open", rank == 0 ? absl::OkStatus() : absl::InternalError("no"), std::to_string(rank));
  });
  for (const auto& text : given) EXPECT_EQ(text.value_or("none"), "0");
  const auto failed = OnExchanges(3, [](int32_t rank, RankExchange& exchange) {
    return exchange.FromRank0("Open", rank == 0 ? absl::InternalError("no") : absl::OkStatus(), "");
  });
  EXPECT_THAT(failed, Each(StatusIs(StatusCode::kInternal, HasSubstr("no"))));
}

// After that the order of calls is lost.
TEST(RankExchangeTest, RanksInDifferentCallsFailForGood) {
  const auto failed = OnExchanges(3, [](int32_t rank, RankExchange& exchange) {
    const absl::Status first = exchange.Gather(rank == 1 ? "Restore" : "Open", "").status();
    EXPECT_EQ(exchange.Gather("Restore", "").status(), first) << rank;
    return first;
  });
  EXPECT_THAT(failed, Each(StatusIs(StatusCode::kFailedPrecondition,
                                    AllOf(HasSubstr("rank"), HasSubstr("calls Restore"), HasSubstr("calls Open")))));
}

TEST(RankExchangeTest, AFunctionThatReturnsSomethingElseIsAnError) {
  const auto gather_with = [](AllGather all_gather) {
    RankExchange exchange({.rank = 0, .world_size = 2, .all_gather = std::move(all_gather)});
    return exchange.Gather("Open", "x").status();
  };
  const auto internal = [](std::string_view what) { return StatusIs(StatusCode::kInternal, HasSubstr(what)); };
  EXPECT_THAT(gather_with([](const std::string&) -> absl::StatusOr<std::vector<std::string>> {
                throw std::runtime_error("Gloo is gone");
              }),
              internal("Gloo is gone"));
  EXPECT_THAT(gather_with([](const std::string& bytes) { return std::vector<std::string>{bytes}; }),
              internal("1 texts for 2 ranks"));
  EXPECT_THAT(gather_with([](const std::string& bytes) {
                return std::vector<std::string>{bytes, "something"};
              }),
              internal("for rank 1 what no rank gave"));
  EXPECT_THAT(gather_with([](const std::string& bytes) {
                return std::vector<std::string>{bytes, bytes};
              }),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("process 1 of the job says that it is rank 0")));
  EXPECT_THAT(gather_with([](const std::string&) -> absl::StatusOr<std::vector<std::string>> {
                return absl::UnavailableError("a rank has left");
              }),
              StatusIs(StatusCode::kUnavailable, HasSubstr("Open: the ranks could not be asked: a rank has left")));
}

TEST(RankExchangeTest, EveryChangedByteOfAMessageIsFound) {
  std::string sent;
  RankExchange exchange({.rank = 0, .world_size = 1, .all_gather = [&](const std::string& bytes) {
                           sent = bytes;
                           return std::vector<std::string>{bytes};
                         }});
  ASSERT_THAT(exchange.Gather("Open", "something"), IsOk());
  for (size_t i = 0; i < sent.size(); ++i) {
    RankExchange other({.rank = 0, .world_size = 1, .all_gather = [&](const std::string&) {
                          std::string changed = sent;
                          changed[i] = static_cast<char>(changed[i] ^ 1);
                          return std::vector<std::string>{changed};
                        }});
    EXPECT_FALSE(other.Gather("Open", "something").ok()) << i;
  }
}

}  // namespace
}  // namespace tidemark
