#include "storage/io/uring_registration.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <cstring>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/file_system.h"
#include "storage/io/uring_queue.h"
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
    const Pages probe(1);
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

// What a limit on locked memory does, for who may not lock more.
TEST(UringRegistration, TransfersAsBeforeWhereMemoryMayNotBeLocked) {
  if (auto plain = UringQueue::Create(4); !plain.ok()) GTEST_SKIP() << plain.status();
  const TestDirectory directory;
  auto file = PosixFileSystem().Create(directory / "x", false);
  ASSERT_THAT(file, IsOk());
  const std::string answer = InChild([&]() -> std::string {
    const rlimit little = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};  // the ring itself may need some
    if (setrlimit(RLIMIT_MEMLOCK, &little) != 0 || !BecomeNobody()) return "SKIP";
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
