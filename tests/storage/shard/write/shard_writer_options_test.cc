// What a ShardWriter makes of its options, and what it notes of the machine.

#include <sys/resource.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/posix_file_system.h"
#include "storage/shard/write/shard_writer.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

class ShardWriterOptionsTest : public ::testing::Test {
 protected:
  absl::Status Write(const ShardContents& contents) {
    auto writer = ShardWriter::Create(files_, {.chunk_bytes = 65536, .io_depth = 2});
    if (!writer.ok()) return writer.status();
    return (*writer)->Write(path_, TestIdentity(), contents).status();
  }

  TestDirectory directory_;
  const std::string path_ = directory_ / "a.tmk";
  FailingFileSystem files_{PosixFileSystem()};
};

TEST_F(ShardWriterOptionsTest, AllocatesNoMoreThanTheDataNeedsAtWorst) {
  std::mt19937_64 random(18);
  TestContents contents = MixedContents(65536, random);
  ASSERT_THAT(Write(*contents), IsOk());
  // The first step is more than all of this shard.
  const auto operations = files_.operations();
  EXPECT_EQ(std::count(operations.begin(), operations.end(), "Allocate"), 1);
}

TEST_F(ShardWriterOptionsTest, SaysWhereTheFileSystemCannotAllocate) {
  for (const bool possible : {true, false}) {
    if (!possible) files_.FailOperation("Allocate", absl::UnimplementedError("no fallocate"));
    auto writer = ShardWriter::Create(files_, {});
    ASSERT_THAT(writer, IsOk());
    const auto written = (*writer)->Write(directory_ / (possible ? "yes" : "no"), TestIdentity(), {});
    ASSERT_THAT(written, IsOk());
    EXPECT_EQ(written->properties.count("allocate"), possible ? 0u : 1u);
    if (!possible) {
      EXPECT_EQ(written->properties.at("allocate"), "false");
    }
  }
}

TEST_F(ShardWriterOptionsTest, RegistersMemoryAndFileOrSaysWhyNot) {
  std::mt19937_64 random(19);
  const auto lifetime = std::make_shared<int>();
  const AlignedBuffer memory(2 << 20);
  ShardContents contents;
  contents.entries.push_back({.spec = Tensor("w", Dtype::kUint8, {2 << 20}), .bytes = memory.span()});
  std::fill(memory.data(), memory.data() + memory.size(), std::byte{'w'});
  contents.memory = memory.span();
  contents.memory_lifetime = lifetime;
  auto writer = ShardWriter::Create(files_, {.policy = CodecPolicy::kNone});
  ASSERT_THAT(writer, IsOk());
  for (const bool refused : {false, true, false}) {
    files_.RefuseRegistration(refused ? absl::ResourceExhaustedError("no memory may be locked") : absl::OkStatus());
    std::filesystem::remove(path_);
    const auto written = (*writer)->Write(path_, TestIdentity(), contents);
    ASSERT_THAT(written, IsOk());
    const std::string& registered = written->properties.at("io_registered");
    if (refused) {
      EXPECT_EQ(registered, "no memory may be locked");
    } else if (written->properties.at("io") == "threads") {
      EXPECT_EQ(registered, "an I/O queue of threads registers nothing");
    } else {
      // Where the test may not lock memory, the kernel's reason.
      EXPECT_THAT(registered, ::testing::AnyOf("true", ::testing::StartsWith("register ")));
    }
    EXPECT_EQ(ReadWhole(path_).substr(kShardBlockBytes, memory.size()), std::string(memory.size(), 'w'));
  }
}

TEST_F(ShardWriterOptionsTest, KeepsToAByteRate) {
  std::mt19937_64 random(20);
  const auto noise = RandomBytes(8 << 20, random);
  TestContents contents;
  contents.AddAligned(Tensor("noise", Dtype::kUint8, {8 << 20}), noise);
  auto writer = ShardWriter::Create(files_, {.policy = CodecPolicy::kNone, .bytes_per_second_max = 40 << 20});
  ASSERT_THAT(writer, IsOk());
  const auto start = std::chrono::steady_clock::now();
  const auto written = (*writer)->Write(path_, TestIdentity(), *contents);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  ASSERT_THAT(written, IsOk());
  // 0.2 s for 8 MiB, less the burst of 0.1 s and the last write, which only has to begin.
  EXPECT_GE(took.count(), 0.07);
  EXPECT_EQ(written->properties.at("write_bytes_per_second_max"), "41943040");
}

TEST_F(ShardWriterOptionsTest, GivesItsThreadsALowPriority) {
  std::thread([&] {  // which keeps it
    const int before = getpriority(PRIO_PROCESS, 0);
    auto writer = ShardWriter::Create(files_, {.nice = 2, .idle_io = true});
    ASSERT_THAT(writer, IsOk());
    EXPECT_EQ(getpriority(PRIO_PROCESS, 0), before);
    int codec_nice = -1;
    const AlignedBuffer bytes(4096);
    ShardContents contents;
    contents.entries.push_back({.spec = Tensor("w", Dtype::kUint8, {1}), .bytes = bytes.span().first(1)});
    contents.wait_until_ready = [&](size_t, uint64_t) {
      codec_nice = getpriority(PRIO_PROCESS, 0);
      return absl::OkStatus();
    };
    for (const char* name : {"a", "b"}) {
      const auto written = (*writer)->Write(directory_ / name, TestIdentity(), contents);
      ASSERT_THAT(written, IsOk());
      EXPECT_EQ(written->properties.at("nice"), "2");
      EXPECT_EQ(written->properties.at("idle_io"), "true");
      EXPECT_EQ(written->properties.count("priority"), 0u);
      EXPECT_EQ(getpriority(PRIO_PROCESS, 0), std::min(before + 2, 19));
      EXPECT_EQ(codec_nice, std::min(before + 2, 19));
    }
  })
      .join();
}

TEST_F(ShardWriterOptionsTest, NotesThatThePriorityWasRefused) {
  const std::string answer = InChild([&]() -> std::string {
    if (!DenySystemCalls({SYS_setpriority}, EPERM)) return "SKIP";
    auto writer = ShardWriter::Create(PosixFileSystem(), {.io = IoQueueKind::kThreads, .nice = 1});
    if (!writer.ok()) return writer.status().ToString();
    auto written = (*writer)->Write(path_, TestIdentity(), {});
    return written.ok() ? written->properties.at("priority") : written.status().ToString();
  });
  if (answer == "SKIP") GTEST_SKIP() << "this process may not install a system call filter";
  EXPECT_EQ(answer, "set the niceness of a thread: Operation not permitted (EPERM)");
}

TEST_F(ShardWriterOptionsTest, RefusesOptionsOutOfRange) {
  const auto create = [&](const ShardWriterOptions& options) { return ShardWriter::Create(files_, options).status(); };
  EXPECT_THAT(
      create({.chunk_bytes = 5000}),
      StatusIs(StatusCode::kInvalidArgument, "chunk_bytes: expected a multiple of 4096 up to 67108864, found 5000"));
  EXPECT_THAT(create({.codec_threads = 0}),
              StatusIs(StatusCode::kInvalidArgument, "codec_threads: expected 1 to 256, found 0"));
  EXPECT_THAT(create({.codec_threads = 257}),
              StatusIs(StatusCode::kInvalidArgument, "codec_threads: expected 1 to 256, found 257"));
  EXPECT_THAT(create({.nice = 20}), StatusIs(StatusCode::kInvalidArgument, "nice: expected 0 to 19, found 20"));
  EXPECT_THAT(create({.nice = -1}), StatusIs(StatusCode::kInvalidArgument, "nice: expected 0 to 19, found -1"));
  EXPECT_THAT(create({.io_depth = 0}), StatusIs(StatusCode::kInvalidArgument, "io_depth: expected 1 to 256, found 0"));
  EXPECT_THAT(create({.io_depth = size_t{1} << 40}),
              StatusIs(StatusCode::kInvalidArgument, "io_depth: expected 1 to 256, found 1099511627776"));
  EXPECT_THAT(
      create({.bytes_per_second_max = 1000}),
      StatusIs(StatusCode::kInvalidArgument, "bytes_per_second_max: expected 0 or at least 1048576, found 1000"));
  EXPECT_TRUE(files_.calls().empty());
}

TEST_F(ShardWriterOptionsTest, NotesTheLibraryAndWhyThereIsNoUring) {
  PosixFiles files([](size_t) { return absl::UnavailableError("not in this container"); });
  for (const IoQueueKind io : {IoQueueKind::kAuto, IoQueueKind::kThreads}) {
    auto writer = ShardWriter::Create(files, {.io = io});
    ASSERT_THAT(writer, IsOk());
    const std::string path = directory_ / (io == IoQueueKind::kAuto ? "auto.tmk" : "threads.tmk");
    auto written = (*writer)->Write(path, TestIdentity(), {});
    ASSERT_THAT(written, IsOk());
    EXPECT_EQ(written->properties.at("io"), "threads");
    EXPECT_THAT(written->properties.at("library_version"), ::testing::MatchesRegex("[0-9]+[.][0-9]+[.][0-9]+"));
    if (io == IoQueueKind::kAuto) {
      EXPECT_EQ(written->properties.at("io_reason"), "not in this container");
    } else {
      EXPECT_EQ(written->properties.count("io_reason"), 0u);
    }
  }
}

TEST_F(ShardWriterOptionsTest, SaysAtOnceThatThereIsNoIoQueue) {
  files_.FailOperation("NewIoQueue", absl::UnavailableError("no io_uring"));
  EXPECT_THAT(Write({}), StatusIs(StatusCode::kUnavailable, "no io_uring"));
}

}  // namespace
}  // namespace tidemark::storage
