#include "storage/store/first_format/folder_note.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/errno_status.h"
#include "storage/records/tag.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/store/first_format/written_files.h"

namespace tidemark::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class FolderNoteTest : public testing::Test {
 protected:
  void Write(std::string_view text, const std::vector<std::string>& tags = {}) {
    std::ofstream(path_, std::ios::binary) << EncodeFolderNote(text, tags);
  }

  TestDirectory directory_;
  const std::string path_ = directory_ / "note.json";
};

TEST_F(FolderNoteTest, IsReadAsItWasWritten) {
  EXPECT_EQ(*ReadFolderNote(PosixFileSystem(), path_), std::nullopt);
  const std::string text(kFolderNoteBytesMax, '\x01');  // the bytes that JSON makes the most of
  Write(text);
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

TEST_F(FolderNoteTest, HasTagsOnlyWhereThereAreAny) {
  const auto written = [&] {
    std::stringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  };
  Write("a", {"paper", "v1"});
  EXPECT_EQ(written(), "{\"note\":\"a\",\"tags\":[\"paper\",\"v1\"],\"version\":1,\"check\":\"3522cab127dfa405\"}\n");
  const auto note = ReadFolderNote(PosixFileSystem(), path_);
  ASSERT_TRUE(note.ok() && note->has_value());
  EXPECT_EQ((*note)->text, "a");
  EXPECT_THAT((*note)->tags, ElementsAre("paper", "v1"));
  Write("a");
  EXPECT_EQ(written(), "{\"note\":\"a\",\"version\":1}\n");
  EXPECT_THAT((**ReadFolderNote(PosixFileSystem(), path_)).tags, IsEmpty());
}

// A wrong name is worse than none: what is not as it was written is said to be so.
TEST_F(FolderNoteTest, LosesNoTagInSilenceWhicheverBitIsWrong) {
  const std::string sound = EncodeFolderNote("a", {"paper", "v1"});
  ASSERT_THAT(DecodeFolderNote(sound).tags, ElementsAre("paper", "v1"));
  size_t refused = 0;
  for (size_t bit = 0; bit < 8 * sound.size(); ++bit) {
    std::string bytes = sound;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    const FolderNote note = DecodeFolderNote(bytes);
    if (note.problem.ok()) {
      EXPECT_THAT(note.tags, ElementsAre("paper", "v1")) << bytes;
      continue;
    }
    ++refused;
    EXPECT_THAT(note.problem, StatusIs(absl::StatusCode::kDataLoss, HasSubstr("note of "))) << bytes;
    EXPECT_EQ(note.text, "");
    EXPECT_THAT(note.tags, IsEmpty());
  }
  // All but those in the five letters of the word "check".
  EXPECT_GE(refused, 8 * (sound.size() - 5));
}

TEST_F(FolderNoteTest, NeedsNoCheckWhereThereWasNoneWhenItWasWritten) {
  FolderNote note = DecodeFolderNote("{\"note\":\"a\",\"tags\":[\"paper\",\"v1\"],\"version\":1}\n");
  EXPECT_THAT(note.problem, IsOk());
  EXPECT_EQ(note.text, "a");
  EXPECT_THAT(note.tags, ElementsAre("paper", "v1"));
  const std::string text = R"(,"check":"0123456789abcdef"})";
  note = DecodeFolderNote(EncodeFolderNote(text, {}));
  EXPECT_THAT(note.problem, IsOk());
  EXPECT_EQ(note.text, text) << "what a note says is no check";
}

TEST_F(FolderNoteTest, SaysThatItHadTagsWhereItIsNoJson) {
  EXPECT_THAT(DecodeFolderNote(R"({"note": "a", "tags": ["v1")").problem,
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("note of 27 bytes: it has tags but is not JSON")));
}

TEST_F(FolderNoteTest, IsCutOffWhereWhatIsNotUtf8MakesItTooLong) {
  Write(std::string(kFolderNoteBytesMax, '\xff'), {"v1"});
  const auto note = ReadFolderNote(PosixFileSystem(), path_);
  ASSERT_TRUE(note.ok() && note->has_value());
  EXPECT_EQ((*note)->text.size(), kFolderNoteBytesMax / 3 * 3);
  EXPECT_THAT((*note)->tags, ElementsAre("v1"));
}

TEST_F(FolderNoteTest, HasRoomForAllThatThereMayBe) {
  std::vector<std::string> tags;
  for (size_t i = 0; i < kTagsPerStepMax; ++i) {
    ASSERT_TRUE(AddTag(tags, std::to_string(100 + i) + std::string(kTagBytesMax - 3, 'x')));
  }
  const std::string text(kFolderNoteBytesMax, '\x01');
  Write(text, tags);
  const auto note = ReadFolderNote(PosixFileSystem(), path_);
  ASSERT_TRUE(note.ok() && note->has_value());
  EXPECT_EQ((*note)->text, text);
  EXPECT_EQ((*note)->tags, tags);
}

// Whoever writes it back must have room for it.
TEST_F(FolderNoteTest, IsCutOffWhereItIsLongerThanOneMayBe) {
  std::ofstream(path_) << R"({"note": ")" << std::string(kFolderNoteBytesMax + 7, 'x') << R"(", "tags": ["v1"]})";
  const auto note = ReadFolderNote(PosixFileSystem(), path_);
  ASSERT_TRUE(note.ok() && note->has_value());
  EXPECT_EQ((*note)->text, std::string(kFolderNoteBytesMax, 'x'));
  EXPECT_THAT((*note)->tags, ElementsAre("v1"));
}

TEST_F(FolderNoteTest, LeavesOutWhatIsNoTag) {
  const auto tags_of = [&](const std::string& tags) {
    std::ofstream(path_) << R"({"version": 1, "note": "a", "tags": )" << tags << "}";
    const auto note = ReadFolderNote(PosixFileSystem(), path_);
    EXPECT_TRUE(note.ok() && note->has_value()) << tags;
    return (*note)->tags;
  };
  EXPECT_THAT(tags_of(R"(["v2", "no name", 1, null, ["x"], "-x", "v1", "v2", ""])"), ElementsAre("v1", "v2"));
  EXPECT_THAT(tags_of(R"("v1")"), IsEmpty());
  EXPECT_THAT(tags_of(R"({"v1": "v1"})"), IsEmpty());
  std::string many = "[\"0\"";
  for (size_t i = 1; i < 10 * kTagsPerStepMax; ++i) many += ",\"" + std::to_string(i) + "\"";
  EXPECT_THAT(tags_of(many + "]"), SizeIs(kTagsPerStepMax));
}

TEST_F(FolderNoteTest, SaysNothingWhereItIsLargerThanAnyAndCutsATextBetweenCharacters) {
  std::ofstream(path_) << std::string(8 * kFolderNoteBytesMax + 1, ' ');
  auto note = ReadFolderNote(PosixFileSystem(), path_);
  ASSERT_TRUE(note.ok() && note->has_value());
  EXPECT_THAT((*note)->problem, IsOk());
  const std::string fits(kFolderNoteBytesMax - 1, 'x');
  std::ofstream(path_) << "{\"version\": 1, \"note\": \"" + fits + "\u00e4\"}";
  note = ReadFolderNote(PosixFileSystem(), path_);
  ASSERT_TRUE(note.ok() && note->has_value());
  EXPECT_EQ((*note)->text, fits);
}

TEST_F(FolderNoteTest, SaysWhyTheDiskDidNotGiveItOut) {
  Write("a");
  FailingFileSystem files(PosixFileSystem());
  files.FailOperation("OpenForRead", absl::InternalError("EIO"));
  const auto note = ReadFolderNote(files, path_);
  ASSERT_TRUE(note.ok() && note->has_value());
  EXPECT_EQ((*note)->text, "");
  EXPECT_THAT((*note)->problem, StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  files.FailOperation("OpenForRead", ErrnoStatus(EMFILE, "open", path_));
  EXPECT_THAT((*ReadFolderNote(files, path_))->problem,
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("EMFILE")));
  files.FailOperation("OpenForRead", absl::NotFoundError("ENOENT"));
  EXPECT_EQ(*ReadFolderNote(files, path_), std::nullopt) << "gone since";
  files.SetRule([](const FailingFileSystem::Call&) { return absl::InternalError("EIO"); });
  EXPECT_THAT(ReadFolderNote(files, path_), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
}

}  // namespace
}  // namespace tidemark::storage
