#include "tools/checkpoint_inspect/checks/phase_summary.h"

#include <vector>

#include "gmock/gmock.h"

namespace tidemark::inspect {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

SavePhase Phase(const char* name, const char* lane, int64_t begin_ms, int64_t ms, int64_t busy_ms, uint64_t bytes) {
  return {.name = name,
          .lane = lane,
          .begin = absl::Milliseconds(begin_ms),
          .duration = absl::Milliseconds(ms),
          .busy = absl::Milliseconds(busy_ms),
          .bytes = bytes};
}

TEST(SummarisePhases, PutsPiecesAndThreadsTogether) {
  const std::vector<SavePhase> phases = {
      Phase("write", "persister", 10, 90, 90, 1000), Phase("encode", "codec 1", 20, 10, 8, 100),
      Phase("encode", "codec 1", 40, 10, 10, 200), Phase("encode", "codec 2", 15, 5, 2, 300),
      Phase("copy", "trainer", 0, 10, 10, 0)};
  const std::vector<PhaseSummary> rows = SummarisePhases(phases);
  ASSERT_THAT(rows, SizeIs(3));
  EXPECT_EQ(rows[0].name, "copy");
  EXPECT_TRUE(rows[0].holds_trainer);
  EXPECT_EQ(rows[1].name, "write");
  EXPECT_FALSE(rows[1].holds_trainer);
  const PhaseSummary& encode = rows[2];
  EXPECT_EQ(encode.name, "encode");
  EXPECT_EQ(encode.lanes, 2u);
  EXPECT_EQ(encode.begin, absl::Milliseconds(15));
  EXPECT_EQ(encode.extent(), absl::Milliseconds(35));
  EXPECT_EQ(encode.busy, absl::Milliseconds(20));
  EXPECT_EQ(encode.bytes, 600u);
  EXPECT_EQ(WholeSave(phases), absl::Milliseconds(100));
  EXPECT_DOUBLE_EQ(encode.ShareOf(absl::Milliseconds(100)), 0.1);
  EXPECT_DOUBLE_EQ(encode.Rate(), 600 / 0.035);
}

TEST(SummarisePhases, HasNoShareOrRateOfNoTime) {
  EXPECT_THAT(SummarisePhases({}), IsEmpty());
  EXPECT_EQ(WholeSave({}), absl::ZeroDuration());
  const std::vector<SavePhase> instant = {Phase("copy", "trainer", 0, 0, 0, 5)};
  const PhaseSummary row = SummarisePhases(instant).at(0);
  EXPECT_EQ(row.ShareOf(WholeSave(instant)), 0);
  EXPECT_EQ(row.Rate(), 0);
}

}  // namespace
}  // namespace tidemark::inspect
