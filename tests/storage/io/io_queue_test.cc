// What every IoQueue promises, held against each of them.

#include <sys/resource.h>
#include <sys/time.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <functional>
#include <map>
#include <ostream>
#include <random>
#include <thread>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/file_system.h"
#include "storage/io/queues/thread_queue.h"
#include "storage/io/queues/uring_queue.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/direct_block.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/simulated_queue.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

struct QueueKind {
  const char* test_name;
  const char* name;
  std::function<absl::StatusOr<std::unique_ptr<IoQueue>>(size_t depth)> create;
};

void PrintTo(const QueueKind& kind, std::ostream* out) { *out << kind.test_name; }

QueueKind UringOf(const char* test_name, size_t setup) {
  return {test_name, "io_uring",
          [setup](size_t depth) { return UringQueue::Create(depth, UringSetups().subspan(setup, 1)); }};
}

class IoQueueTest : public testing::TestWithParam<QueueKind> {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    auto queue = GetParam().create(kDepth);
    if (absl::IsUnavailable(queue.status())) GTEST_SKIP() << queue.status();
    ASSERT_THAT(queue, IsOk());
    queue_ = *std::move(queue);
    file_ = Open("x", false);
  }

  std::unique_ptr<File> Open(const std::string& name, bool direct) {
    auto file = PosixFileSystem().Create(directory_ / name, direct);
    EXPECT_THAT(file, IsOk());
    return *std::move(file);
  }

  IoRequest Read(uint64_t offset, std::span<std::byte> out, uint64_t tag = 0) {
    return {IoRequest::Kind::kRead, file_.get(), offset, out.data(), out.size(), tag};
  }
  IoRequest Write(uint64_t offset, std::span<std::byte> data, uint64_t tag = 0) {
    return {IoRequest::Kind::kWrite, file_.get(), offset, data.data(), data.size(), tag};
  }
  absl::Status Run(const IoRequest& request) {
    queue_->Submit(request);
    return queue_->Wait().status;
  }

  static constexpr size_t kDepth = 8;
  const TestDirectory directory_;
  std::unique_ptr<File> file_;
  std::unique_ptr<IoQueue> queue_;
};

TEST_P(IoQueueTest, SaysWhatItIs) {
  EXPECT_EQ(queue_->name(), GetParam().name);
  EXPECT_EQ(queue_->depth(), kDepth);
  EXPECT_EQ(queue_->in_flight(), 0u);
}

TEST_P(IoQueueTest, HandsBackEveryTagOnce) {
  std::vector<std::byte> data(100);
  for (uint64_t tag = 100; tag < 104; ++tag) queue_->Submit(Write(tag, data, tag));
  EXPECT_EQ(queue_->in_flight(), 4u);
  std::vector<uint64_t> tags;
  while (queue_->in_flight() > 0) {
    const IoCompletion completion = queue_->Wait();
    EXPECT_THAT(completion.status, IsOk());
    tags.push_back(completion.tag);
  }
  EXPECT_THAT(tags, UnorderedElementsAre(100, 101, 102, 103));
}

TEST_P(IoQueueTest, PollsWithoutBlocking) {
  EXPECT_FALSE(queue_->Poll().has_value());
  std::vector<std::byte> data(1 << 20);
  queue_->Submit(Write(0, data, 5));
  std::optional<IoCompletion> completion;
  while (!(completion = queue_->Poll())) std::this_thread::yield();
  EXPECT_EQ(completion->tag, 5u);
  EXPECT_THAT(completion->status, IsOk());
  EXPECT_EQ(queue_->in_flight(), 0u);
  EXPECT_FALSE(queue_->Poll().has_value());
}

TEST_P(IoQueueTest, TransfersNothing) {
  std::byte byte = {};
  EXPECT_THAT(Run(Read(0, {&byte, 0})), IsOk());
  EXPECT_THAT(Run(Write(0, {&byte, 0})), IsOk());
}

// Every request of a round is in a place of its own, so the file and the model must agree whatever order they run in.
class RandomRun {
 public:
  RandomRun(IoQueue& queue, File& file, uint64_t seed) : queue_(queue), file_(file), random_(seed) {}
  ~RandomRun() {
    while (queue_.in_flight() > 0) queue_.Wait();
  }

  void Go(int requests) {
    ASSERT_THAT(file_.Truncate(kBlocks * sizeof(Block)), IsOk());
    for (int i = 0; i < requests; ++i) {
      while (queue_.in_flight() == queue_.depth() || (queue_.in_flight() > 0 && random_() % 4 == 0)) {
        ASSERT_NO_FATAL_FAILURE(Reap());
      }
      SubmitOne(static_cast<uint64_t>(i));
    }
    while (queue_.in_flight() > 0) ASSERT_NO_FATAL_FAILURE(Reap());
    std::vector<Block> contents(kBlocks);
    ASSERT_THAT(file_.ReadAt(0, std::as_writable_bytes(std::span(contents))), IsOk());
    EXPECT_EQ(std::memcmp(contents.data(), model_.data(), kBlocks * sizeof(Block)), 0);
  }

 private:
  static constexpr size_t kBlocks = 64;

  struct Pending {
    IoRequest request;
    size_t block;
    std::vector<Block> memory;
  };

  void SubmitOne(uint64_t tag) {
    size_t block;
    do {
      block = random_() % kBlocks;
    } while (busy_[block]);
    size_t count = 1;
    while (count < 5 && block + count < kBlocks && !busy_[block + count]) ++count;
    for (size_t i = 0; i < count; ++i) busy_[block + i] = true;
    Pending& pending = pending_[tag];
    pending.block = block;
    pending.memory.resize(count);
    size_t skip = 0;
    size_t size = count * sizeof(Block);
    if (!file_.direct()) {
      skip = random_() % sizeof(Block);
      size -= skip + random_() % sizeof(Block) / 2;
      size = std::min(size, count * sizeof(Block) - skip);
    }
    std::byte* const data = pending.memory[0].bytes + skip;
    const uint64_t offset = block * sizeof(Block) + skip;
    const bool write = random_() % 2 == 0;
    pending.request = {write ? IoRequest::Kind::kWrite : IoRequest::Kind::kRead, &file_, offset, data, size, tag};
    if (write) {
      for (size_t i = 0; i < size; ++i) data[i] = static_cast<std::byte>(random_());
      std::memcpy(Model() + offset, data, size);
    }
    queue_.Submit(pending.request);
  }

  void Reap() {
    IoCompletion completion;
    if (std::optional<IoCompletion> polled = queue_.Poll()) {
      completion = *std::move(polled);
    } else {
      completion = queue_.Wait();
    }
    ASSERT_THAT(completion.status, IsOk());
    const auto found = pending_.find(completion.tag);
    ASSERT_NE(found, pending_.end()) << completion.tag;
    const Pending& pending = found->second;
    ASSERT_EQ(std::memcmp(pending.request.data, Model() + pending.request.offset, pending.request.size), 0);
    for (size_t i = 0; i < pending.memory.size(); ++i) busy_[pending.block + i] = false;
    pending_.erase(found);
  }

  std::byte* Model() { return model_[0].bytes; }

  IoQueue& queue_;
  File& file_;
  std::mt19937_64 random_;
  std::vector<Block> model_ = std::vector<Block>(kBlocks);
  bool busy_[kBlocks] = {};
  std::map<uint64_t, Pending> pending_;
};

TEST_P(IoQueueTest, AgreesWithAModelInMemory) {
  for (const bool direct : {false, true}) {
    const auto seed = SeedOfCases();
    SCOPED_TRACE(fmt::format("seed {} direct {}", seed, direct));
    auto file = Open(direct ? "direct" : "buffered", direct);
    RandomRun(*queue_, *file, seed).Go(200);
  }
}

// Requests inside registered memory, across its end and outside of it, with the file registered and not.
TEST_P(IoQueueTest, TransfersTheSameWithWhatIsRegistered) {
  constexpr size_t kBlocks = 8;
  std::vector<Block> memory(kBlocks);
  const auto bytes = std::as_writable_bytes(std::span(memory));
  const auto registered = bytes.first(bytes.size() / 2 + 100);
  auto file = Open("direct", true);
  file_ = std::move(file);
  for (int round = 0; round < 4; ++round) {
    // Threads register nothing, and say so.
    const StatusCode answer = queue_->name() == "io_uring" ? StatusCode::kOk : StatusCode::kUnimplemented;
    if (round == 1) {
      EXPECT_EQ(queue_->RegisterMemory(registered).code(), answer);
    } else if (round == 2) {
      EXPECT_EQ(queue_->RegisterFile(file_.get()).code(), answer);
    }
    if (round == 3) queue_->UnregisterMemory(registered);
    for (size_t i = 0; i < kBlocks; ++i) std::memset(memory[i].bytes, round * 10 + static_cast<int>(i), sizeof(Block));
    const std::vector<std::byte> expected(bytes.begin(), bytes.end());
    for (size_t i = 0; i < kBlocks; ++i) {
      ASSERT_THAT(Run(Write(i * sizeof(Block), bytes.subspan(i * sizeof(Block), sizeof(Block)))), IsOk());
    }
    std::memset(bytes.data(), 0xee, bytes.size());
    for (size_t i = 0; i < kBlocks; i += 2) {
      ASSERT_THAT(Run(Read(i * sizeof(Block), bytes.subspan(i * sizeof(Block), 2 * sizeof(Block)))), IsOk());
    }
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), expected.begin()));
  }
  queue_->UnregisterFile();
  ASSERT_THAT(Run(Write(0, bytes)), IsOk());
}

TEST_P(IoQueueTest, GoesOnWhenSignalsInterrupt) {
  struct sigaction action = {};
  action.sa_handler = [](int) {};  // without SA_RESTART
  ASSERT_EQ(sigaction(SIGALRM, &action, nullptr), 0);
  itimerval often = {.it_interval = {.tv_usec = 200}, .it_value = {.tv_usec = 200}};
  ASSERT_EQ(setitimer(ITIMER_REAL, &often, nullptr), 0);
  const auto seed = SeedOfCases();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  auto file = Open("direct", true);
  RandomRun(*queue_, *file, seed).Go(200);
  often = {};
  ASSERT_EQ(setitimer(ITIMER_REAL, &often, nullptr), 0);
}

TEST_P(IoQueueTest, ReadPastTheEndIsDataLoss) {
  for (const bool direct : {false, true}) {
    file_ = Open(direct ? "direct" : "buffered", direct);
    ASSERT_THAT(file_->Truncate(5000), IsOk());
    std::vector<Block> memory(2);
    EXPECT_THAT(Run(Read(0, std::as_writable_bytes(std::span(memory)))),
                StatusIs(StatusCode::kDataLoss,
                         "read 8192 bytes at 0 of " + file_->path() + ": the file ends after 5000 of them"));
  }
}

TEST_P(IoQueueTest, RefusesOffsetsThatNoFileHas) {
  std::vector<std::byte> memory(100);
  EXPECT_THAT(Run(Read(~uint64_t{0}, memory)), StatusIs(StatusCode::kInvalidArgument, HasSubstr("read 100 bytes at")));
  queue_->Submit(Write(~uint64_t{0}, memory, 3));
  EXPECT_EQ(queue_->in_flight(), 1u);
  std::optional<IoCompletion> completion;
  while (!(completion = queue_->Poll())) std::this_thread::yield();
  EXPECT_EQ(completion->tag, 3u);
  EXPECT_THAT(completion->status, StatusIs(StatusCode::kInvalidArgument, HasSubstr("write 100 bytes at")));
  EXPECT_EQ(*file_->Size(), 0u);
}

TEST_P(IoQueueTest, ErrorOfOneRequestLeavesTheOthersAlone) {
  std::vector<std::byte> data(1000, std::byte{'a'});
  ASSERT_THAT(Run(Write(0, data)), IsOk());
  auto reader = PosixFileSystem().OpenForRead(file_->path(), false);
  ASSERT_THAT(reader, IsOk());
  std::vector<std::byte> out[4];
  for (auto& memory : out) memory.resize(1000);
  IoRequest forbidden = Write(4096, out[2], 2);
  forbidden.file = reader->get();
  queue_->Submit(Read(0, out[0], 0));
  queue_->Submit(Read(500, out[1], 1));
  queue_->Submit(forbidden);
  queue_->Submit(Read(0, out[3], 3));
  std::map<uint64_t, absl::Status> answers;
  while (queue_->in_flight() > 0) {
    IoCompletion completion = queue_->Wait();
    answers[completion.tag] = completion.status;
  }
  EXPECT_THAT(answers[0], IsOk());
  EXPECT_THAT(answers[1], StatusIs(StatusCode::kDataLoss, HasSubstr("ends after 500 of them")));
  EXPECT_THAT(answers[2], StatusIs(StatusCode::kInternal,
                                   "write 1000 bytes at 4096 to " + file_->path() + ": Bad file descriptor (EBADF)"));
  EXPECT_THAT(answers[3], IsOk());
  EXPECT_EQ(out[0], data);
  EXPECT_EQ(out[3], data);
}

// The kernel takes what fits under the limit, and the queue goes on with the rest, which is refused.
TEST_P(IoQueueTest, GoesOnBehindAShortWrite) {
  queue_.reset();  // a process with threads would take their locks into the child
  const std::string answer = InChild([&]() -> std::string {
    auto queue = GetParam().create(kDepth);
    if (!queue.ok()) return queue.status().ToString();
    file_ = *PosixFileSystem().OpenForRewrite(file_->path(), /*direct=*/false);  // the parent's is closed here
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {.rlim_cur = 4096, .rlim_max = 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    std::vector<std::byte> data(10000);
    (*queue)->Submit(Write(0, data));
    return (*queue)->Wait().status.ToString();
  });
  EXPECT_EQ(answer, "RESOURCE_EXHAUSTED: write 10000 bytes at 0 to " + file_->path() + ": File too large (EFBIG)");
  EXPECT_EQ(*file_->Size(), 4096u);
}

TEST_P(IoQueueTest, DestructionWaitsForWhatIsInFlight) {
  for (const bool direct : {false, true}) {
    file_ = Open(direct ? "direct" : "buffered", direct);
    auto queue = GetParam().create(kDepth);
    ASSERT_THAT(queue, IsOk());
    constexpr size_t kBlocks = 128;
    auto data = std::make_unique<std::vector<Block>>(kBlocks * kDepth);
    std::ranges::fill(std::as_writable_bytes(std::span(*data)), std::byte{'z'});
    for (size_t i = 0; i < kDepth; ++i) {
      (*queue)->Submit(
          Write(i * kBlocks * sizeof(Block), std::as_writable_bytes(std::span(*data).subspan(i * kBlocks, kBlocks))));
    }
    queue->reset();
    data.reset();
    std::vector<std::byte> contents(kBlocks * kDepth * sizeof(Block));
    auto reader = PosixFileSystem().OpenForRead(file_->path(), false);
    ASSERT_THAT(reader, IsOk());
    ASSERT_THAT((*reader)->ReadAt(0, contents), IsOk());
    EXPECT_TRUE(std::all_of(contents.begin(), contents.end(), [](std::byte b) { return b == std::byte{'z'}; }));
  }
}

TEST_P(IoQueueTest, BelongsToTheThreadThatSubmitsFirst) {
  std::vector<std::byte> data(1000);
  absl::Status status;
  std::thread([&] { status = Run(Write(0, data)); }).join();
  EXPECT_THAT(status, IsOk());
  queue_.reset();
}

TEST_P(IoQueueTest, SubmitBeyondTheDepthEndsTheProcess) {
  std::vector<std::byte> data(100);
  for (size_t i = 0; i < kDepth; ++i) queue_->Submit(Write(0, data));
  EXPECT_EQ(queue_->in_flight(), kDepth);
  EXPECT_DEATH(queue_->Submit(Write(0, data)), "Submit to an I/O queue that is full");
  while (queue_->in_flight() > 0) EXPECT_THAT(queue_->Wait().status, IsOk());
}

TEST_P(IoQueueTest, WaitForNothingEndsTheProcess) {
  EXPECT_DEATH(queue_->Wait(), "Wait on an I/O queue with nothing in flight");
}

INSTANTIATE_TEST_SUITE_P(
    All, IoQueueTest,
    testing::Values(QueueKind{"Threads", "threads", [](size_t depth) { return ThreadQueue::Create(depth); }},
                    QueueKind{"Simulated", "threads",
                              [](size_t depth) { return std::make_unique<SimulatedQueue>(depth); }},
                    UringOf("UringDeferringTaskrun", 0), UringOf("UringSingleIssuer", 1), UringOf("UringPlain", 2)),
    [](const auto& info) { return std::string(info.param.test_name); });

}  // namespace
}  // namespace tidemark::storage
