// How a step is written, as its options say: its properties tell.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/posix_file_system.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using storage::TestDirectory;
using testing::HasSubstr;

class CheckpointerWritingTest : public testing::Test {
 protected:
  std::unique_ptr<AsyncCheckpointer> Open(CheckpointerOptions options) {
    options.directory = store_;
    options.observer = NoWarnings();
    auto checkpointer = AsyncCheckpointer::Open(std::move(options));
    EXPECT_THAT(checkpointer, IsOk());
    return checkpointer.ok() ? *std::move(checkpointer) : nullptr;
  }

  void SaveStep(AsyncCheckpointer& checkpointer, int64_t step) {
    trainer_.SetTo(step);
    auto save = checkpointer.Save(step, trainer_.state);
    ASSERT_THAT(save, IsOk());
    ASSERT_THAT(save->committed().Wait(), IsOk());
  }

  std::map<std::string, std::string> PropertiesOf(int64_t step) const {
    auto reader = StoreReader::Open(store_);
    EXPECT_THAT(reader, IsOk());
    auto contents = (*reader)->Contents(step);
    EXPECT_THAT(contents, IsOk());
    return contents.ok() ? contents->properties : std::map<std::string, std::string>();
  }

  const TestDirectory directory_;
  const std::string store_ = directory_ / "store";
  TestTrainer trainer_;
};

// The step's properties say that each option reached the writer.
TEST_F(CheckpointerWritingTest, WorksOnEveryBackendAndCompression) {
  int64_t step = 0;
  std::string automatic;  // what kAuto chose, which says whether the kernel lets us use io_uring
  for (IoBackend io : {IoBackend::kAuto, IoBackend::kThreads, IoBackend::kUring}) {
    for (Compression compression :
         {Compression::kAuto, Compression::kSpace, Compression::kThroughput, Compression::kNone}) {
      if (io == IoBackend::kUring && automatic != "io_uring") {
        EXPECT_THAT(AsyncCheckpointer::Open({.directory = store_, .tuning = {.io = io}}),
                    StatusIs(absl::StatusCode::kUnavailable, HasSubstr("io_uring")));
        continue;
      }
      auto checkpointer = Open({.compression = compression, .tuning = {.chunk_bytes = 65536, .io = io}});
      SaveStep(*checkpointer, ++step);
      trainer_.SetTo(0);
      ASSERT_THAT(checkpointer->RestoreLatest(trainer_.state), IsOk());
      EXPECT_TRUE(trainer_.IsAt(step));
      const auto properties = PropertiesOf(step);
      const std::string& backend = properties.at("io");
      if (io == IoBackend::kAuto) automatic = backend;
      if (io == IoBackend::kThreads) {
        EXPECT_EQ(backend, "threads");
      }
      if (io == IoBackend::kUring) {
        EXPECT_EQ(backend, "io_uring");
      }
      EXPECT_EQ(properties.at("compression"), compression == Compression::kSpace        ? "space"
                                              : compression == Compression::kThroughput ? "throughput"
                                              : compression == Compression::kAuto       ? "auto"
                                                                                        : "none");
      EXPECT_EQ(properties.at("chunk_bytes"), "65536");
    }
  }
}

// Whatever the kernel at hand lets us use.
TEST_F(CheckpointerWritingTest, IsRefusedUringOrTakesThreadsWhereThereIsNone) {
  storage::PosixFiles files([](size_t) { return absl::UnavailableError("no io_uring in this container"); });
  const auto open = [&](IoBackend io) {
    return CheckpointerOnFileSystem::Open(Machine(files),
                                          {.directory = store_, .tuning = {.io = io}, .observer = NoWarnings()});
  };
  EXPECT_THAT(open(IoBackend::kUring),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no io_uring in this container")));
  auto checkpointer = open(IoBackend::kAuto);
  ASSERT_THAT(checkpointer, IsOk());
  SaveStep(**checkpointer, 1);
  EXPECT_EQ(PropertiesOf(1).at("io"), "threads");
  EXPECT_EQ(PropertiesOf(1).at("io_reason"), "no io_uring in this container");
}

TEST_F(CheckpointerWritingTest, NotesHowSavesGiveWay) {
  auto checkpointer =
      Open({.tuning = {.write_bytes_per_second_max = 512 << 20, .background_nice = 3, .background_io_idle = true}});
  SaveStep(*checkpointer, 1);
  const auto properties = PropertiesOf(1);
  EXPECT_EQ(properties.at("nice"), "3");
  EXPECT_EQ(properties.at("idle_io"), "true");
  EXPECT_EQ(properties.at("write_bytes_per_second_max"), std::to_string(512 << 20));
}

}  // namespace
}  // namespace tidemark
