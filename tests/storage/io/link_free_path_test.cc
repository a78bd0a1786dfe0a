#include "storage/io/link_free_path.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/file_system.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::HasSubstr;

// Holds a folder "in" with a file "file", and beside it links "link" to the folder and "in/loop" to itself.
class LinkFreePathTest : public testing::Test {
 protected:
  LinkFreePathTest() {
    std::filesystem::create_directory(folder_);
    std::ofstream(file_) << "text";
    std::filesystem::create_symlink("in", directory_ / "link");
    std::filesystem::create_symlink("loop", directory_ / "in/loop");
  }

  // What a call says of a path, where the kernel has openat2 and where it has not.
  template <typename Call>
  void ExpectBothWays(const Call& call, const testing::Matcher<std::string>& expected) {
    EXPECT_THAT(call(), expected);
    const std::string without = InChild([&]() -> std::string {
      if (!DenySystemCalls({SYS_openat2}, ENOSYS)) return "SKIP";
      return call();
    });
    if (without == "SKIP") GTEST_SKIP() << "system calls cannot be denied here";
    EXPECT_THAT(without, expected) << "without openat2";
  }

  const TestDirectory directory_;
  const std::string folder_ = directory_ / "in";
  const std::string file_ = directory_ / "in/file";
};

TEST_F(LinkFreePathTest, ALinkAnywhereOnThePathIsRefused) {
  const auto open = [](const std::string& path) {
    return [path]() -> std::string { return OpenWithoutLinks("open", path, O_RDONLY).status().ToString(); };
  };
  const auto refused = AllOf(HasSubstr("FAILED_PRECONDITION: open "), HasSubstr("(ELOOP)"));
  ExpectBothWays(open(directory_ / "link/file"), refused);
  ExpectBothWays(open(directory_ / "in/loop"), refused);
  ExpectBothWays(open(directory_ / "in/loop/file"), refused);
  ExpectBothWays(open(directory_ / "link/"), refused);
  ExpectBothWays(open(file_), testing::Eq("OK"));
  ExpectBothWays(open(folder_ + "//./"), testing::Eq("OK"));
  ExpectBothWays(open("/"), testing::Eq("OK"));
}

TEST_F(LinkFreePathTest, SaysWhichNameIsTheLink) {
  const auto names = [&](const std::string& link) {
    return StatusIs(StatusCode::kFailedPrecondition,
                    AllOf(HasSubstr(" (" + (directory_ / link) + " is a link, and links are not followed here)"),
                          testing::EndsWith("(ELOOP)")));
  };
  FileSystem& files = PosixFileSystem();
  EXPECT_THAT(files.OpenForRead(directory_ / "link/file", false).status(), names("link"));
  EXPECT_THAT(files.OpenForRead(directory_ / "in/loop", false).status(), names("in/loop"));
  EXPECT_THAT(files.ListDirectory(directory_ / "link").status(), names("link"));
  EXPECT_THAT(files.TypeOf(directory_ / "link/file").status(), names("link"));
  EXPECT_THAT(files.TryLock(directory_ / "in/loop").status(), names("in/loop"));
}

TEST_F(LinkFreePathTest, WhatIsMissingOnTheWayIsNotFound) {
  ExpectBothWays([&]() -> std::string { return FindPlace("look at", directory_ / "no/file").status().ToString(); },
                 HasSubstr("NOT_FOUND: look at " + (directory_ / "no/file") + ": No such file"));
  ExpectBothWays([&]() -> std::string { return FindPlace("look at", file_ + "/x").status().ToString(); },
                 AllOf(HasSubstr("FAILED_PRECONDITION"), HasSubstr("ENOTDIR")));
}

TEST_F(LinkFreePathTest, NoCallOfTheFileSystemGoesThroughALink) {
  FileSystem& files = PosixFileSystem();
  const std::string through = directory_ / "link/file";
  const std::string fresh = directory_ / "link/new";
  const std::vector<absl::Status> answers = {
      files.OpenForRead(through, false).status(),
      files.OpenForRewrite(through, false).status(),
      files.Create(fresh, false).status(),
      files.CreateReadable(fresh).status(),
      files.CreateDirectory(fresh),
      files.ListDirectory(directory_ / "link").status(),
      files.TypeOf(through).status(),
      files.Rename(through, directory_ / "taken"),
      files.Rename(file_, fresh),
      files.RemoveFile(through),
      files.RemoveDirectory(fresh),
      files.SyncDirectory(directory_ / "link"),
      files.TryLock(fresh).status(),
      files.ReadNote(through, 100).status(),
  };
  for (const absl::Status& answer : answers) {
    const bool other = answer.message().find("ENOTDIR") != absl::string_view::npos;  // what O_DIRECTORY says of a link
    EXPECT_THAT(answer, StatusIs(StatusCode::kFailedPrecondition, HasSubstr(other ? "ENOTDIR" : "ELOOP")));
  }
  EXPECT_TRUE(std::filesystem::exists(file_));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "in/new"));
}

TEST_F(LinkFreePathTest, OnlyRegularFilesAreOpened) {
  const std::string fifo = directory_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const std::string socket_path = directory_ / "s";
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address = {.sun_family = AF_UNIX};
  ASSERT_LT(socket_path.size(), sizeof(address.sun_path));
  socket_path.copy(address.sun_path, socket_path.size());
  ASSERT_EQ(bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const auto refused = [](std::string_view what) {
    return StatusIs(StatusCode::kFailedPrecondition, HasSubstr(std::string(what) + ", not a regular file"));
  };
  EXPECT_THAT(OpenRegularFile("open", fifo, O_RDONLY).status(), refused("a fifo"));
  EXPECT_THAT(OpenRegularFile("open", socket_path, O_RDONLY).status(), refused("a socket"));
  EXPECT_THAT(OpenRegularFile("open", folder_, O_RDONLY).status(), refused("a directory"));
  EXPECT_THAT(OpenRegularFile("open", "/dev/null", O_RDONLY).status(), refused("a device"));
  EXPECT_THAT(OpenRegularFile("open", directory_ / "link", O_RDONLY).status(),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("ELOOP")));
  EXPECT_THAT(OpenRegularFile("open", file_, O_RDONLY).status(), IsOk());
}

TEST_F(LinkFreePathTest, AUsersPathIsFollowedOnceAsFarAsItIsThere) {
  EXPECT_EQ(FollowLinks(folder_), folder_);
  EXPECT_EQ(FollowLinks(directory_ / "new/store"), directory_ / "new/store");
  EXPECT_EQ(FollowLinks("/"), "/");
  EXPECT_EQ(FollowLinks(""), "");
  const std::string real = std::filesystem::canonical(folder_);
  EXPECT_EQ(FollowLinks(directory_ / "link"), real);
  EXPECT_EQ(FollowLinks(directory_ / "link/"), real);
  EXPECT_EQ(FollowLinks(directory_ / "link/new/store"), real + "/new/store");
  EXPECT_EQ(FollowLinksToFile(directory_ / "link/metrics"), real + "/metrics");
  EXPECT_EQ(FollowLinksToFile(file_), file_);
  // A link of the file's own name is replaced by who writes the file, as ever.
  EXPECT_EQ(FollowLinksToFile(directory_ / "in/loop"), directory_ / "in/loop");
}

TEST_F(LinkFreePathTest, AUsersRelativePathIsMadeAbsolute) {
  EXPECT_EQ(InChild([&]() -> std::string {
              const std::string here = std::filesystem::canonical(folder_);
              std::filesystem::current_path(here);
              for (const auto& [path, expected] : std::map<std::string, std::string>{{"store", "/store"},
                                                                                     {"new/store", "/new/store"},
                                                                                     {"./store", "/store"},
                                                                                     {".//./store", "/store"},
                                                                                     {".", ""},
                                                                                     {"./", ""},
                                                                                     {"../store", "/../store"}}) {
                if (FollowLinks(path) != here + expected) return path + " is " + FollowLinks(path);
              }
              if (FollowLinksToFile("metrics") != here + "/metrics") return FollowLinksToFile("metrics");
              std::filesystem::current_path("/");
              if (FollowLinks("store") != "/store") return FollowLinks("store");
              std::filesystem::create_directory(here + "/gone");
              std::filesystem::current_path(here + "/gone");
              std::filesystem::remove(here + "/gone");
              return FollowLinks("store");
            }),
            "store")
      << "a directory that is gone has no path";
}

// What lies in a held directory is the same whatever its path leads to.
TEST_F(LinkFreePathTest, AHeldDirectoryIsTheOneThatWasFoundFirst) {
  const HeldDirectory held(folder_);
  EXPECT_EQ(held.Below(folder_), ".");
  EXPECT_EQ(held.Below(folder_ + "/"), ".");
  EXPECT_EQ(held.Below(folder_ + "//a/b"), "a/b");
  EXPECT_EQ(held.Below(folder_ + "side"), std::nullopt);
  EXPECT_EQ(held.Below(directory_.path()), std::nullopt);
  EXPECT_EQ(HeldDirectory("/").Below("/a"), "a");
  const HeldDirectory late(directory_ / "late");
  EXPECT_EQ(late.Find(), -1);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_THAT(FindPlace("make", directory_ / "late", &late), IsOk()) << "so that it can be made";
  EXPECT_THAT(FindPlace("make", directory_ / "late/file", &late), StatusIs(StatusCode::kNotFound, HasSubstr("late")));
  ASSERT_GE(held.Find(), 0);
  std::filesystem::rename(folder_, directory_ / "moved");
  std::filesystem::create_directory(folder_);
  const auto open = [&]() -> std::string {
    return OpenRegularFile("open", file_, O_RDONLY, &held).status().ToString();
  };
  ExpectBothWays(open, testing::Eq("OK"));
  EXPECT_THAT(OpenRegularFile("open", file_, O_RDONLY), StatusIs(StatusCode::kNotFound, HasSubstr(file_)));
  struct stat moved, itself;
  ASSERT_EQ(stat((directory_ / "moved").c_str(), &moved), 0);
  ASSERT_EQ(StatWithoutLinks(folder_, &itself, &held), 0);
  EXPECT_EQ(itself.st_ino, moved.st_ino);
  const auto loop = [&]() -> std::string {
    return OpenWithoutLinks("open", folder_ + "/loop", O_RDONLY, &held).status().ToString();
  };
  ExpectBothWays(loop, HasSubstr("(ELOOP)"));
}

TEST_F(LinkFreePathTest, NothingGoesIntoADirectoryThatTookAHeldOnesPlace) {
  const std::unique_ptr<FileSystem> files = PosixFileSystemAt(folder_);
  const auto id = files->Identify(file_);
  ASSERT_THAT(id, IsOk());
  EXPECT_EQ(*files->Identify(file_), *id);
  std::filesystem::rename(folder_, directory_ / "moved");
  const auto moved =
      StatusIs(StatusCode::kFailedPrecondition, HasSubstr(file_ + ": its directory was moved or replaced"));
  EXPECT_THAT(files->Identify(file_), moved) << "where there is nothing";
  std::filesystem::create_directory(folder_);
  EXPECT_THAT(files->Identify(file_), moved) << "where there is another";
  std::filesystem::copy(directory_ / "moved/file", file_);
  EXPECT_THAT(files->Identify(file_), moved);
  const std::filesystem::file_time_type before = std::filesystem::last_write_time(folder_);
  const std::string fresh = folder_ + "/new";
  EXPECT_THAT(files->Create(fresh, false), IsOk());
  EXPECT_THAT(files->CreateDirectory(folder_ + "/below"), IsOk());
  EXPECT_THAT(files->Rename(fresh, folder_ + "/below/new"), IsOk());
  EXPECT_THAT(files->TryLock(folder_ + "/LOCK"), IsOk());
  EXPECT_THAT(files->ReadNote(folder_ + "/LOCK", 10), IsOk());
  EXPECT_THAT(files->OpenForRewrite(folder_ + "/below/new", false), IsOk());
  EXPECT_THAT(files->SyncDirectory(folder_ + "/below"), IsOk());
  EXPECT_EQ(*files->TypeOf(folder_ + "/below"), FileType::kDirectory);
  EXPECT_EQ(files->ListDirectory(folder_)->size(), 4u);
  EXPECT_THAT(files->RemoveFile(folder_ + "/below/new"), IsOk());
  EXPECT_THAT(files->RemoveDirectory(folder_ + "/below"), IsOk());
  EXPECT_EQ(std::filesystem::last_write_time(folder_), before);
  std::filesystem::remove_all(folder_);
  std::filesystem::rename(directory_ / "moved", folder_);
  EXPECT_EQ(*files->Identify(file_), *id) << "it is back";
}

TEST_F(LinkFreePathTest, AUsersLinkIsFollowedToWhatIsNotThereYet) {
  const std::string real = std::filesystem::canonical(folder_);
  std::filesystem::create_symlink("later", directory_ / "in/near");
  std::filesystem::create_symlink("../link/near", directory_ / "in/far");
  std::filesystem::create_symlink(directory_ / "none", directory_ / "away");
  for (const std::string link : {"in/near", "link/near", "in/far", "link/far/"}) {
    EXPECT_EQ(std::filesystem::path(FollowLinks(directory_ / link)).lexically_normal(), real + "/later") << link;
  }
  EXPECT_EQ(FollowLinks(directory_ / "away/store"), directory_ / "none/store");
  EXPECT_EQ(FollowLinks(directory_ / "in/loop"), directory_ / "in/loop") << "it leads nowhere";
}

}  // namespace
}  // namespace tidemark::storage
