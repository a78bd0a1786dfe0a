// What opening a store waits for after a kill: no read of a shard, and no more reads of the rest where there are more
// steps.

#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {
namespace {

using storage::IsOk;

struct Reads {
  size_t calls = 0;  // of any kind
  uint64_t bytes = 0;
  size_t of_steps = 0;  // calls on what is below steps/
};

// Of a trainer that opens a store whose last one was killed, on the thread that opens it. Others may read for as long
// as they like.
Reads OpenAfterAKill(int64_t earlier_steps, int64_t weights) {
  const storage::TestDirectory directory;
  const std::string store = directory / "store";
  EXPECT_EQ(storage::InProgram(KILLED_TRAINER, {store, "0", std::to_string(earlier_steps), std::to_string(weights)}),
            "killed by signal 9");
  Reads reads;
  storage::FailingFileSystem files(storage::PosixFileSystem());
  files.SetRule([&reads, opener = std::this_thread::get_id()](const storage::FailingFileSystem::Call& call) {
    if (std::this_thread::get_id() != opener) return absl::OkStatus();
    ++reads.calls;
    if (call.operation == "ReadAt") reads.bytes += call.bytes;
    if (call.path.find("/steps/") != std::string::npos) ++reads.of_steps;
    return absl::OkStatus();
  });
  auto checkpointer = CheckpointerOnFileSystem::Open(
      Machine(files), {.directory = store, .tuning = {.io = IoBackend::kThreads}, .observer = NoWarnings()});
  files.SetRule(nullptr);
  EXPECT_THAT(checkpointer, IsOk());
  if (!checkpointer.ok()) return reads;
  EXPECT_EQ((*checkpointer)->LatestStep()->step, 2);
  EXPECT_EQ((*checkpointer)->Steps()->size(), static_cast<size_t>(earlier_steps) + 2);
  return reads;
}

TEST(OpeningAfterAKill, ReadsNoShard) {
  const Reads small = OpenAfterAKill(0, 1000);
  const Reads large = OpenAfterAKill(0, 4 << 20);
  EXPECT_EQ(small.of_steps, 0u);
  EXPECT_EQ(large.of_steps, 0u);
  EXPECT_GT(small.bytes, 0u);
  // An entry has 4,096 bytes if there was a spare file for it, which takes a second.
  EXPECT_LE(large.bytes, small.bytes + 65536) << "16 MiB against 4 KB";
}

TEST(OpeningAfterAKill, ReadsABoundedPartOfWhatIsRecorded) {
  constexpr uint64_t kLogBytesMax = 2 << 20;  // of the index that are not in a table yet
  const Reads few = OpenAfterAKill(100, 1000);
  const Reads many = OpenAfterAKill(20'000, 1000);
  SCOPED_TRACE(fmt::format("{} calls and {} bytes against {} and {}", many.calls, many.bytes, few.calls, few.bytes));
  EXPECT_EQ(many.of_steps, 0u);
  EXPECT_LE(many.calls, 2 * few.calls);
  EXPECT_LE(many.bytes, few.bytes + kLogBytesMax) << "all of it is several times as much";
}

}  // namespace
}  // namespace tidemark
