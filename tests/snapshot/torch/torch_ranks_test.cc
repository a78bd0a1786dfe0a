// Ranks over the stores of c10d. Each rank is a thread with a client of its own.

#include "tidemark/torch_ranks.h"

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "torch/csrc/distributed/c10d/FileStore.hpp"
#include "torch/csrc/distributed/c10d/HashStore.hpp"
#include "torch/csrc/distributed/c10d/TCPStore.hpp"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::ElementsAre;
using testing::HasSubstr;

using MakeStore = std::function<c10::intrusive_ptr<c10d::Store>(int32_t rank)>;

void ExpectGathers(const MakeStore& make_store) {
  constexpr int32_t kRanks = 3;
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const AllGather gather = GatherOverStore(make_store(rank), "start 1", rank, kRanks);
      for (int round = 0; round < 10; ++round) {
        const std::string own = std::to_string(round) + std::string("\0", 1) + std::to_string(rank);
        const auto given = gather(own);
        ASSERT_THAT(given, IsOk());
        ASSERT_EQ(given->size(), 3u);
        EXPECT_EQ((*given)[static_cast<size_t>(rank)], own);
        EXPECT_EQ(given->front().front(), '0' + round);
        EXPECT_EQ(given->back().back(), '2');
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(TorchRanksTest, GatherOverAHashStore) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  ExpectGathers([&](int32_t) { return store; });
}

TEST(TorchRanksTest, GatherOverAFileStore) {
  const storage::TestDirectory directory;
  const std::string path = directory / "c10d";
  ExpectGathers([&](int32_t) { return c10::make_intrusive<c10d::FileStore>(path, 3); });
}

TEST(TorchRanksTest, GatherOverATcpStore) {
  c10d::TCPStoreOptions options;
  options.port = 0;  // any that is free
  options.isServer = true;
  options.waitWorkers = false;
  const auto server = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  options.port = server->getPort();
  options.isServer = false;
  ExpectGathers([&](int32_t) { return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options); });
}

TEST(TorchRanksTest, AStoreThatThrowsIsAnError) {
  class Broken final : public c10d::HashStore {
   public:
    void set(const std::string&, const std::vector<uint8_t>&) override { throw std::runtime_error("Broken pipe"); }
  };
  EXPECT_THAT(GatherOverStore(c10::make_intrusive<Broken>(), "start 1", 1, 2)("x"),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("Broken pipe")));
}

}  // namespace
}  // namespace tidemark
