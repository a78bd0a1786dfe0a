// Who may read a store: its owner alone, whatever the umask, and each of its files.

#include <grp.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/journal_calls.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/other_process.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/index/index_threads.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

using storage::IsOk;
using testing::IsSupersetOf;

class FileModesTest : public testing::Test {
 protected:
  FileModesTest() : before_(umask(0)) {}
  ~FileModesTest() override { umask(before_); }

  std::unique_ptr<AsyncCheckpointer> Open() {
    auto opened = AsyncCheckpointer::Open({.directory = store_,
                                           .retention = {.max_to_keep = 2},
                                           .metrics_file = store_ + "/metrics.prom",
                                           .observer = NoWarnings()});
    EXPECT_THAT(opened, IsOk());
    return *std::move(opened);
  }

  // What workers and commands write.
  void AppendFromOtherProcesses(int64_t step) {
    const OtherProcess other(store_);
    ASSERT_THAT(other.Report(step, {.evaluator = "worker", .worker = "w", .metrics = {{"loss", 0.5}}}), IsOk());
    ASSERT_THAT(other.AskToDelete(step, "old"), IsOk());
    const auto reader = StoreReader::Open(store_);
    ASSERT_THAT(reader, IsOk());
    ASSERT_THAT((*reader)->Load(step), IsOk());  // with a lease
  }

  // Holds every mode, and returns the names, with digits left out.
  std::set<std::string> Walk() {
    std::set<std::string> names;
    const auto look = [&](const std::string& path, const std::string& name) {
      struct stat info;
      if (lstat(path.c_str(), &info) != 0) {
        EXPECT_EQ(errno, ENOENT) << path;  // RocksDB's threads remove files of a store that is open
        return;
      }
      const mode_t expected = S_ISDIR(info.st_mode)    ? S_IFDIR | 0700
                              : name == "metrics.prom" ? S_IFREG | 0644
                                                       : S_IFREG | 0600;
      EXPECT_EQ(info.st_mode, expected) << path;
      constexpr std::string_view kSpare = "spare-";  // before hexadecimal digits
      names.insert(name.substr(0, name.starts_with(kSpare) ? kSpare.size() : name.find_first_of("0123456789")));
    };
    look(store_, "");
    for (const auto& entry : std::filesystem::recursive_directory_iterator(store_)) {
      look(entry.path(), entry.path().filename());
    }
    return names;
  }

  const mode_t before_;
  const storage::TestDirectory directory_;
  const std::string store_ = directory_ / "a/store";
};

TEST_F(FileModesTest, EveryFileOfAStoreIsItsOwnersAlone) {
  {
    auto checkpointer = Open();
    ASSERT_THAT(checkpointer->AddEvaluator({.name = "inside"},
                                           [](auto&) {
                                             return Verdict(Metrics{{"loss", 1}});
                                           }),
                IsOk());
    TestTrainer trainer;
    for (int64_t step = 1; step <= 5; ++step) {
      ASSERT_THAT(checkpointer->Save(step, trainer.state), IsOk());
      ASSERT_THAT(checkpointer->WaitUntilCommitted(), IsOk());
    }
    ASSERT_THAT(checkpointer->Save(5, trainer.state, {.overwrite = true}), IsOk());
    ASSERT_THAT(checkpointer->WaitUntilCommitted(), IsOk());
    ASSERT_THAT(checkpointer->Pin(5, "the best"), IsOk());
    // Then the housekeeper is at rest.
    ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
    ASSERT_THAT(checkpointer->Tidy(), IsOk());
    EXPECT_THAT(Walk(), IsSupersetOf({"LOCK", "store.json", "journal", "spare-", "room-", "index", "MANIFEST-",
                                      "CURRENT", "steps", "shard-"}));
    ASSERT_THAT(checkpointer->Close(), IsOk());
  }
  struct stat parent;
  ASSERT_EQ(lstat((directory_ / "a").c_str(), &parent), 0);
  EXPECT_EQ(parent.st_mode & 07777, 0700u);
  AppendFromOtherProcesses(5);
  EXPECT_THAT(Walk(), IsSupersetOf({"leases", "metrics.prom"}));
}

constexpr uid_t kOtherUser = 65534;

// As `setfacl -m u:65534:PERMISSIONS` does, whose other lines are these too.
bool SetAcl(const std::string& path, const char* attribute, uint16_t owner, uint16_t other_user, uint16_t rest) {
  struct Acl {
    posix_acl_xattr_header header = {.a_version = POSIX_ACL_XATTR_VERSION};
    posix_acl_xattr_entry entries[5];
  } const acl = {.entries = {{ACL_USER_OBJ, owner, ~0u},
                             {ACL_USER, other_user, kOtherUser},
                             {ACL_GROUP_OBJ, rest, ~0u},
                             {ACL_MASK, other_user, ~0u},
                             {ACL_OTHER, rest, ~0u}}};
  return setxattr(path.c_str(), attribute, &acl, sizeof(acl), 0) == 0;
}

// The group's bits of a mode are the mask of an access control list, if there is one.
TEST_F(FileModesTest, ADefaultAclOpensNothingToOthers) {
  // What is made in the directory is another user's too, as far as its mode allows.
  if (!SetAcl(directory_.path(), "system.posix_acl_default", 7, 7, 7)) {
    GTEST_SKIP() << "no access control lists: " << std::strerror(errno);
  }
  const std::string plain = directory_ / "plain";
  std::ofstream(plain).close();
  ASSERT_GT(getxattr(plain.c_str(), "system.posix_acl_access", nullptr, 0), 0) << "files in it get the list";
  auto checkpointer = Open();
  TestTrainer trainer;
  ASSERT_THAT(checkpointer->Save(1, trainer.state), IsOk());
  ASSERT_THAT(checkpointer->Close(), IsOk());
  AppendFromOtherProcesses(1);
  EXPECT_THAT(Walk(), IsSupersetOf({"journal", "index", "steps", "shard-", "leases"}));
}

TEST_F(FileModesTest, SoIsWhatARebuildMakes) {
  {
    auto checkpointer = Open();
    TestTrainer trainer;
    for (int64_t step = 1; step <= 2; ++step) ASSERT_THAT(checkpointer->Save(step, trainer.state), IsOk());
    ASSERT_THAT(checkpointer->Close(), IsOk());
  }
  FlipBit(ShardPath(store_, 2), 4100);
  std::filesystem::remove_all(store_ + "/index");
  DamageJournal(store_);
  ASSERT_THAT(Open()->Close(), IsOk());
  EXPECT_THAT(Walk(),
              testing::IsSupersetOf({testing::StartsWith("journal.broken-"), testing::StartsWith("quarantine")}));
}

constexpr char kMayNot[] = "may not be another user";

bool BecomeOtherUser() { return setgroups(0, nullptr) == 0 && setgid(kOtherUser) == 0 && setuid(kOtherUser) == 0; }

// Reads the store as a user who owns none of it and has no rights of root's.
std::string ReadAsOtherUser(const std::string& store) {
  storage::EndIndexThreads();
  return storage::InChild([&]() -> std::string {
    if (!BecomeOtherUser()) return kMayNot;
    const auto reader = StoreReader::Open(store);
    if (!reader.ok()) return reader.status().ToString();
    const auto epoch = (*reader)->ReadEntry(1, "epoch");
    if (!epoch.ok()) return epoch.status().ToString();
    const absl::StatusOr<VerifyReport> verified = (*reader)->Verify(1);
    if (!verified.ok()) return verified.status().ToString();
    return verified->damage.empty() && (*reader)->journal_problem().ok() ? "read" : "not all of it";
  });
}

// Whether that user may look into the folder, which is open to all: a folder above may be closed.
bool IsReachedByOtherUser(const std::string& folder) {
  storage::EndIndexThreads();
  return storage::InChild([&]() -> std::string {
           if (!BecomeOtherUser()) return kMayNot;
           return access(folder.c_str(), R_OK | X_OK) == 0 ? "reached" : "closed";
         }) == "reached";
}

TEST_F(FileModesTest, AnAclOnTheFilesThatExistOpensThemToAnotherUser) {
  if (storage::kThreadSanitizer) GTEST_SKIP() << storage::kNoThreadsInChild;
  if (geteuid() != 0) GTEST_SKIP() << "only root may be another user";
  {
    auto checkpointer = Open();
    TestTrainer trainer;
    ASSERT_THAT(checkpointer->Save(1, trainer.state), IsOk());
    ASSERT_THAT(checkpointer->Close(), IsOk());
  }
  const std::string unopened = ReadAsOtherUser(store_);
  if (unopened == kMayNot) GTEST_SKIP() << "this root " << kMayNot;
  EXPECT_THAT(unopened, testing::HasSubstr("Permission denied"));
  const auto open_to_read = [](const std::string& path) {
    return SetAcl(path, "system.posix_acl_access", 7, std::filesystem::is_directory(path) ? 5 : 4, 0);
  };
  if (!open_to_read(directory_.path())) GTEST_SKIP() << "no access control lists: " << std::strerror(errno);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_.path())) {
    ASSERT_TRUE(open_to_read(entry.path())) << entry.path();
  }
  if (!IsReachedByOtherUser(directory_.path())) GTEST_SKIP() << "a folder above " << directory_.path() << " is closed";
  EXPECT_EQ(ReadAsOtherUser(store_), "read");
}

}  // namespace
}  // namespace tidemark
