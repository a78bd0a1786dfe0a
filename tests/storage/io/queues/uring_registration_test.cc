#include "storage/io/queues/uring_registration.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/file_system.h"
#include "storage/io/queues/uring_queue.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

constexpr size_t kPage = kDirectAlignment;

// Fresh pages, which end with the object.
class Pages {
 public:
  explicit Pages(size_t count)
      : size_(count * kPage),
        data_(
            static_cast<std::byte*>(mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
  }
  ~Pages() { munmap(data_, size_); }
  std::span<std::byte> span() const { return {data_, size_}; }

 private:
  const size_t size_;
  std::byte* const data_;
};

class UringRegistrationTest : public testing::Test {
 protected:
  void SetUp() override {
    if (io_uring_queue_init(4, &ring_, 0) != 0) GTEST_SKIP() << "no io_uring here";
    created_ = true;
    // As much as any of the tests registers.
    const Pages probe(4 * UringRegistration::kBuffersMax);
    if (auto status = registration_.AddMemory(probe.span()); !status.ok()) GTEST_SKIP() << status;
    registration_.RemoveMemory(probe.span());
  }
  void TearDown() override {
    if (created_) io_uring_queue_exit(&ring_);
  }
  const TestDirectory directory_;
  io_uring ring_ = {};
  bool created_ = false;
  UringRegistration registration_{ring_, 4 * kPage};
};

TEST_F(UringRegistrationTest, KnowsWhatLiesInsideOneBuffer) {
  const Pages memory(6);  // two buffers, of four pages and of two
  const auto bytes = memory.span();
  EXPECT_FALSE(registration_.BufferOf(bytes.first(1)));
  ASSERT_THAT(registration_.AddMemory(bytes), IsOk());
  const auto first = registration_.BufferOf(bytes.first(4 * kPage));
  const auto second = registration_.BufferOf(bytes.subspan(4 * kPage));
  ASSERT_TRUE(first && second);
  EXPECT_NE(*first, *second);
  EXPECT_EQ(registration_.BufferOf(bytes.subspan(kPage, 5)), first);
  EXPECT_FALSE(registration_.BufferOf(bytes.subspan(3 * kPage, 2 * kPage)));
  EXPECT_FALSE(registration_.BufferOf({bytes.data() - 1, 2}));
  registration_.RemoveMemory(bytes);
  EXPECT_FALSE(registration_.BufferOf(bytes.first(1)));
}

TEST_F(UringRegistrationTest, RegistersTheSameMemoryOnce) {
  const Pages memory(4);
  for (unsigned i = 0; i < 2 * UringRegistration::kBuffersMax; ++i) {
    ASSERT_THAT(registration_.AddMemory(memory.span()), IsOk());
  }
  registration_.RemoveMemory(memory.span());
  EXPECT_FALSE(registration_.BufferOf(memory.span()));
}

TEST_F(UringRegistrationTest, KeepsNothingOfMemoryThatItCannotTakeWhole) {
  const Pages memory(4 * UringRegistration::kBuffersMax + 1);
  EXPECT_THAT(registration_.AddMemory(memory.span()),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("64 pieces are registered already")));
  EXPECT_FALSE(registration_.BufferOf(memory.span().first(1)));
  EXPECT_THAT(registration_.AddMemory(memory.span().first(4 * kPage)), IsOk());
}

TEST_F(UringRegistrationTest, KeepsWhatItHadOfMemoryThatItCannotTakeWhole) {
  const Pages memory(8);
  const auto first = memory.span().first(4 * kPage);
  ASSERT_THAT(registration_.AddMemory(first), IsOk());
  ASSERT_EQ(mprotect(memory.span().data() + 4 * kPage, 4 * kPage, PROT_READ), 0);
  EXPECT_THAT(registration_.AddMemory(memory.span()), StatusIs(StatusCode::kInternal, HasSubstr("EFAULT")));
  EXPECT_TRUE(registration_.BufferOf(first));
}

// A later mapping at the address would be written from the old one's pages.
TEST_F(UringRegistrationTest, UsesNoMemoryAnyMoreThatTheKernelDoesNotForget) {
  const Pages memory(8);
  const auto first = memory.span().first(4 * kPage);
  const auto second = memory.span().last(4 * kPage);
  ASSERT_THAT(registration_.AddMemory(memory.span()), IsOk());
  const auto remove_first = [&](std::initializer_list<int> denied) -> std::string {
    if (!DenyUringRegister(denied, ENOMEM)) return "SKIP";
    registration_.RemoveMemory(first);
    const bool used = registration_.BufferOf(first) || registration_.BufferOf(second);
    return fmt::format("{}; {}", used ? "used" : "not used", registration_.AddMemory(second).ToString());
  };
  const std::string whole_table = InChild([&] { return remove_first({IORING_REGISTER_BUFFERS_UPDATE}); });
  if (whole_table == "SKIP") GTEST_SKIP() << "this process may not install a system call filter";
  // The new table is there, and filling it is what is denied here.
  EXPECT_EQ(whole_table,
            "not used; RESOURCE_EXHAUSTED: register 16384 bytes of memory with io_uring: Cannot allocate memory "
            "(ENOMEM)");
  EXPECT_EQ(
      InChild([&] {
        return remove_first({IORING_REGISTER_BUFFERS_UPDATE, IORING_UNREGISTER_BUFFERS});
      }),
      "not used; FAILED_PRECONDITION: register memory with io_uring: the earlier registration could not be removed");
}

TEST_F(UringRegistrationTest, SaysWhyTheKernelTakesNoMemory) {
  const Pages memory(1);
  ASSERT_EQ(mprotect(memory.span().data(), kPage, PROT_READ), 0);
  EXPECT_THAT(registration_.AddMemory(memory.span()),
              StatusIs(StatusCode::kInternal, "register 4096 bytes of memory with io_uring: Bad address (EFAULT)"));
}

TEST_F(UringRegistrationTest, KnowsOneFile) {
  auto file = PosixFileSystem().Create(directory_ / "x", false);
  ASSERT_THAT(file, IsOk());
  EXPECT_FALSE(registration_.IsFile(file->get()));
  EXPECT_FALSE(registration_.IsFile(nullptr));
  EXPECT_THAT(registration_.SetFile(file->get(), -5), StatusIs(StatusCode::kInternal, HasSubstr(directory_ / "x")));
  EXPECT_FALSE(registration_.IsFile(file->get()));
  registration_.RemoveFile();
  ASSERT_THAT(registration_.SetFile(file->get(), 0), IsOk());
  EXPECT_TRUE(registration_.IsFile(file->get()));
  registration_.RemoveFile();
  EXPECT_FALSE(registration_.IsFile(file->get()));
}

TEST_F(UringRegistrationTest, KnowsNoFileAfterItCouldNotTakeAnother) {
  auto file = PosixFileSystem().Create(directory_ / "x", false);
  ASSERT_THAT(file, IsOk());
  ASSERT_THAT(registration_.SetFile(file->get(), 0), IsOk());
  EXPECT_THAT(registration_.SetFile(file->get(), -5), StatusIs(StatusCode::kInternal, HasSubstr(directory_ / "x")));
  EXPECT_FALSE(registration_.IsFile(file->get()));
}

// The file is one end of a pipe: the other end tells when nobody holds it any more.
TEST_F(UringRegistrationTest, ReleasesAFileThatTheKernelDoesNotTakeOutOfTheTable) {
  auto file = PosixFileSystem().Create(directory_ / "x", false);
  ASSERT_THAT(file, IsOk());
  const std::string answer = InChild([&]() -> std::string {
    int pipe_ends[2];
    if (pipe(pipe_ends) != 0) return "no pipe";
    if (absl::Status status = registration_.SetFile(file->get(), pipe_ends[1]); !status.ok()) return status.ToString();
    if (!DenyUringRegister({IORING_REGISTER_FILES_UPDATE}, ENOMEM)) return "SKIP";
    registration_.RemoveFile();
    close(pipe_ends[1]);
    pollfd reader = {.fd = pipe_ends[0], .events = POLLIN, .revents = 0};
    const bool released = poll(&reader, 1, 60'000) == 1 && (reader.revents & POLLHUP) != 0;
    return fmt::format("{}, {}", registration_.IsFile(file->get()) ? "used" : "not used", released ? "let go" : "kept");
  });
  if (answer == "SKIP") GTEST_SKIP() << "this process may not install a system call filter";
  EXPECT_EQ(answer, "not used, let go");
}

// What a limit on locked memory does, for who may not lock more.
TEST(UringRegistration, TransfersAsBeforeWhereMemoryMayNotBeLocked) {
  if (auto plain = UringQueue::Create(4); !plain.ok()) GTEST_SKIP() << plain.status();
  const TestDirectory directory;
  const std::string answer = InChild([&]() -> std::string {
    const auto file = PosixFileSystem().Create(directory / "x", false);
    const rlimit little = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};  // the ring itself may need some
    if (setrlimit(RLIMIT_MEMLOCK, &little) != 0 || !GiveUpRights()) return "SKIP";
    auto queue = UringQueue::Create(4);
    if (!queue.ok()) return queue.status().ToString();
    const Pages memory(512);
    const absl::Status status = (*queue)->RegisterMemory(memory.span());
    (*queue)->Submit({IoRequest::Kind::kWrite, file->get(), 0, memory.span().data(), 4 * kPage, 7});
    return status.ToString() + "; " + (*queue)->Wait().status.ToString();
  });
  if (answer == "SKIP") GTEST_SKIP() << "this process may not limit its memory";
  EXPECT_EQ(answer,
            "RESOURCE_EXHAUSTED: register 2097152 bytes of memory with io_uring: Cannot allocate memory (ENOMEM); OK");
}

}  // namespace
}  // namespace tidemark::storage
