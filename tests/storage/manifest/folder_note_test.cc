#include "storage/manifest/folder_note.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

using testing::HasSubstr;

class FolderNoteTest : public testing::Test {
 protected:
  TestDirectory directory_;
  const std::string path_ = directory_ / "note.json";
};

TEST_F(FolderNoteTest, IsReadAsItWasWritten) {
  EXPECT_EQ(*ReadFolderNote(PosixFileSystem(), path_), std::nullopt);
  const std::string text(kFolderNoteBytesMax, '\x01');  // the bytes that JSON makes the most of
  ASSERT_THAT(WriteFolderNote(PosixFileSystem(), path_, text), IsOk());
  const auto note = ReadFolderNote(PosixFileSystem(), path_);
  ASSERT_THAT(note, IsOk());
  ASSERT_TRUE(note->has_value());
  EXPECT_EQ((*note)->text, text);
  EXPECT_THAT((*note)->problem, IsOk());
}

TEST_F(FolderNoteTest, IsThereWithoutATextWhereItCannotBeUnderstood) {
  for (const char* text : {"", "{", "[]", R"({"note": 1})", R"({"version": 2})"}) {
    std::ofstream(path_) << text;
    const auto note = ReadFolderNote(PosixFileSystem(), path_);
    ASSERT_TRUE(note.ok() && note->has_value()) << text;
    EXPECT_EQ((*note)->text, "");
    EXPECT_THAT((*note)->problem, IsOk());
  }
}

TEST_F(FolderNoteTest, SaysWhyTheDiskDidNotGiveItOut) {
  ASSERT_THAT(WriteFolderNote(PosixFileSystem(), path_, "a"), IsOk());
  FailingFileSystem files(PosixFileSystem());
  files.FailOperation("OpenForRead", absl::InternalError("EIO"));
  const auto note = ReadFolderNote(files, path_);
  ASSERT_TRUE(note.ok() && note->has_value());
  EXPECT_EQ((*note)->text, "");
  EXPECT_THAT((*note)->problem, StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  files.FailOperation("OpenForRead", absl::NotFoundError("ENOENT"));
  EXPECT_EQ(*ReadFolderNote(files, path_), std::nullopt) << "gone since";
  files.SetRule([](const FailingFileSystem::Call&) { return absl::InternalError("EIO"); });
  EXPECT_THAT(ReadFolderNote(files, path_), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
}

TEST_F(FolderNoteTest, IsNotWrittenBeforeThatIsSynced) {
  for (const char* operation : {"Create", "SyncData", "Rename", "SyncDirectory"}) {
    FailingFileSystem files(PosixFileSystem());
    files.FailOperation(operation, absl::ResourceExhaustedError("ENOSPC"));
    EXPECT_THAT(WriteFolderNote(files, path_, "a"), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("ENOSPC")))
        << operation;
  }
}

}  // namespace
}  // namespace tidemark::storage
