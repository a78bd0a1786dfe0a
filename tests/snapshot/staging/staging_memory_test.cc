#include "snapshot/staging/staging_memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {
namespace {

using storage::IsOk;
using testing::StartsWith;

size_t PresentPages(std::byte* data, size_t bytes) {
  std::vector<unsigned char> present(bytes / 4096);
  EXPECT_EQ(mincore(data, bytes, present.data()), 0);
  return static_cast<size_t>(std::count_if(present.begin(), present.end(), [](auto page) { return (page & 1) == 1; }));
}

TEST(StagingMemory, IsThereWhenItIsGiven) {
  CopyPool pool(2);
  for (size_t wanted : {size_t{1}, size_t{5000}, size_t{5} << 20}) {
    const size_t bytes = RoundUpToPages(wanted);
    ASSERT_GE(bytes, wanted);
    auto memory = MapStagingMemory(bytes, pool);
    ASSERT_THAT(memory, IsOk());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data.get()) % 4096, 0u);
    EXPECT_EQ(PresentPages(memory->data.get(), bytes), bytes / 4096);
    std::memset(memory->data.get(), 1, bytes);
  }
}

TEST(PageToucher, HasTouchedEverythingWhenItIsFinished) {
  for (const bool in_background : {false, true}) {
    CopyPool pool(2);
    const size_t bytes = RoundUpToPages(70 << 20);  // some pieces, and a part of one
    const auto memory = MapUntouchedMemory(bytes);
    ASSERT_THAT(memory, IsOk());
    EXPECT_EQ(PresentPages(memory->data.get(), bytes), 0u);
    PageToucher toucher(memory->data, bytes);
    if (in_background) toucher.Begin();
    ASSERT_THAT(toucher.Finish(pool), IsOk());
    EXPECT_EQ(PresentPages(memory->data.get(), bytes), bytes / 4096);
  }
}

TEST(PageToucher, TouchesInTheBackground) {
  const size_t bytes = RoundUpToPages(70 << 20);
  const auto memory = MapUntouchedMemory(bytes);
  ASSERT_THAT(memory, IsOk());
  PageToucher toucher(memory->data, bytes);
  toucher.Begin();
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  while (PresentPages(memory->data.get(), bytes) < bytes / 4096 && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(PresentPages(memory->data.get(), bytes), bytes / 4096);
}

// It holds the memory itself: the one who asked for it may have given it back.
TEST(PageToucher, EndsInTheMiddle) {
  const size_t bytes = RoundUpToPages(1 << 30);
  auto memory = MapUntouchedMemory(bytes);
  ASSERT_THAT(memory, IsOk());
  auto toucher = std::make_unique<PageToucher>(memory->data, bytes);
  toucher->Begin();
  memory->data.reset();
  toucher.reset();
}

TEST(StagingMemory, SaysWhyItIsNotLocked) {
  const std::string kind = storage::InChild([]() -> std::string {
    const rlimit nothing = {.rlim_cur = 0, .rlim_max = 0};
    if (setrlimit(RLIMIT_MEMLOCK, &nothing) != 0 || !storage::GiveUpRights()) return "SKIP";
    CopyPool pool(1);
    auto memory = MapStagingMemory(RoundUpToPages(1 << 20), pool);
    return memory.ok() ? memory->kind : memory.status().ToString();
  });
  if (kind == "SKIP") GTEST_SKIP() << "this process may not give up its rights";
  EXPECT_THAT(kind, StartsWith("not locked: 1048576 bytes: "));
}

// What a fork would have to copy at once, once the ring has pinned it.
TEST(StagingMemory, IsNotInheritedByChildren) {
  if (storage::kThreadSanitizer) GTEST_SKIP() << "under ThreadSanitizer a child may find something else mapped there";
  CopyPool pool(1);
  auto memory = MapStagingMemory(RoundUpToPages(1 << 20), pool);
  ASSERT_THAT(memory, IsOk());
  const pid_t child = fork();
  if (child == 0) {
    unsigned char present;
    _exit(mincore(memory->data.get(), 4096, &present) == 0 ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tidemark
