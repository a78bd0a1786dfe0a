#include "snapshot/housekeeping/deletion_gate.h"

#include <atomic>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::HasSubstr;

TEST(DeletionGate, LetsOneDeletionInAtATime) {
  DeletionGate gate;
  {
    const auto deletion = gate.Begin("step 1 is not deleted");
    ASSERT_THAT(deletion.status(), IsOk());
    EXPECT_THAT(gate.Begin("step 2 is not deleted").status(),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("step 2 is not deleted: a callback asked")));
  }
  EXPECT_THAT(gate.Begin("step 2 is not deleted").status(), IsOk());
}

TEST(DeletionGate, LetsNoneInWhileItIsPaused) {
  DeletionGate gate;
  gate.Pause();
  gate.Pause();
  EXPECT_TRUE(gate.paused());
  const auto refused =
      StatusIs(absl::StatusCode::kUnavailable, testing::StrEq("step 1 is not deleted while a restore is running"));
  EXPECT_THAT(gate.Begin("step 1 is not deleted").status(), refused);
  gate.Resume();
  EXPECT_THAT(gate.Begin("step 1 is not deleted").status(), refused) << "another restore runs";
  gate.Resume();
  EXPECT_FALSE(gate.paused());
  EXPECT_THAT(gate.Begin("step 1 is not deleted").status(), IsOk());
}

TEST(DeletionGate, APauseWaitsForTheDeletionThatGoesOn) {
  DeletionGate gate;
  auto deletion = gate.Begin("step 1 is not deleted");
  ASSERT_THAT(deletion.status(), IsOk());
  std::atomic<bool> deleting = true;
  std::thread restore([&] {
    gate.Pause();
    EXPECT_FALSE(deleting);
  });
  while (!gate.paused()) std::this_thread::yield();
  deleting = false;
  deletion->reset();
  restore.join();
}

TEST(DeletionGate, LetsNoneInAfterTheEnd) {
  DeletionGate gate;
  EXPECT_FALSE(gate.ended());
  gate.End();
  EXPECT_TRUE(gate.ended());
  EXPECT_THAT(gate.Begin("step 1 is not deleted").status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, "the checkpointer has been closed"));
}

}  // namespace
}  // namespace tidemark
