#include "tools/checkpoint_inspect/checks/place_facts.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cerrno>
#include <filesystem>

#include "gmock/gmock.h"
#include "tests/storage/io/child_process.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

namespace fs = std::filesystem;

using storage::PosixFileSystem;
using testing::AnyOf;
using testing::Eq;
using testing::HasSubstr;

constexpr uint64_t kProcMagic = 0x9fa0;

std::string StatusText(const absl::Status& status) { return status.ok() ? "ok" : std::string(status.message()); }

TEST(LookAtPlace, TriesOutADirectoryAndLeavesItAsItWas) {
  const TestStore folder;
  const PlaceFacts facts = LookAtPlace(PosixFileSystem(), folder.directory());
  EXPECT_EQ(facts.directory, folder.directory());
  EXPECT_TRUE(facts.is_there);
  EXPECT_EQ(StatusText(facts.found), "ok");
  EXPECT_EQ(StatusText(facts.writable), "ok");
  EXPECT_EQ(StatusText(facts.durable_names), "ok");
  EXPECT_EQ(StatusText(facts.new_names), "ok");
  EXPECT_EQ(StatusText(facts.hard_links), "ok");
  EXPECT_EQ(StatusText(facts.locks), "ok");
  EXPECT_GT(facts.free_bytes, 0U);
  EXPECT_THAT(facts.file_system, HasSubstr(" on "));
  EXPECT_TRUE(fs::is_empty(folder.directory()));
}

TEST(LookAtPlace, TakesTheNearestDirectoryThatIsThere) {
  const TestStore folder;
  for (const char* absent : {"/absent", "/absent/deeper/", "/absent//deeper/still"}) {
    const PlaceFacts facts = LookAtPlace(PosixFileSystem(), folder.directory() + absent);
    EXPECT_EQ(facts.directory, folder.directory()) << absent;
    EXPECT_FALSE(facts.is_there);
    EXPECT_EQ(StatusText(facts.writable), "ok");
  }
  EXPECT_TRUE(fs::is_empty(folder.directory()));
}

TEST(LookAtPlace, FollowsTheLinksOfItsUser) {
  const TestStore folder;
  const TestStore target;
  const std::string link = folder.directory() + "/link";
  fs::create_directory_symlink(target.directory(), link);
  EXPECT_EQ(LookAtPlace(PosixFileSystem(), link).directory, target.directory());
  EXPECT_EQ(StatusText(LookAtPlace(PosixFileSystem(), link + "/absent").writable), "ok");
}

TEST(LookAtPlace, FindsThatAFileStandsInTheWay) {
  const TestStore folder;
  WriteWhole(folder.directory() + "/file", "text");
  const PlaceFacts facts = LookAtPlace(PosixFileSystem(), folder.directory() + "/file/store");
  EXPECT_EQ(facts.directory, "");
  EXPECT_EQ(StatusText(facts.found), folder.directory() + "/file is not a directory");
}

TEST(LookAtPlace, FindsADirectoryThatCannotBeWritten) {
  const TestStore folder;
  ASSERT_EQ(chmod(folder.directory().c_str(), 0500), 0);
  const std::string answer = storage::InChild([&]() -> std::string {
    if (!storage::GiveUpRights()) return "may not give up its rights";
    return StatusText(LookAtPlace(PosixFileSystem(), folder.directory()).writable);
  });
  ASSERT_EQ(chmod(folder.directory().c_str(), 0700), 0);
  EXPECT_THAT(answer, HasSubstr("(EACCES)"));
}

TEST(LookAtPlace, FindsADirectoryThatCannotBeSearched) {
  const TestStore folder;
  fs::create_directory(folder.directory() + "/closed");
  ASSERT_EQ(chmod((folder.directory() + "/closed").c_str(), 0), 0);
  const std::string answer = storage::InChild([&]() -> std::string {
    if (!storage::GiveUpRights()) return "may not give up its rights";
    return StatusText(LookAtPlace(PosixFileSystem(), folder.directory() + "/closed/store").found);
  });
  ASSERT_EQ(chmod((folder.directory() + "/closed").c_str(), 0700), 0);
  EXPECT_THAT(answer, HasSubstr("(EACCES)"));
}

TEST(LookAtPlace, FindsThatTheKernelsFilesAreNone) {
  const PlaceFacts facts = LookAtPlace(PosixFileSystem(), "/proc/store");
  EXPECT_EQ(facts.directory, "/proc");
  EXPECT_EQ(facts.file_system_magic, kProcMagic);
  EXPECT_FALSE(facts.writable.ok());
}

TEST(LookAtPlace, SaysWhichOfItsTrialsTheSystemRefused) {
  const TestStore folder;
  const auto look = [&](int call, int error, auto field) {
    return storage::InChild([&]() -> std::string {
      if (!storage::DenySystemCalls({call}, error)) return "may not deny system calls";
      return StatusText(field(LookAtPlace(PosixFileSystem(), folder.directory())));
    });
  };
  EXPECT_THAT(look(SYS_flock, ENOLCK, [](const PlaceFacts& facts) { return facts.locks; }), HasSubstr("(ENOLCK)"));
  EXPECT_THAT(look(SYS_fsync, EINVAL, [](const PlaceFacts& facts) { return facts.durable_names; }),
              HasSubstr("(EINVAL)"));
  EXPECT_THAT(look(SYS_renameat2, EIO, [](const PlaceFacts& facts) { return facts.new_names; }), HasSubstr("(EIO)"));
  EXPECT_THAT(look(SYS_linkat, EPERM, [](const PlaceFacts& facts) { return facts.hard_links; }), HasSubstr("(EPERM)"));
  EXPECT_THAT(look(SYS_fallocate, EOPNOTSUPP, [](const PlaceFacts& facts) { return facts.allocate; }),
              HasSubstr("(EOPNOTSUPP)"));
  // A lock that is given out twice.
  EXPECT_THAT(look(SYS_flock, 0, [](const PlaceFacts& facts) { return facts.locks; }),
              HasSubstr("two opens got the lock"));
  EXPECT_TRUE(fs::is_empty(folder.directory()));
}

TEST(LookAtMachine, FindsWhatThisOneHas) {
  const MachineFacts facts = LookAtMachine(PosixFileSystem());
  EXPECT_GT(facts.cores, 0U);
  EXPECT_GT(facts.memory_bytes, 0U);
  EXPECT_THAT(facts.vectors, AnyOf(Eq("avx512"), Eq("avx2"), Eq("portable")));
  EXPECT_THAT(facts.huge_pages, AnyOf(Eq("always"), Eq("madvise"), Eq("never"), Eq("")));
}

TEST(LookAtMachine, FindsTheLimitsOfTheProcess) {
  const std::string answer = storage::InChild([]() -> std::string {
    const rlimit files = {.rlim_cur = 100, .rlim_max = 100};
    const rlimit memory = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    if (setrlimit(RLIMIT_NOFILE, &files) != 0 || setrlimit(RLIMIT_MEMLOCK, &memory) != 0) return "may not set limits";
    if (!storage::GiveUpRights()) return "may not give up its rights";
    const MachineFacts facts = LookAtMachine(PosixFileSystem());
    return std::to_string(facts.open_files_max.value_or(0)) + " files, " +
           std::to_string(facts.locked_memory_max.value_or(0)) + " bytes";
  });
  EXPECT_EQ(answer, "100 files, 1048576 bytes");
}

TEST(LookAtMachine, SaysThatTheKernelRefusesIoUring) {
  const std::string answer = storage::InChild([]() -> std::string {
    if (!storage::DenySystemCalls({SYS_io_uring_setup}, EPERM)) return "may not deny system calls";
    return StatusText(LookAtMachine(PosixFileSystem()).uring);
  });
  EXPECT_THAT(answer, HasSubstr("(EPERM)"));
}

TEST(TrialFile, LeavesNothingBehind) {
  const TestStore folder;
  {
    const auto file = TrialFile::Create(PosixFileSystem(), folder.directory());
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->nameless(), fs::is_empty(folder.directory()));
    const std::vector<std::byte> page(4096);
    EXPECT_TRUE((*file)->file().Truncate(4096).ok());
  }
  EXPECT_TRUE(fs::is_empty(folder.directory()));
  EXPECT_EQ(TrialFile::Create(PosixFileSystem(), folder.directory() + "/absent").status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tidemark::inspect
