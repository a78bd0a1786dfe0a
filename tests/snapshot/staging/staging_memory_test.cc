#include "snapshot/staging/staging_memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {
namespace {

using storage::IsOk;
using testing::StartsWith;

TEST(StagingMemory, IsThereWhenItIsGiven) {
  CopyPool pool(2);
  for (size_t wanted : {size_t{1}, size_t{5000}, size_t{5} << 20}) {
    const size_t bytes = RoundUpToPages(wanted);
    ASSERT_GE(bytes, wanted);
    auto memory = MapStagingMemory(bytes, pool);
    ASSERT_THAT(memory, IsOk());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data.get()) % 4096, 0u);
    std::vector<unsigned char> present(bytes / 4096);
    ASSERT_EQ(mincore(memory->data.get(), bytes, present.data()), 0);
    for (unsigned char page : present) EXPECT_EQ(page & 1, 1);
    std::memset(memory->data.get(), 1, bytes);
  }
}

TEST(StagingMemory, SaysWhyItIsNotLocked) {
  if (storage::kAddressSanitizer || storage::kThreadSanitizer) {
    GTEST_SKIP() << "sanitizers answer mlock themselves, and always yes";
  }
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
