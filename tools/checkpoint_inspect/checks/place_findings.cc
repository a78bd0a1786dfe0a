#include "tools/checkpoint_inspect/checks/place_findings.h"

#include <algorithm>
#include <array>

#include "fmt/format.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

enum class FileSystemKind {
  kDisk,
  kMemory,     // gone with the power
  kContainer,  // gone with the container
  kNetwork,    // other machines see it too
  kKernel,     // no place for anybody's files
};

struct KnownFileSystem {
  uint64_t magic;
  FileSystemKind kind;
};

// The numbers are those of linux/magic.h and statfs(2). What is not among them is taken for a disk.
constexpr std::array<KnownFileSystem, 22> kFileSystems = {{
    {0x01021994, FileSystemKind::kMemory},     // tmpfs
    {0x858458f6, FileSystemKind::kMemory},     // ramfs
    {0x794c7630, FileSystemKind::kContainer},  // overlayfs
    {0x6969, FileSystemKind::kNetwork},        // NFS
    {0x517b, FileSystemKind::kNetwork},        // SMB
    {0xff534d42, FileSystemKind::kNetwork},    // CIFS
    {0xfe534d42, FileSystemKind::kNetwork},    // SMB2
    {0x0bd00bd0, FileSystemKind::kNetwork},    // Lustre
    {0x00c36400, FileSystemKind::kNetwork},    // Ceph
    {0x47504653, FileSystemKind::kNetwork},    // GPFS
    {0x19830326, FileSystemKind::kNetwork},    // BeeGFS
    {0x01161970, FileSystemKind::kNetwork},    // GFS2
    {0x7461636f, FileSystemKind::kNetwork},    // OCFS2
    {0x5346414f, FileSystemKind::kNetwork},    // AFS
    {0x65735546, FileSystemKind::kNetwork},    // FUSE: what is behind it, it alone knows
    {0x01021997, FileSystemKind::kNetwork},    // 9p
    {0x9fa0, FileSystemKind::kKernel},         // proc
    {0x62656572, FileSystemKind::kKernel},     // sysfs
    {0x27e0eb, FileSystemKind::kKernel},       // cgroup
    {0x63677270, FileSystemKind::kKernel},     // cgroup2
    {0x64626720, FileSystemKind::kKernel},     // debugfs
    {0x1cd1, FileSystemKind::kKernel},         // devpts
}};

FileSystemKind KindOf(uint64_t magic) {
  const auto* found = std::find_if(kFileSystems.begin(), kFileSystems.end(),
                                   [magic](const KnownFileSystem& known) { return known.magic == magic; });
  return found == kFileSystems.end() ? FileSystemKind::kDisk : found->kind;
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

Finding JudgeDirectory(const PlaceFacts& facts, const std::string& asked) {
  if (!facts.found.ok()) {
    return {"directory", Verdict::kMissing, Message(facts.found), "name a directory that exists or can be created"};
  }
  const std::string place = facts.directory == "." ? "the current directory" : facts.directory;
  if (facts.is_there) return {"directory", Verdict::kOk, place, ""};
  return {"directory", Verdict::kOk, fmt::format("{} does not exist; checked {} instead", asked, place), ""};
}

Finding JudgeFileSystem(const PlaceFacts& facts) {
  Finding finding = {"file system", Verdict::kOk, facts.file_system, ""};
  switch (KindOf(facts.file_system_magic)) {
    case FileSystemKind::kDisk:
      break;
    case FileSystemKind::kMemory:
      finding.verdict = Verdict::kRisk;
      finding.advice =
          "the file system is in memory, so steps are lost when the machine loses power: use a directory on a disk";
      break;
    case FileSystemKind::kContainer:
      finding.verdict = Verdict::kRisk;
      finding.advice =
          "the directory is in the container's own layer, which is deleted with the container: mount a volume for the "
          "store";
      break;
    case FileSystemKind::kNetwork:
      finding.verdict = Verdict::kRisk;
      finding.advice =
          "other machines can write here too, and locks may not exclude them (NFS with local_lock or nolock, Lustre "
          "without flock, most of FUSE): mount it with locks across machines, or let only one machine write the store";
      break;
    case FileSystemKind::kKernel:
      finding.verdict = Verdict::kMissing;
      finding.advice = "this is a kernel interface, which stores no files: use a directory on a disk";
      break;
  }
  return finding;
}

Finding JudgeSpace(const PlaceFacts& facts) {
  const std::string found =
      fmt::format("{} free, {}", HumanBytes(facts.free_bytes),
                  facts.free_inodes ? fmt::format("{} more files", *facts.free_inodes) : "any number of files");
  if (facts.free_bytes < kFreeBytesMin) {
    return {
        "space", Verdict::kMissing, found,
        fmt::format(
            "a store needs {} before its first step, and each step needs up to the size of the state: free some space",
            HumanBytes(kFreeBytesMin))};
  }
  if (facts.free_inodes && *facts.free_inodes < kFreeInodesMin) {
    return {"space", Verdict::kMissing, found,
            "a store needs some dozens of files: delete other files, or use a file system with more inodes"};
  }
  return {"space", Verdict::kOk, found, ""};
}

// Of something that a store cannot do without.
Finding JudgeNeed(std::string check, const absl::Status& status, std::string found, std::string advice) {
  if (status.ok()) return {std::move(check), Verdict::kOk, std::move(found), ""};
  return {std::move(check), Verdict::kMissing, Message(status), std::move(advice)};
}

Finding JudgeUring(const MachineFacts& facts) {
  if (facts.uring.ok()) return {"io_uring", Verdict::kOk, "available", ""};
  const std::string what = Message(facts.uring);
  std::string advice = "threads replace it and use more CPU: ";
  if (facts.uring_disabled.value_or(0) != 0) {
    advice += fmt::format("kernel.io_uring_disabled is {}; root can set it to 0 (sysctl)", *facts.uring_disabled);
  } else if (what.ends_with("(ENOSYS)")) {
    advice += "use Linux 5.6 or later, or a sandbox that does not hide io_uring";
  } else if (what.ends_with("(EPERM)") || what.ends_with("(EACCES)")) {
    advice +=
        "a seccomp filter refuses it, as in most containers; allow io_uring_setup, io_uring_enter and "
        "io_uring_register";
  } else if (what.ends_with("(ENOMEM)")) {
    advice += "the limit of locked memory is too small for it (ulimit -l)";
  } else {
    advice += "see the kernel's log";
  }
  return {"io_uring", Verdict::kSlow, what, std::move(advice)};
}

Finding JudgeLockedMemory(const MachineFacts& facts) {
  constexpr const char* kCheck = "locked memory";
  if (!facts.registered_memory.ok()) {
    return {kCheck, Verdict::kSlow, Message(facts.registered_memory),
            "io_uring then looks up the memory at every write: raise the limit (ulimit -l, LimitMEMLOCK=, memlock in "
            "limits.conf), or use Linux 5.19 or later"};
  }
  if (!facts.locked_memory_max) return {kCheck, Verdict::kOk, "not limited", ""};
  // Staging holds two states unless it is told otherwise; a machine's memory has room for no larger ones.
  if (*facts.locked_memory_max >= facts.memory_bytes / 2) {
    return {kCheck, Verdict::kOk, HumanBytes(*facts.locked_memory_max), ""};
  }
  return {kCheck, Verdict::kSlow, "at most " + HumanBytes(*facts.locked_memory_max),
          fmt::format(
              "staging locks twice the size of the state, or staging_bytes_max. For a state of more than {} it stays "
              "unlocked and may be swapped out: raise the limit (ulimit -l, LimitMEMLOCK=, memlock in limits.conf)",
              HumanBytes(*facts.locked_memory_max / 2))};
}

Finding JudgeOpenFiles(const MachineFacts& facts) {
  if (!facts.open_files_max) return {"open files", Verdict::kOk, "not limited", ""};
  const std::string found = fmt::format("at most {}", *facts.open_files_max);
  if (*facts.open_files_max >= kOpenFilesMin) return {"open files", Verdict::kOk, found, ""};
  return {"open files", Verdict::kMissing, found,
          fmt::format("a restore may open half of {} files for one step: raise the limit (ulimit -n)", kOpenFilesMin)};
}

Finding JudgeHugePages(const MachineFacts& facts) {
  constexpr const char* kAdvice =
      "saves take more CPU without huge pages: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, as root";
  if (facts.huge_pages.empty()) return {"huge pages", Verdict::kSlow, "the kernel has none", "saves take more CPU"};
  const bool never = facts.huge_pages == "never";
  return {"huge pages", never ? Verdict::kSlow : Verdict::kOk, facts.huge_pages, never ? kAdvice : ""};
}

Finding JudgeVectors(const MachineFacts& facts) {
  if (facts.vectors != "portable") return {"CPU vectors", Verdict::kOk, facts.vectors, ""};
  return {"CPU vectors", Verdict::kSlow, "none that the codec supports",
          "compression takes several times as long: use a CPU with AVX2, or Compression::kNone"};
}

Finding JudgeCores(const MachineFacts& facts) {
  if (facts.cores > 1) return {"cores", Verdict::kOk, fmt::format("{}", facts.cores), ""};
  return {"cores", Verdict::kSlow, "1", "saves share the core with the training: give the process another core"};
}

std::string RateText(double bytes_per_second) { return HumanBytes(static_cast<uint64_t>(bytes_per_second)) + "/s"; }

Finding JudgeRate(std::string check, double rate, std::string how) {
  Finding finding = {std::move(check), Verdict::kOk, fmt::format("{} {}", RateText(rate), how), ""};
  if (rate >= kBytesPerSecondMin) return finding;
  finding.verdict = Verdict::kSlow;
  finding.advice = fmt::format("at this rate 10 GiB take {}: use a faster disk, or save less often",
                               HumanDuration(absl::Seconds(10.0 * (uint64_t{1} << 30) / std::max(rate, 1.0))));
  return finding;
}

}  // namespace

std::string_view VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kSlow:
      return "slow";
    case Verdict::kRisk:
      return "risk";
    case Verdict::kMissing:
      return "missing";
  }
  return "";
}

std::vector<Finding> JudgePlace(const PlaceFacts& facts, const std::string& asked) {
  std::vector<Finding> findings = {JudgeDirectory(facts, asked)};
  if (!facts.found.ok()) return findings;
  findings.push_back(JudgeFileSystem(facts));
  findings.push_back(JudgeNeed("writable", facts.writable, "yes",
                               "run this as the user of the training, who must own the directory; the file system must "
                               "be mounted for writing and have free space"));
  if (!facts.writable.ok()) return findings;
  findings.push_back(JudgeSpace(facts));
  findings.push_back(JudgeNeed("durable names", facts.durable_names,
                               "rename replaces a file, and directories can be synced",
                               "a commit would not be atomic: use another file system"));
  findings.push_back(JudgeNeed("new names", facts.new_names, "a rename can refuse a name that exists",
                               "two processes could write over each other's records: use another file system"));
  findings.push_back(facts.hard_links.ok()
                         ? Finding{"hard links", Verdict::kOk, "yes", ""}
                         : Finding{"hard links", Verdict::kSlow, Message(facts.hard_links),
                                   "the journal's entries stay files of their own, so a store of very many saves opens "
                                   "slowly: use ext4 or xfs"});
  findings.push_back(
      JudgeNeed("locks", facts.locks, "flock excludes other processes",
                "two trainers could write one store: mount the file system with locks, or use another one"));
  findings.push_back(facts.direct ? Finding{"O_DIRECT", Verdict::kOk, "yes", ""}
                                  : Finding{"O_DIRECT", Verdict::kSlow, "none",
                                            "saves go through the page cache and evict other data from it: use a file "
                                            "system on a disk (ext4, xfs)"});
  findings.push_back(facts.allocate.ok() ? Finding{"fallocate", Verdict::kOk, "yes", ""}
                                         : Finding{"fallocate", Verdict::kSlow, Message(facts.allocate),
                                                   "writes that extend a file wait for each other: use ext4 or xfs"});
  findings.push_back({"O_TMPFILE", Verdict::kOk,
                      facts.nameless_files ? "yes" : "none; an exported file has its name before it is complete", ""});
  return findings;
}

std::vector<Finding> JudgeMachine(const MachineFacts& facts) {
  return {JudgeUring(facts),     JudgeLockedMemory(facts), JudgeOpenFiles(facts),
          JudgeHugePages(facts), JudgeVectors(facts),      JudgeCores(facts)};
}

std::vector<Finding> JudgeSpeed(const absl::StatusOr<DiskSpeed>& speed, const absl::StatusOr<SyncSpeed>& syncs) {
  if (!speed.ok()) {
    return {{"write speed", Verdict::kMissing, Message(speed.status()), "a save would fail the same way"}};
  }
  const std::string how = fmt::format("({} by {}{})", HumanBytes(speed->bytes), speed->queue,
                                      speed->direct ? "" : ", through the page cache");
  std::vector<Finding> findings = {JudgeRate("write speed", speed->write_bytes_per_second, how),
                                   JudgeRate("read speed", speed->read_bytes_per_second, how)};
  if (!syncs.ok()) {
    findings.push_back({"sync", Verdict::kMissing, Message(syncs.status()), "a save would fail the same way"});
    return findings;
  }
  Finding sync = {"sync", Verdict::kOk,
                  fmt::format("{} at the median, {} at most ({} times)", HumanDuration(syncs->median),
                              HumanDuration(syncs->longest), syncs->syncs),
                  ""};
  if (syncs->median > kSyncMax) {
    sync.verdict = Verdict::kSlow;
    sync.advice = "a commit waits for several syncs: use a disk with a protected write cache, or a local disk";
  }
  findings.push_back(std::move(sync));
  return findings;
}

Verdict Worst(const std::vector<Finding>& findings) {
  Verdict worst = Verdict::kOk;
  for (const Finding& finding : findings) worst = std::max(worst, finding.verdict);
  return worst;
}

}  // namespace tidemark::inspect
