// What the commands make of a step in which one rank saved several boxes of one tensor.

#include <cstring>
#include <deque>
#include <filesystem>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/saved_by_ranks.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

using nlohmann::json;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

class SeveralBoxesTest : public testing::Test {
 protected:
  SeveralBoxesTest() { std::iota(numbers_.begin(), numbers_.end(), 1.0F); }

  // Step 1 has the tensor "w" in three boxes, "tied" to it in the same ones, and a text; step 2 has "w" with another
  // number.
  void SaveSteps() {
    std::string warnings;
    const auto store = storage::OpenStore(directory_, &warnings);
    ASSERT_THAT(store, storage::IsOk());
    for (const int64_t step : {1, 2}) {
      std::deque<RankContents> ranks(1);
      const auto bytes = std::as_bytes(std::span(numbers_));
      const Box boxes[] = {{{2, 3}, {4, 5}}, {{0, 0}, {2, 8}}, {{2, 0}, {4, 3}}};
      for (const Box& box : boxes) ranks[0].AddBox(tensor_, bytes, box);
      for (size_t i = 0; step == 1 && i < 3; ++i) {
        EntrySpec tied = tensor_;
        tied.name = "tied";
        tied.box_offset = boxes[i].offset;
        tied.box_extent = boxes[i].extent;
        ranks[0].Tie(tied, i);
      }
      ranks[0].Add({.name = "text", .kind = EntryKind::kString, .dtype = Dtype::kUint8, .shape = {2}},
                   {std::byte{'h'}, std::byte{'i'}});
      ASSERT_THAT(SaveByRanks(**store, step, ranks, storage::kChunkBytesMin), storage::IsOk());
      numbers_[13] += 100;
    }
    numbers_[13] -= 200;
  }

  Finished Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--store", directory_});
    return RunInspect(arguments);
  }
  json RunJson(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--store", directory_});
    return RunInspectJson(arguments);
  }

  const storage::TestDirectory home_;
  const std::string directory_ = home_ / "store";
  const EntrySpec tensor_{.name = "w", .dtype = Dtype::kFloat32, .shape = {6, 8}};
  std::vector<float> numbers_ = std::vector<float>(48);
};

TEST_F(SeveralBoxesTest, TensorsListsEachAndCountsTiedOnesOnce) {
  SaveSteps();
  const json entries = RunJson({"tensors", "1"})["entries"];
  ASSERT_EQ(entries.size(), 7);
  EXPECT_EQ(entries[2]["name"], "w");
  EXPECT_EQ(entries[2]["box"], (json{{"offset", {2, 0}}, {"extent", {4, 3}}}));
  EXPECT_EQ(entries[5]["tied_to"], "w");
  for (const char* glob : {"*", "w", "tied"}) {
    const json tree = RunJson({"tensors", "1", glob, "--tree"})["tree"];
    EXPECT_EQ(tree[0]["bytes"], 48 * 4 + (std::string_view(glob) == "*" ? 2 : 0)) << glob;
  }
  EXPECT_EQ(RunJson({"show", "1"})["entries"].size(), 7);
}

TEST_F(SeveralBoxesTest, ShowNamesTheRanksThatRankZeroWaitedFor) {
  SaveSteps();
  EXPECT_THAT(Run({"show", "1"}).out, Not(HasSubstr("rank 0 waited")));
  const std::string attempt = RunJson({"show", "1"})["step"]["attempt"];
  {
    std::string warnings;
    const auto store = storage::OpenStore(directory_, &warnings);
    ASSERT_THAT(store, storage::IsOk());
    const auto vote = [](std::string lane, absl::Duration took) {
      return SavePhase{
          .name = "vote", .lane = std::move(lane), .begin = absl::Seconds(1), .duration = took, .busy = took};
    };
    (*store)->NotePhases({.step = 1,
                          .attempt = attempt,
                          .phases = {vote("rank 3", absl::Milliseconds(200)), vote("rank 12", absl::Seconds(4))}});
    ASSERT_THAT((*store)->RecordNotedPhases(), storage::IsOk());
  }
  EXPECT_THAT(Run({"show", "1"}).out, HasSubstr("\n  rank 0 waited for rank 12 (4.00 s), rank 3 (200.0 ms)\n"));
}

TEST_F(SeveralBoxesTest, DiffComparesBoxByBox) {
  SaveSteps();
  EXPECT_EQ(Run({"diff", "1", "1"}).exit_code, 0);
  const Finished finished = Run({"--json", "diff", "1", "2", "w"});
  EXPECT_EQ(finished.exit_code, 1) << finished.err;
  const json entries = ParseJson(finished.out)["entries"];
  ASSERT_EQ(entries.size(), 1) << finished.out;
  EXPECT_EQ(entries[0]["difference"], "changed");
  EXPECT_EQ(entries[0]["change"]["largest_at"], json({1, 5}));
}

TEST_F(SeveralBoxesTest, ExportWritesTheWholeTensor) {
  SaveSteps();
  const std::string out = home_ / "w.safetensors";
  const Finished finished = Run({"export", "1", "w", "-o", out});
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  const auto bytes = std::as_bytes(std::span(numbers_));
  EXPECT_THAT(ReadWhole(out), EndsWith(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())));
}

TEST_F(SeveralBoxesTest, VerifyNamesTheDamagedTensor) {
  SaveSteps();
  EXPECT_EQ(Run({"verify"}).exit_code, 0);
  const std::string shard = RunJson({"show", "1"})["shards"][0]["path"];
  WriteWhole(shard, ReadWhole(shard).replace(storage::kShardBlockBytes, 80, std::string(80, '\x7f')));
  const json damage = ParseJson(Run({"--json", "verify", "1"}).out);
  EXPECT_THAT(damage.dump(), HasSubstr(R"("entries":["w","tied"])")) << damage.dump(1);
}

}  // namespace
}  // namespace tidemark::inspect
