#include "tests/storage/io/failing_file_system.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::ElementsAre;

const absl::Status kFull = absl::ResourceExhaustedError("full");

// One call of each kind; the first error.
absl::Status UseEverything(FileSystem& files, const std::string& directory) {
  const std::string path = directory + "/x";
  absl::Status status = files.CreateDirectory(directory);
  if (!status.ok()) return status;
  auto file = files.Create(path, false);
  if (!file.ok()) return file.status();
  std::byte bytes[4] = {};
  for (const auto& call : std::initializer_list<std::function<absl::Status()>>{
           [&] { return (*file)->Allocate(8); },
           [&] { return (*file)->Truncate(4); },
           [&] { return (*file)->WriteAt(0, bytes); },
           [&] { return (*file)->ReadAt(0, bytes); },
           [&] { return (*file)->Size().status(); },
           [&] { return (*file)->SyncData(); },
       }) {
    if (status = call(); !status.ok()) return status;
  }
  auto queue = files.NewIoQueue(IoQueueKind::kThreads, 2);
  if (!queue.ok()) return queue.status();
  (*queue)->Submit({.kind = IoRequest::Kind::kWrite, .file = file->get(), .data = bytes, .size = 4});
  if (status = (*queue)->Wait().status; !status.ok()) return status;
  (*queue)->Submit({.kind = IoRequest::Kind::kRead, .file = file->get(), .data = bytes, .size = 4});
  if (status = (*queue)->Wait().status; !status.ok()) return status;
  for (const auto& call : std::initializer_list<std::function<absl::Status()>>{
           [&] { return (*file)->Close(); },
           [&] { return files.OpenForRead(path, false).status(); },
           [&] { return files.CreateReadable(directory + "/readable").status(); },
           [&] { return files.RemoveFile(directory + "/readable"); },
           [&] { return files.TypeOf(path).status(); },
           [&] { return files.ListDirectory(directory).status(); },
           [&] { return files.HardLink(path, path + "z"); },
           [&] { return files.RemoveFile(path + "z"); },
           [&] { return files.Rename(path, path + "y"); },
           [&] { return files.RemoveFile(path + "y"); },
           [&] { return files.SyncDirectory(directory); },
           [&] {
             auto lock = files.TryLock(directory + ".lock");
             return lock.ok() ? (*lock)->WriteNote("me") : lock.status();
           },
           [&] { return files.ReadNote(directory + ".lock", 10).status(); },
       }) {
    if (status = call(); !status.ok()) return status;
  }
  return files.RemoveDirectory(directory);
}

TEST(FailingFileSystem, ForwardsAndCountsEverything) {
  TestDirectory directory;
  FailingFileSystem files(PosixFileSystem());
  EXPECT_THAT(UseEverything(files, directory / "d"), IsOk());
  EXPECT_THAT(files.operations(),
              ElementsAre("CreateDirectory", "Create", "Allocate", "Truncate", "WriteAt", "ReadAt", "Size", "SyncData",
                          "NewIoQueue", "QueueWrite", "QueueRead", "Close", "OpenForRead", "CreateReadable",
                          "RemoveFile", "TypeOf", "ListDirectory", "HardLink", "RemoveFile", "Rename", "RemoveFile",
                          "SyncDirectory", "TryLock", "WriteNote", "ReadNote", "RemoveDirectory"));
  EXPECT_EQ(files.calls()[1].path, directory / "d/x");
  EXPECT_EQ(files.calls()[1].index, 1u);
}

TEST(FailingFileSystem, FailsExactlyTheCallThatWasChosen) {
  constexpr size_t kCalls = 21;
  for (size_t i = 0; i < kCalls; ++i) {
    TestDirectory directory;
    FailingFileSystem files(PosixFileSystem());
    files.FailCall(i, kFull);
    EXPECT_THAT(UseEverything(files, directory / "d"), StatusIs(StatusCode::kResourceExhausted, "full"));
    EXPECT_EQ(files.calls().size(), i + 1);
  }
}

TEST(FailingFileSystem, FailsACallAndAllAfterIt) {
  TestDirectory directory;
  FailingFileSystem files(PosixFileSystem());
  files.FailFrom(1, kFull);
  EXPECT_THAT(files.CreateDirectory(directory / "a"), IsOk());
  EXPECT_THAT(files.CreateDirectory(directory / "b"), StatusIs(StatusCode::kResourceExhausted, "full"));
  EXPECT_THAT(files.TypeOf(directory / "a"), StatusIs(StatusCode::kResourceExhausted, "full"));
  files.Reset();
  EXPECT_THAT(files.TypeOf(directory / "a"), IsOk());
  EXPECT_THAT(files.TypeOf(directory / "b"), StatusIs(StatusCode::kNotFound, testing::_));
  EXPECT_EQ(files.calls().size(), 2u);
}

TEST(FailingFileSystem, FailsTheNthCallOfAName) {
  TestDirectory directory;
  FailingFileSystem files(PosixFileSystem());
  files.FailOperation("TypeOf", kFull, 1);
  EXPECT_THAT(files.TypeOf(directory.path()), IsOk());
  EXPECT_THAT(files.ListDirectory(directory.path()), IsOk());
  EXPECT_THAT(files.TypeOf(directory.path()), StatusIs(StatusCode::kResourceExhausted, "full"));
  EXPECT_THAT(files.TypeOf(directory.path()), IsOk());
}

TEST(FailingFileSystem, FailedRequestCountsAsInFlightUntilItIsReaped) {
  TestDirectory directory;
  FailingFileSystem files(PosixFileSystem());
  auto file = files.Create(directory / "x", false);
  ASSERT_THAT(file, IsOk());
  auto queue = files.NewIoQueue(IoQueueKind::kAuto, 4);
  ASSERT_THAT(queue, IsOk());
  files.FailOperation("QueueWrite", kFull, 1);
  std::byte bytes[4] = {};
  for (uint64_t tag : {7, 8, 9}) {
    (*queue)->Submit(
        {.kind = IoRequest::Kind::kWrite, .file = file->get(), .offset = tag, .data = bytes, .size = 4, .tag = tag});
  }
  EXPECT_EQ((*queue)->in_flight(), 3u);
  for (int i = 0; i < 3; ++i) {
    const IoCompletion completion = (*queue)->Wait();
    EXPECT_EQ(completion.status.ok(), completion.tag != 8) << completion.tag << completion.status;
  }
  EXPECT_EQ((*queue)->in_flight(), 0u);
  EXPECT_FALSE((*queue)->Poll().has_value());
}

}  // namespace
}  // namespace tidemark::storage
