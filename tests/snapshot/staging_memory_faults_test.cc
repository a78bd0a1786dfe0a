// Staging memory that cannot be had: whichever call for it fails, the save says so and touches nothing, or goes on with
// less comfortable memory, the step before can be restored, and the next save has what it needs.

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "snapshot/staging/stager.h"
#include "snapshot/staging/staging_memory.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/system_calls.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using storage::SystemCallFault;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr size_t kBytes = 4 << 20;

// The calls of MapStagingMemory with one thread, in their order.
std::vector<std::string> Calls() {
  CopyPool pool(1);
  const SystemCallFault count;
  EXPECT_THAT(MapStagingMemory(kBytes, pool), IsOk());
  return count.calls();
}

TEST(StagingMemoryFaults, EachCallThatFailsIsReportedOrDoneWithout) {
  const std::vector<std::string> calls = Calls();
  EXPECT_THAT(calls, testing::ElementsAre("mmap", "madvise", "madvise", "mlock2", "madvise"));
  constexpr size_t kPopulate = 4;
  for (size_t n = 0; n < calls.size(); ++n) {
    for (const int error : {ENOMEM, EAGAIN, EPERM, EINVAL}) {
      SCOPED_TRACE(fmt::format("call {}, {}, gets {}", n, calls[n], strerrorname_np(error)));
      CopyPool pool(1);
      SystemCallFault fault(n, error);
      const auto memory = MapStagingMemory(kBytes, pool);
      ASSERT_EQ(fault.failed(), calls[n]);
      // A kernel that does not know how to make pages present has them touched.
      if (calls[n] == "mmap" || (n == kPopulate && error != EINVAL)) {
        EXPECT_THAT(memory, StatusIs(absl::StatusCode::kResourceExhausted,
                                     AllOf(HasSubstr("no 4194304 bytes of memory for staging"),
                                           HasSubstr(strerrordesc_np(error)))));
        continue;
      }
      ASSERT_THAT(memory, IsOk());
      if (calls[n] == "mlock2") {
        EXPECT_THAT(memory->kind, StartsWith("not locked: 4194304 bytes: "));
      }
      std::memset(memory->data.get(), 1, kBytes);
    }
  }
}

// Without a thread for it, the first save touches what was taken before; if that fails, it takes other memory.
TEST(StagingMemoryFaults, MemoryTakenAheadThatCannotBeTouchedIsGivenBack) {
  const std::string outcome = storage::InChild([]() -> std::string {
    const rlimit none = {.rlim_cur = 0, .rlim_max = 0};
    constexpr uid_t kNobody = 65534;  // the limit does not hold for root
    if (geteuid() == 0 && setresuid(kNobody, kNobody, kNobody) != 0) return "SKIP";
    if (setrlimit(RLIMIT_NPROC, &none) != 0) return "SKIP";
    std::vector<float> weight(kBytes / sizeof(float));
    State state;
    state.AddTensor("weight", Dtype::kFloat32, {static_cast<int64_t>(weight.size())}, weight.data());
    Stager stager({});
    if (absl::Status status = state.Refresh(); !status.ok()) return status.ToString();
    stager.PrepareInBackground(state);
    const uint64_t taken = stager.arena().bytes_mapped();
    {
      const SystemCallFault watched;
      stager.PrepareInBackground(state);  // must not touch the memory on this thread
      if (!watched.calls().empty()) return "the trainer's thread has called " + watched.calls().front();
    }
    const SystemCallFault fault("madvise", ENOMEM, /*times=*/1);
    const auto snapshot = stager.Begin(0, state, {}, absl::UnixEpoch());
    if (!snapshot.ok()) return snapshot.status().ToString();
    std::string calls;
    for (const std::string& call : fault.calls()) calls += call + " ";
    return fmt::format("{}: {}of {} bytes {} are left", fault.failed(), calls, taken, stager.arena().bytes_mapped());
  });
  if (outcome == "SKIP") GTEST_SKIP() << "this process may not become another user's";
  EXPECT_EQ(outcome, "madvise: madvise mmap madvise madvise mlock2 madvise of 4194304 bytes 4194304 are left");
}

class SaveWithoutMemoryTest : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> Open(Staging staging) {
    return AsyncCheckpointer::Open({.directory = directory_ / "store",
                                    .staging = staging,
                                    .tuning = {.io = IoBackend::kThreads},
                                    .observer = NoWarnings()});
  }

  const storage::TestDirectory directory_ = storage::TestDirectory::InMemory();
};

// Each save needs memory of another size, so that none finds that of the one before.
TEST_F(SaveWithoutMemoryTest, FailsAndTheNextOneIsWhole) {
  constexpr int64_t kWeights = 600'000;  // more than a huge page
  const bool sanitized = storage::kThreadSanitizer || storage::kAddressSanitizer;
  const size_t one_of = sanitized ? 2 : 1;
  const auto seed = storage::SeedOfCases();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  const size_t first = seed % one_of;
  int64_t step = 0;
  for (const Staging staging : {Staging::kBlocking, Staging::kOverlapped}) {
    auto checkpointer = Open(staging);
    ASSERT_THAT(checkpointer, IsOk());
    for (size_t drawn = first; drawn < 2; drawn += one_of) {
      const int error = drawn == 0 ? ENOMEM : EAGAIN;
      for (int times = 1; times <= 3; ++times) {
        ++step;
        SCOPED_TRACE(fmt::format("step {}", step));
        TestTrainer trainer(kWeights * step);
        trainer.SetTo(step);
        const SystemCallFault fault("mmap", error, static_cast<size_t>(times));
        for (int failures = 0; failures < times; ++failures) {
          EXPECT_THAT((*checkpointer)->Save(step, trainer.state),
                      StatusIs(absl::StatusCode::kResourceExhausted,
                               AllOf(HasSubstr("of memory for staging"), HasSubstr(strerrordesc_np(error)))));
          EXPECT_EQ((*checkpointer)->statistics().staging_bytes_in_use, 0u);
          if (step == 1) continue;
          TestTrainer earlier(kWeights * (step - 1));
          const auto report = (*checkpointer)->RestoreLatest(earlier.state);
          ASSERT_THAT(report, IsOk());
          EXPECT_EQ(report->step, step - 1);
          EXPECT_TRUE(earlier.IsAt(step - 1));
        }
        EXPECT_TRUE(trainer.IsAt(step));
        auto save = (*checkpointer)->Save(step, trainer.state);
        ASSERT_THAT(save, IsOk());
        ASSERT_THAT(save->committed().Wait(), IsOk());
        trainer.SetTo(0);
        ASSERT_THAT((*checkpointer)->RestoreLatest(trainer.state), IsOk());
        EXPECT_TRUE(trainer.IsAt(step));
      }
    }
    EXPECT_THAT((*checkpointer)->Close(), IsOk());
  }
}

}  // namespace
}  // namespace tidemark
