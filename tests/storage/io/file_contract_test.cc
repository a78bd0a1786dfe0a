// What every FileSystem promises of its files, locks and queues.

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/direct_block.h"
#include "tests/storage/io/file_system_contract.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

class FileContractTest : public FileSystemContractTest {};

TEST_P(FileContractTest, OpenForReadRefusesWhatIsNoRegularFile) {
  EXPECT_THAT(files_.OpenForRead(none_, false), StatusIs(StatusCode::kNotFound, HasSubstr("open " + none_)));
  EXPECT_THAT(files_.OpenForRead(folder_, false),
              StatusIs(StatusCode::kFailedPrecondition, "open " + folder_ + ": a directory, not a regular file"));
  EXPECT_THAT(files_.OpenForRead(link_, false), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("ELOOP")));
}

TEST_P(FileContractTest, CreateMakesAnEmptyFileToReadAndWrite) {
  for (const bool direct : {false, true}) {
    const std::string path = none_ + (direct ? "-direct" : "");
    auto file = files_.Create(path, direct);
    ASSERT_THAT(file, IsOk());
    EXPECT_EQ((*file)->path(), path);
    EXPECT_EQ(*(*file)->Size(), 0u);
    std::vector<Block> blocks(2);
    blocks[1].bytes[0] = std::byte{'a'};
    ASSERT_THAT((*file)->WriteAt(sizeof(Block), std::as_bytes(std::span(blocks))), IsOk());
    EXPECT_EQ(*(*file)->Size(), 3 * sizeof(Block));
    std::vector<Block> read(3);
    ASSERT_THAT((*file)->ReadAt(0, std::as_writable_bytes(std::span(read))), IsOk());
    EXPECT_EQ(read[0].bytes[0], std::byte{0});
    EXPECT_EQ(read[2].bytes[0], std::byte{'a'});
    EXPECT_THAT((*file)->SyncData(), IsOk());
    EXPECT_THAT((*file)->Close(), IsOk());
  }
}

TEST_P(FileContractTest, NobodyReadsAFileThatIsWrittenAnewNorTheOtherWayRound) {
  {
    auto reader = files_.OpenForRead(file_, /*direct=*/false);
    ASSERT_THAT(reader, IsOk());
    ASSERT_THAT(files_.OpenForRead(file_, false), IsOk());
    EXPECT_THAT(files_.OpenForRewrite(file_, false), StatusIs(StatusCode::kUnavailable, HasSubstr(file_)));
  }
  {
    auto writer = files_.OpenForRewrite(file_, false);
    ASSERT_THAT(writer, IsOk());
    EXPECT_EQ(Contents(**writer), "old");
    ASSERT_THAT((*writer)->WriteAt(0, std::as_bytes(std::span("new", 3))), IsOk());
    EXPECT_THAT(files_.OpenForRead(file_, false), StatusIs(StatusCode::kNotFound, HasSubstr("being overwritten")));
    EXPECT_THAT(files_.OpenForRewrite(file_, false), StatusIs(StatusCode::kUnavailable, HasSubstr(file_)));
  }
  EXPECT_EQ(Get(file_), "new");
  EXPECT_THAT(files_.OpenForRewrite(none_, false), StatusIs(StatusCode::kNotFound, HasSubstr(none_)));
  for (const std::string& path : {folder_, link_}) {
    EXPECT_THAT(files_.OpenForRewrite(path, false), StatusIs(StatusCode::kFailedPrecondition, HasSubstr(path)));
  }
}

TEST_P(FileContractTest, AFileWithTwoNamesIsNotRewritten) {
  ASSERT_THAT(files_.HardLink(file_, none_), IsOk());
  for (const std::string& path : {file_, none_}) {
    EXPECT_THAT(files_.OpenForRewrite(path, false),
                StatusIs(StatusCode::kFailedPrecondition, "open to overwrite " + path + ": it has 2 names"));
  }
  ASSERT_THAT(files_.RemoveFile(file_), IsOk());
  EXPECT_THAT(files_.OpenForRewrite(none_, false), IsOk());
  EXPECT_EQ(Get(none_), "old");
}

TEST_P(FileContractTest, ClosingLetsOthersOpen) {
  auto reader = files_.OpenForRead(file_, false);
  ASSERT_THAT(reader, IsOk());
  EXPECT_THAT((*reader)->Close(), IsOk());
  auto writer = files_.OpenForRewrite(file_, false);
  ASSERT_THAT(writer, IsOk());
  EXPECT_THAT((*reader)->Close(), IsOk()) << "again, which does nothing";
  EXPECT_THAT((*writer)->Close(), IsOk());
  EXPECT_THAT(files_.OpenForRead(file_, false), IsOk());
}

// Who opens a file that is removed or replaced meanwhile goes on with what was opened.
TEST_P(FileContractTest, OpenFilesOutliveTheirNames) {
  auto removed = files_.Create(none_, false);
  ASSERT_THAT(removed, IsOk());
  ASSERT_THAT(files_.RemoveFile(none_), IsOk());
  Put(none_, "another");
  auto replaced = files_.OpenForRead(file_, false);
  ASSERT_THAT(replaced, IsOk());
  ASSERT_THAT(files_.Rename(none_, file_), IsOk());
  ASSERT_THAT((*removed)->WriteAt(0, std::as_bytes(std::span("kept", 4))), IsOk());
  EXPECT_THAT((*removed)->SyncData(), IsOk());
  EXPECT_EQ(Contents(**removed), "kept");
  EXPECT_EQ(Contents(**replaced), "old");
  EXPECT_EQ(Get(file_), "another");
  EXPECT_THAT(files_.OpenForRewrite(file_, false), IsOk()) << "it is not the one that is open for reading";
}

TEST_P(FileContractTest, ReadPastTheEndIsDataLoss) {
  for (const bool direct : {false, true}) {
    auto file = files_.Create(none_ + (direct ? "-direct" : ""), direct);
    ASSERT_THAT(file, IsOk());
    ASSERT_THAT((*file)->Truncate(5000), IsOk());
    std::vector<Block> read(2);
    EXPECT_THAT((*file)->ReadAt(0, std::as_writable_bytes(std::span(read))),
                StatusIs(StatusCode::kDataLoss,
                         "read 8192 bytes at 0 of " + (*file)->path() + ": the file ends after 5000 of them"));
    EXPECT_THAT((*file)->ReadAt(1 << 20, std::as_writable_bytes(std::span(read))),
                StatusIs(StatusCode::kDataLoss, HasSubstr("ends after 0 of them")));
  }
}

TEST_P(FileContractTest, RefusesOffsetsAndSizesThatNoFileHas) {
  auto file = files_.Create(none_, false);
  ASSERT_THAT(file, IsOk());
  std::byte byte = {};
  constexpr uint64_t kPast = uint64_t{1} << 63;
  EXPECT_THAT((*file)->ReadAt(kPast, {&byte, 1}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("read 1 bytes")));
  EXPECT_THAT((*file)->WriteAt(kPast, {&byte, 1}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("write 1 bytes")));
  EXPECT_THAT((*file)->Truncate(kPast), StatusIs(StatusCode::kInvalidArgument, HasSubstr("truncate " + none_)));
  EXPECT_THAT((*file)->Allocate(kPast), StatusIs(StatusCode::kInvalidArgument, HasSubstr("allocate " + none_)));
  EXPECT_EQ(*(*file)->Size(), 0u);
}

TEST_P(FileContractTest, TruncateCutsAndAddsZeros) {
  auto file = files_.OpenForRewrite(file_, false);
  ASSERT_THAT(file, IsOk());
  EXPECT_THAT((*file)->Truncate(2), IsOk());
  EXPECT_EQ(Contents(**file), "ol");
  EXPECT_THAT((*file)->Truncate(4), IsOk());
  EXPECT_EQ(Contents(**file), std::string("ol\0\0", 4));
  ASSERT_THAT((*file)->WriteAt(6, std::as_bytes(std::span("x", 1))), IsOk());
  EXPECT_EQ(Contents(**file), std::string("ol\0\0\0\0x", 7));
}

TEST_P(FileContractTest, AllocateMakesTheFileLongerAndNeverShorter) {
  auto file = files_.OpenForRewrite(file_, false);
  ASSERT_THAT(file, IsOk());
  const absl::Status allocated = (*file)->Allocate(1 << 20);
  if (absl::IsUnimplemented(allocated)) GTEST_SKIP() << allocated;
  ASSERT_THAT(allocated, IsOk());
  EXPECT_EQ(*(*file)->Size(), 1u << 20);
  EXPECT_THAT((*file)->Allocate(10), IsOk());
  EXPECT_EQ(*(*file)->Size(), 1u << 20);
  ASSERT_THAT((*file)->Truncate(3), IsOk());
  EXPECT_EQ(Contents(**file), "old");
  EXPECT_THAT((*file)->Allocate(0), StatusIs(StatusCode::kInvalidArgument, HasSubstr("allocate 0 bytes for")));
}

TEST_P(FileContractTest, FileOpenedForReadingIsNotChanged) {
  auto file = files_.OpenForRead(file_, false);
  ASSERT_THAT(file, IsOk());
  std::byte byte = {};
  EXPECT_THAT((*file)->WriteAt(9, {&byte, 1}),
              StatusIs(StatusCode::kInternal, "write 1 bytes at 9 to " + file_ + ": Bad file descriptor (EBADF)"));
  EXPECT_THAT((*file)->Truncate(1), StatusIs(StatusCode::kInvalidArgument, HasSubstr("truncate to 1 bytes " + file_)));
  EXPECT_THAT((*file)->Allocate(9), StatusIs(StatusCode::kInternal, HasSubstr("EBADF")));
  EXPECT_EQ(Contents(**file), "old");
}

TEST_P(FileContractTest, FileThatIsClosedAnswersNothing) {
  auto file = files_.OpenForRewrite(file_, false);
  ASSERT_THAT(file, IsOk());
  EXPECT_THAT((*file)->Close(), IsOk());
  std::byte byte = {};
  const auto closed = StatusIs(StatusCode::kInternal, HasSubstr("EBADF"));
  EXPECT_THAT((*file)->Size(), closed);
  EXPECT_THAT((*file)->ReadAt(0, {&byte, 1}), closed);
  EXPECT_THAT((*file)->WriteAt(0, {&byte, 1}), closed);
  EXPECT_THAT((*file)->Allocate(1), closed);
  EXPECT_THAT((*file)->Truncate(1), closed);
  EXPECT_THAT((*file)->SyncData(), closed);
  EXPECT_EQ(Get(file_), "old");
}

TEST_P(FileContractTest, LockIsExclusiveWithinOneProcessAndNamesTheHolder) {
  {
    auto lock = files_.TryLock(none_);
    ASSERT_THAT(lock, IsOk());
    EXPECT_THAT(files_.TryLock(none_),
                StatusIs(StatusCode::kUnavailable, "lock " + none_ + ": held by a process that wrote no note"));
    ASSERT_THAT((*lock)->WriteNote("process 17 on host a"), IsOk());
    EXPECT_THAT(files_.TryLock(none_),
                StatusIs(StatusCode::kUnavailable, "lock " + none_ + ": held by process 17 on host a"));
    ASSERT_THAT((*lock)->WriteNote("\x1b[31m\n" + std::string(1000, 'x')), IsOk());
    EXPECT_THAT(files_.TryLock(none_), StatusIs(StatusCode::kUnavailable,
                                                "lock " + none_ + ": held by \\x1b[31m\\n" + std::string(1000, 'x')));
  }
  for (int i = 0; i < 2; ++i) EXPECT_THAT(files_.TryLock(none_), IsOk());
}

TEST_P(FileContractTest, LockKeepsReadersAndWritersOutAndTheyKeepItOut) {
  {
    auto lock = files_.TryLock(file_);
    ASSERT_THAT(lock, IsOk());
    EXPECT_THAT(files_.OpenForRead(file_, false), StatusIs(StatusCode::kNotFound, HasSubstr(file_)));
    EXPECT_THAT(files_.OpenForRewrite(file_, false), StatusIs(StatusCode::kUnavailable, HasSubstr(file_)));
  }
  auto file = files_.OpenForRead(file_, false);
  ASSERT_THAT(file, IsOk());
  EXPECT_THAT(files_.TryLock(file_), StatusIs(StatusCode::kUnavailable, HasSubstr("lock " + file_)));
}

TEST_P(FileContractTest, NoteReplacesALongerOneAndIsErasedByTheNextHolder) {
  {
    auto lock = files_.TryLock(none_);
    ASSERT_THAT(lock, IsOk());
    EXPECT_EQ(*files_.ReadNote(none_, 10), "");
    ASSERT_THAT((*lock)->WriteNote("a long note"), IsOk());
    ASSERT_THAT((*lock)->WriteNote("0123456789"), IsOk());
    EXPECT_EQ(*files_.ReadNote(none_, 10), "0123456789");
    EXPECT_THAT(files_.ReadNote(none_, 9),
                StatusIs(StatusCode::kResourceExhausted,
                         "read note in " + none_ + ": more than 9 bytes, where fewer are expected"));
  }
  EXPECT_EQ(*files_.ReadNote(none_, 10), "0123456789");
  EXPECT_THAT(files_.TryLock(none_), IsOk());
  EXPECT_EQ(*files_.ReadNote(none_, 10), "");
}

TEST_P(FileContractTest, LocksAndNotesAreOfRegularFilesOnly) {
  EXPECT_THAT(files_.TryLock(folder_), StatusIs(StatusCode::kFailedPrecondition, HasSubstr(folder_)));
  EXPECT_THAT(files_.TryLock(link_), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("ELOOP")));
  EXPECT_THAT(files_.TryLock(none_ + "/LOCK"), StatusIs(StatusCode::kNotFound, HasSubstr("none/LOCK")));
  EXPECT_THAT(files_.ReadNote(folder_, 10), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("not a regular file")));
  EXPECT_THAT(files_.ReadNote(link_, 10), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("ELOOP")));
  EXPECT_THAT(files_.ReadNote(none_, 10), StatusIs(StatusCode::kNotFound, HasSubstr(none_)));
}

TEST_P(FileContractTest, QueueTransfersToAndFromItsFiles) {
  auto queue = files_.NewIoQueue(IoQueueKind::kThreads, 2);
  ASSERT_THAT(queue, IsOk());
  EXPECT_EQ((*queue)->name(), "threads");
  auto file = files_.Create(none_, /*direct=*/true);
  ASSERT_THAT(file, IsOk());
  Block block;
  block.bytes[7] = std::byte{'a'};
  (*queue)->Submit({IoRequest::Kind::kWrite, file->get(), 0, block.bytes, sizeof(block), 17});
  const IoCompletion written = (*queue)->Wait();
  EXPECT_EQ(written.tag, 17u);
  EXPECT_THAT(written.status, IsOk());
  Block read;
  (*queue)->Submit({IoRequest::Kind::kRead, file->get(), 0, read.bytes, sizeof(read), 18});
  EXPECT_THAT((*queue)->Wait().status, IsOk());
  EXPECT_EQ(read.bytes[7], std::byte{'a'});
  EXPECT_EQ((*queue)->in_flight(), 0u);
}

INSTANTIATE_TEST_SUITE_P(All, FileContractTest, ContractKinds(), ContractKindName);

}  // namespace
}  // namespace tidemark::storage
