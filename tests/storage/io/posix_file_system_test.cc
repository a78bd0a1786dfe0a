#include "storage/io/posix_file_system.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/posix_file.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

unsigned ModeOf(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
}

// Holds a file "file" with "old", a directory "folder", a fifo "fifo", and links "link" to the file, "folder-link" to
// the folder.
class PosixFileSystemTest : public testing::Test {
 protected:
  PosixFileSystemTest() {
    std::ofstream(file_) << "old";
    std::filesystem::create_directory(folder_);
    std::filesystem::create_symlink("file", link_);
    std::filesystem::create_symlink("folder", folder_link_);
    EXPECT_EQ(mkfifo(fifo_.c_str(), 0600), 0);
  }

  FileSystem& files_ = PosixFileSystem();
  const TestDirectory directory_;
  const std::string file_ = directory_ / "file";
  const std::string folder_ = directory_ / "folder";
  const std::string fifo_ = directory_ / "fifo";
  const std::string link_ = directory_ / "link";
  const std::string folder_link_ = directory_ / "folder-link";
  const std::string none_ = directory_ / "none";
};

TEST_F(PosixFileSystemTest, CreateDirectoryMakesOneForItsOwnerAlone) {
  EXPECT_THAT(files_.CreateDirectory(none_), IsOk());
  EXPECT_EQ(ModeOf(none_), 0700u);
}

TEST_F(PosixFileSystemTest, CreateDirectoryRefusesAnyNameThatIsThere) {
  for (const std::string& path : {file_, folder_, fifo_, link_}) {
    EXPECT_THAT(files_.CreateDirectory(path),
                StatusIs(StatusCode::kAlreadyExists, "create directory " + path + ": File exists (EEXIST)"));
  }
  EXPECT_THAT(files_.CreateDirectory(none_ + "/x"), StatusIs(StatusCode::kNotFound, HasSubstr(none_ + "/x")));
  EXPECT_THAT(files_.CreateDirectory(file_ + "/x"), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("ENOTDIR")));
}

TEST_F(PosixFileSystemTest, ListDirectoryGivesNamesInByteOrderWithTypes) {
  std::ofstream(directory_ / "Zed") << "";
  auto entries = files_.ListDirectory(directory_.path());
  ASSERT_THAT(entries, IsOk());
  std::vector<std::pair<std::string, FileType>> seen;
  for (const DirectoryEntry& entry : *entries) seen.emplace_back(entry.name, entry.type);
  EXPECT_THAT(seen, ElementsAre(Pair("Zed", FileType::kRegular), Pair("fifo", FileType::kOther),
                                Pair("file", FileType::kRegular), Pair("folder", FileType::kDirectory),
                                Pair("folder-link", FileType::kOther), Pair("link", FileType::kOther)));
  auto empty = files_.ListDirectory(folder_);
  ASSERT_THAT(empty, IsOk());
  EXPECT_TRUE(empty->empty());
}

TEST_F(PosixFileSystemTest, ListDirectoryReportsWhatTheSystemSays) {
  for (const auto& [call, operation] : {std::pair(SYS_getdents64, "list "), std::pair(SYS_newfstatat, "")}) {
    const std::string answer = InChild([&, call = call]() -> std::string {
      if (!DenySystemCalls({static_cast<int>(call)}, EIO)) return "SKIP";
      return files_.ListDirectory(directory_.path()).status().ToString();
    });
    if (answer == "SKIP") GTEST_SKIP() << "this process may not install a system call filter";
    EXPECT_THAT(answer, testing::StartsWith(std::string("INTERNAL: ") + operation));
    EXPECT_THAT(answer, HasSubstr(directory_.path() + ": Input/output error (EIO)"));
  }
}

TEST_F(PosixFileSystemTest, LinksToDirectoriesAndFifosAreNoDirectories) {
  for (const std::string& path : {fifo_, folder_link_}) {
    EXPECT_THAT(files_.ListDirectory(path), StatusIs(StatusCode::kFailedPrecondition, HasSubstr(path)));
    EXPECT_THAT(files_.RemoveDirectory(path), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("ENOTDIR")));
  }
}

TEST_F(PosixFileSystemTest, TypeOfDoesNotFollowLinks) {
  EXPECT_EQ(*files_.TypeOf(file_), FileType::kRegular);
  EXPECT_EQ(*files_.TypeOf(folder_), FileType::kDirectory);
  EXPECT_EQ(*files_.TypeOf(fifo_), FileType::kOther);
  EXPECT_EQ(*files_.TypeOf(link_), FileType::kOther);
  EXPECT_EQ(*files_.TypeOf(folder_link_), FileType::kOther);
  EXPECT_THAT(files_.TypeOf(none_), StatusIs(StatusCode::kNotFound, HasSubstr(none_)));
}

TEST_F(PosixFileSystemTest, OpenForReadRefusesWhatIsNoRegularFile) {
  EXPECT_THAT(files_.OpenForRead(none_, false), StatusIs(StatusCode::kNotFound, HasSubstr("open " + none_)));
  EXPECT_THAT(files_.OpenForRead(folder_, false),
              StatusIs(StatusCode::kFailedPrecondition, "open " + folder_ + ": a directory, not a regular file"));
  EXPECT_THAT(files_.OpenForRead(fifo_, false),
              StatusIs(StatusCode::kFailedPrecondition, "open " + fifo_ + ": a fifo, not a regular file"));
  EXPECT_THAT(files_.OpenForRewrite(fifo_, false), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("fifo")));
  EXPECT_THAT(files_.OpenForRead("/dev/null", false),
              StatusIs(StatusCode::kFailedPrecondition, "open /dev/null: a device, not a regular file"));
  EXPECT_THAT(files_.OpenForRead(link_, false), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("ELOOP")));
}

TEST_F(PosixFileSystemTest, OpenForReadRefusesASocket) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {.sun_family = AF_UNIX};
  std::strncpy(address.sun_path, none_.c_str(), sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_THAT(files_.OpenForRead(none_, false),
              StatusIs(StatusCode::kFailedPrecondition, "open " + none_ + ": a socket, not a regular file"));
  close(fd);
}

// O_NONBLOCK on a file would let io_uring answer EAGAIN over and over.
TEST_F(PosixFileSystemTest, OpenFilesBlockAndAreClosedByExec) {
  auto file = files_.OpenForRead(file_, false);
  ASSERT_THAT(file, IsOk());
  const int fd = static_cast<PosixFile&>(**file).fd();
  EXPECT_EQ(fcntl(fd, F_GETFL) & (O_NONBLOCK | O_ACCMODE), O_RDONLY);
  EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
}

TEST_F(PosixFileSystemTest, CreateMakesAFileForItsOwnerAlone) {
  auto file = files_.Create(none_, false);
  ASSERT_THAT(file, IsOk());
  EXPECT_EQ(ModeOf(none_), 0600u);
  EXPECT_EQ(*(*file)->Size(), 0u);
}

TEST_F(PosixFileSystemTest, CreateReadableGivesOthersWhatTheUmaskLeavesThem) {
  const auto mode_under = [&](mode_t mask) {
    return InChild([&]() -> std::string {
      umask(mask);
      const std::string path = directory_ / ("readable-" + std::to_string(mask));
      auto file = files_.CreateReadable(path);
      return file.ok() ? std::to_string(ModeOf(path)) : file.status().ToString();
    });
  };
  EXPECT_EQ(mode_under(0), std::to_string(0644));
  EXPECT_EQ(mode_under(0022), std::to_string(0644));
  EXPECT_EQ(mode_under(0027), std::to_string(0640));
  EXPECT_THAT(files_.CreateReadable(file_),
              StatusIs(StatusCode::kAlreadyExists, "create " + file_ + ": File exists (EEXIST)"));
}

TEST_F(PosixFileSystemTest, CreateRefusesAnyNameThatIsThere) {
  std::filesystem::create_symlink("nowhere", directory_ / "dangling");
  for (const std::string& path : {file_, folder_, fifo_, link_, directory_ / "dangling"}) {
    for (const bool direct : {false, true}) {
      EXPECT_THAT(files_.Create(path, direct),
                  StatusIs(StatusCode::kAlreadyExists, "create " + path + ": File exists (EEXIST)"));
    }
  }
  EXPECT_FALSE(std::filesystem::exists(directory_ / "nowhere"));
  EXPECT_THAT(files_.Create(none_ + "/x", false), StatusIs(StatusCode::kNotFound, HasSubstr(none_ + "/x")));
}

TEST_F(PosixFileSystemTest, CallsWithoutTheRightAreDenied) {
  const std::string locked = directory_ / "locked";
  std::filesystem::create_directory(locked);
  std::ofstream(locked + "/x") << "";
  ASSERT_EQ(chmod(locked.c_str(), 0), 0);
  const auto without_rights = [&](const std::function<absl::Status()>& call) {
    return InChild([&] { return GiveUpRights() ? call().ToString() : "may not give up its rights"; });
  };
  const auto denied = testing::StartsWith("PERMISSION_DENIED: ");
  EXPECT_THAT(without_rights([&] { return files_.OpenForRead(locked + "/x", false).status(); }), denied);
  EXPECT_THAT(without_rights([&] { return files_.Create(locked + "/y", false).status(); }), denied);
  EXPECT_THAT(without_rights([&] { return files_.CreateDirectory(locked + "/y"); }), denied);
  EXPECT_THAT(without_rights([&] { return files_.ListDirectory(locked).status(); }), denied);
  EXPECT_THAT(without_rights([&] { return files_.TypeOf(locked + "/x").status(); }), denied);
  EXPECT_THAT(without_rights([&] { return files_.SyncDirectory(locked); }), denied);
  EXPECT_THAT(without_rights([&] { return files_.RemoveFile(locked + "/x"); }), denied);
  EXPECT_THAT(without_rights([&] { return files_.TryLock(locked + "/x").status(); }), denied);
  ASSERT_EQ(chmod(locked.c_str(), 0700), 0);
}

TEST_F(PosixFileSystemTest, RemoveFileTakesLinksAndLeavesTheirTargets) {
  EXPECT_THAT(files_.RemoveFile(link_), IsOk());
  EXPECT_EQ(*files_.TypeOf(file_), FileType::kRegular);
  EXPECT_THAT(files_.RemoveFile(file_), IsOk());
  EXPECT_THAT(files_.RemoveFile(file_), StatusIs(StatusCode::kNotFound, HasSubstr("remove " + file_)));
  EXPECT_THAT(files_.RemoveFile(folder_), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("EISDIR")));
}

TEST_F(PosixFileSystemTest, SyncDirectorySyncsDirectoriesAlone) {
  EXPECT_THAT(files_.SyncDirectory(folder_), IsOk());
  EXPECT_THAT(files_.SyncDirectory(none_), StatusIs(StatusCode::kNotFound, HasSubstr(none_)));
  EXPECT_THAT(files_.SyncDirectory(file_), StatusIs(StatusCode::kFailedPrecondition, HasSubstr(file_)));
  const std::string answer = InChild([&]() -> std::string {
    if (!DenySystemCalls({SYS_fsync}, EIO)) return "SKIP";
    return files_.SyncDirectory(folder_).ToString();
  });
  if (answer == "SKIP") GTEST_SKIP() << "this process may not install a system call filter";
  EXPECT_EQ(answer, "INTERNAL: sync directory " + folder_ + ": Input/output error (EIO)");
}

TEST_F(PosixFileSystemTest, NewIoQueueTakesThreadsWhereThereIsNoUring) {
  PosixFiles files([](size_t) { return absl::UnavailableError("not in this container"); });
  auto queue = files.NewIoQueue(IoQueueKind::kAuto, 4);
  ASSERT_THAT(queue, IsOk());
  EXPECT_EQ((*queue)->name(), "threads");
  EXPECT_EQ((*queue)->note(), "not in this container");
  EXPECT_THAT(files.NewIoQueue(IoQueueKind::kUring, 4), StatusIs(StatusCode::kUnavailable, "not in this container"));
}

TEST_F(PosixFileSystemTest, NewIoQueueDoesNotAskForUringWhereThreadsAreWanted) {
  PosixFiles files([](size_t) -> absl::StatusOr<std::unique_ptr<IoQueue>> {
    ADD_FAILURE() << "asked";
    return absl::UnavailableError("none");
  });
  auto queue = files.NewIoQueue(IoQueueKind::kThreads, 4);
  ASSERT_THAT(queue, IsOk());
  EXPECT_EQ((*queue)->name(), "threads");
}

}  // namespace
}  // namespace tidemark::storage
