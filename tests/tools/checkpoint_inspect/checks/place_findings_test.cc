#include "tools/checkpoint_inspect/checks/place_findings.h"

#include <algorithm>
#include <cerrno>

#include "gmock/gmock.h"
#include "storage/io/errno_status.h"

namespace tidemark::inspect {
namespace {

using storage::ErrnoStatus;
using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kExt4 = 0xef53;
constexpr uint64_t kNfs = 0x6969;
constexpr uint64_t kTmpfs = 0x01021994;
constexpr uint64_t kOverlay = 0x794c7630;
constexpr uint64_t kProc = 0x9fa0;
constexpr double kMebi = 1 << 20;

// With nothing wrong.
PlaceFacts GoodPlace() {
  return {.directory = "run",
          .is_there = true,
          .file_system = "ext4 on /dev/vda1",
          .file_system_magic = kExt4,
          .free_bytes = uint64_t{1} << 40,
          .free_inodes = 1'000'000,
          .direct = true,
          .nameless_files = true};
}

MachineFacts GoodMachine() {
  return {.open_files_max = 1024,
          .memory_bytes = uint64_t{1} << 34,
          .huge_pages = "madvise",
          .vectors = "avx512",
          .cores = 8};
}

DiskSpeed GoodSpeed() {
  return {.bytes = 1 << 30,
          .write_bytes_per_second = 1000 * kMebi,
          .read_bytes_per_second = 2000 * kMebi,
          .direct = true,
          .queue = "io_uring"};
}

SyncSpeed GoodSyncs() { return {.syncs = 10, .median = absl::Milliseconds(1), .longest = absl::Milliseconds(2)}; }

Finding Named(const std::vector<Finding>& findings, const std::string& check) {
  for (const Finding& finding : findings) {
    if (finding.check == check) return finding;
  }
  ADD_FAILURE() << "nothing was said of " << check;
  return {};
}

auto Is(Verdict verdict, const std::string& found, const std::string& advice) {
  return AllOf(Field(&Finding::verdict, verdict), Field(&Finding::found, HasSubstr(found)),
               Field(&Finding::advice, HasSubstr(advice)));
}

// Where the verdict is ok, nothing is to be changed, and where it is not, something is.
void ExpectAdviceWhereItIsNeeded(const std::vector<Finding>& findings) {
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.verdict == Verdict::kOk, finding.advice.empty()) << finding.check;
    EXPECT_NE(finding.found, "") << finding.check;
  }
}

TEST(JudgePlace, FindsNothingWrongWithADiskThatDoesEverything) {
  const std::vector<Finding> findings = JudgePlace(GoodPlace(), "run");
  EXPECT_EQ(Worst(findings), Verdict::kOk);
  ExpectAdviceWhereItIsNeeded(findings);
}

TEST(JudgePlace, SaysWhichDirectoryItLookedAtInstead) {
  PlaceFacts facts = GoodPlace();
  facts.is_there = false;
  EXPECT_THAT(Named(JudgePlace(facts, "run/new/store"), "directory"),
              Is(Verdict::kOk, "run/new/store does not exist; checked run instead", ""));
  facts.directory = ".";
  EXPECT_THAT(Named(JudgePlace(facts, "new"), "directory"),
              Is(Verdict::kOk, "new does not exist; checked the current directory instead", ""));
}

TEST(JudgePlace, EndsWhereThereIsNoDirectory) {
  const std::vector<Finding> findings =
      JudgePlace({.found = absl::FailedPreconditionError("a is not a directory")}, "a");
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_THAT(findings[0], Is(Verdict::kMissing, "a is not a directory", "name a directory"));
}

TEST(JudgePlace, EndsWhereNothingCanBeWritten) {
  PlaceFacts facts = GoodPlace();
  facts.writable = ErrnoStatus(EROFS, "create directory", "run/x");
  const std::vector<Finding> findings = JudgePlace(facts, "run");
  EXPECT_EQ(findings.back().check, "writable");
  EXPECT_THAT(findings.back(), Is(Verdict::kMissing, "(EROFS)", "mounted for writing"));
  ExpectAdviceWhereItIsNeeded(findings);
}

TEST(JudgePlace, KnowsWhatAFileSystemIsGoodFor) {
  PlaceFacts facts = GoodPlace();
  const auto judge = [&](uint64_t magic) {
    facts.file_system_magic = magic;
    return Named(JudgePlace(facts, "run"), "file system");
  };
  EXPECT_THAT(judge(kExt4), Is(Verdict::kOk, "ext4 on /dev/vda1", ""));
  EXPECT_THAT(judge(kTmpfs), Is(Verdict::kRisk, "", "power"));
  EXPECT_THAT(judge(kOverlay), Is(Verdict::kRisk, "", "mount a volume"));
  EXPECT_THAT(judge(kNfs), Is(Verdict::kRisk, "", "local_lock"));
  EXPECT_THAT(judge(kProc), Is(Verdict::kMissing, "", "stores no files"));
}

TEST(JudgePlace, MissesWhatACommitNeeds) {
  PlaceFacts facts = GoodPlace();
  facts.durable_names = ErrnoStatus(EINVAL, "sync directory", "run/x");
  facts.new_names = ErrnoStatus(EPERM, "rename run/x/third to new", "run/x/taken");
  facts.locks = ErrnoStatus(ENOLCK, "lock", "run/x/LOCK");
  const std::vector<Finding> findings = JudgePlace(facts, "run");
  EXPECT_THAT(Named(findings, "durable names"), Is(Verdict::kMissing, "(EINVAL)", "not be atomic"));
  EXPECT_THAT(Named(findings, "new names"), Is(Verdict::kMissing, "(EPERM)", "each other's records"));
  EXPECT_THAT(Named(findings, "locks"), Is(Verdict::kMissing, "(ENOLCK)", "two trainers"));
}

TEST(JudgePlace, CallsSlowWhatGoesWithout) {
  PlaceFacts facts = GoodPlace();
  facts.direct = false;
  facts.nameless_files = false;
  facts.hard_links = ErrnoStatus(EPERM, "link run/x/file to", "run/x/link");
  facts.allocate = ErrnoStatus(EOPNOTSUPP, "allocate 65536 bytes for", "run/x");
  const std::vector<Finding> findings = JudgePlace(facts, "run");
  EXPECT_THAT(Named(findings, "O_DIRECT"), Is(Verdict::kSlow, "none", "page cache"));
  EXPECT_THAT(Named(findings, "hard links"), Is(Verdict::kSlow, "(EPERM)", "very many saves"));
  EXPECT_THAT(Named(findings, "fallocate"), Is(Verdict::kSlow, "(EOPNOTSUPP)", "wait for each other"));
  EXPECT_THAT(Named(findings, "O_TMPFILE"), Is(Verdict::kOk, "has its name before it is complete", ""));
  EXPECT_EQ(Worst(findings), Verdict::kSlow);
}

TEST(JudgePlace, MissesRoomForBytesAndForFiles) {
  PlaceFacts facts = GoodPlace();
  facts.free_bytes = kFreeBytesMin;
  facts.free_inodes = kFreeInodesMin;
  EXPECT_THAT(Named(JudgePlace(facts, "run"), "space"), Is(Verdict::kOk, "4.0 MiB free, 64 more files", ""));
  facts.free_bytes = kFreeBytesMin - 1;
  EXPECT_THAT(Named(JudgePlace(facts, "run"), "space"), Is(Verdict::kMissing, "", "free some space"));
  facts.free_bytes = kFreeBytesMin;
  facts.free_inodes = kFreeInodesMin - 1;
  EXPECT_THAT(Named(JudgePlace(facts, "run"), "space"), Is(Verdict::kMissing, "63 more files", "inodes"));
  facts.free_inodes = std::nullopt;
  EXPECT_THAT(Named(JudgePlace(facts, "run"), "space"), Is(Verdict::kOk, "any number of files", ""));
}

TEST(JudgeMachine, FindsNothingWrongWithAGoodOne) {
  const std::vector<Finding> findings = JudgeMachine(GoodMachine());
  EXPECT_EQ(Worst(findings), Verdict::kOk);
  ExpectAdviceWhereItIsNeeded(findings);
}

TEST(JudgeMachine, SaysWhoRefusesIoUring) {
  MachineFacts facts = GoodMachine();
  const auto judge = [&](int error) {
    facts.uring = ErrnoStatus(error, "create", "io_uring");
    return Named(JudgeMachine(facts), "io_uring");
  };
  EXPECT_THAT(judge(EPERM), Is(Verdict::kSlow, "(EPERM)", "seccomp"));
  EXPECT_THAT(judge(EACCES), Is(Verdict::kSlow, "(EACCES)", "seccomp"));
  EXPECT_THAT(judge(ENOSYS), Is(Verdict::kSlow, "(ENOSYS)", "Linux 5.6"));
  EXPECT_THAT(judge(ENOMEM), Is(Verdict::kSlow, "(ENOMEM)", "ulimit -l"));
  EXPECT_THAT(judge(EIO), Is(Verdict::kSlow, "(EIO)", "the kernel's log"));
  facts.uring_disabled = 0;
  EXPECT_THAT(judge(EPERM), Is(Verdict::kSlow, "(EPERM)", "seccomp"));
  facts.uring_disabled = 2;
  EXPECT_THAT(judge(EPERM), Is(Verdict::kSlow, "(EPERM)", "kernel.io_uring_disabled is 2"));
}

TEST(JudgeMachine, HoldsTheLockedMemoryAgainstWhatStagingMayLock) {
  MachineFacts facts = GoodMachine();
  EXPECT_THAT(Named(JudgeMachine(facts), "locked memory"), Is(Verdict::kOk, "not limited", ""));
  facts.locked_memory_max = facts.memory_bytes / 2;
  EXPECT_THAT(Named(JudgeMachine(facts), "locked memory"), Is(Verdict::kOk, "8.0 GiB", ""));
  facts.locked_memory_max = 8 << 20;
  EXPECT_THAT(Named(JudgeMachine(facts), "locked memory"),
              Is(Verdict::kSlow, "at most 8.0 MiB", "For a state of more than 4.0 MiB it stays unlocked"));
  facts.registered_memory = ErrnoStatus(ENOMEM, "register 16777216 bytes of memory with", "io_uring");
  EXPECT_THAT(Named(JudgeMachine(facts), "locked memory"), Is(Verdict::kSlow, "(ENOMEM)", "at every write"));
}

TEST(JudgeMachine, MissesDescriptorsForARestore) {
  MachineFacts facts = GoodMachine();
  facts.open_files_max = kOpenFilesMin;
  EXPECT_THAT(Named(JudgeMachine(facts), "open files"), Is(Verdict::kOk, "at most 256", ""));
  facts.open_files_max = kOpenFilesMin - 1;
  EXPECT_THAT(Named(JudgeMachine(facts), "open files"), Is(Verdict::kMissing, "at most 255", "ulimit -n"));
  facts.open_files_max = std::nullopt;
  EXPECT_THAT(Named(JudgeMachine(facts), "open files"), Is(Verdict::kOk, "not limited", ""));
}

TEST(JudgeMachine, CallsSlowAWeakMachine) {
  MachineFacts facts = GoodMachine();
  facts.huge_pages = "never";
  facts.vectors = "portable";
  facts.cores = 1;
  std::vector<Finding> findings = JudgeMachine(facts);
  EXPECT_THAT(Named(findings, "huge pages"), Is(Verdict::kSlow, "never", "transparent_hugepage"));
  EXPECT_THAT(Named(findings, "CPU vectors"), Is(Verdict::kSlow, "none", "AVX2"));
  EXPECT_THAT(Named(findings, "cores"), Is(Verdict::kSlow, "1", "another core"));
  ExpectAdviceWhereItIsNeeded(findings);
  facts.huge_pages = "";
  EXPECT_THAT(Named(JudgeMachine(facts), "huge pages"), Is(Verdict::kSlow, "the kernel has none", "CPU"));
}

TEST(JudgeSpeed, NamesRatesAndTimes) {
  const std::vector<Finding> findings = JudgeSpeed(GoodSpeed(), GoodSyncs());
  EXPECT_THAT(findings, ElementsAre(Is(Verdict::kOk, "1000.0 MiB/s (1.0 GiB by io_uring)", ""),
                                    Is(Verdict::kOk, "2.0 GiB/s", ""), Is(Verdict::kOk, "1.0 ms at the median", "")));
}

TEST(JudgeSpeed, CallsSlowWhatASingleMagneticDiskOutdoes) {
  DiskSpeed speed = GoodSpeed();
  speed.write_bytes_per_second = 10 * kMebi;
  speed.read_bytes_per_second = 99.9 * kMebi;
  speed.direct = false;
  SyncSpeed syncs = GoodSyncs();
  syncs.median = kSyncMax + absl::Milliseconds(1);
  const std::vector<Finding> findings = JudgeSpeed(speed, syncs);
  EXPECT_THAT(findings, ElementsAre(Is(Verdict::kSlow, "through the page cache", "10 GiB take 1024.00 s"),
                                    Is(Verdict::kSlow, "99.9 MiB/s", "faster disk"),
                                    Is(Verdict::kSlow, "51.0 ms at the median", "write cache")));
  speed.write_bytes_per_second = kBytesPerSecondMin;
  EXPECT_EQ(JudgeSpeed(speed, syncs)[0].verdict, Verdict::kOk);
}

TEST(JudgeSpeed, MissesADiskThatFails) {
  EXPECT_THAT(JudgeSpeed(ErrnoStatus(ENOSPC, "write", "run/x"), absl::UnknownError("")),
              ElementsAre(Is(Verdict::kMissing, "(ENOSPC)", "a save would fail")));
  EXPECT_THAT(JudgeSpeed(GoodSpeed(), ErrnoStatus(EIO, "sync", "run/x")).back(),
              Is(Verdict::kMissing, "(EIO)", "a save would fail"));
}

TEST(Worst, IsOkWhereNothingWasFound) { EXPECT_EQ(Worst({}), Verdict::kOk); }

}  // namespace
}  // namespace tidemark::inspect
