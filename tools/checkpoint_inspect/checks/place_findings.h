// What the facts about a machine and a directory mean for a store. Pure functions.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_PLACE_FINDINGS_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_PLACE_FINDINGS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/checkpoint_inspect/checks/disk_speed.h"
#include "tools/checkpoint_inspect/checks/place_facts.h"

namespace tidemark::inspect {

// The better one first.
enum class Verdict {
  kOk,
  kSlow,     // a store works here, and could be faster
  kRisk,     // a store works here, and may be lost or harmed by what is said of it
  kMissing,  // no store works here
};

std::string_view VerdictName(Verdict verdict);

struct Finding {
  std::string check;  // what was looked at; the same words in every run
  Verdict verdict = Verdict::kOk;
  std::string found;   // what is there
  std::string advice;  // what it costs and what to change; empty where nothing is wrong
};

// Descriptors that a process needs: those of a shard's references (kFileReferencesWrittenMax), and about as many for
// the index, evaluators and the trainer's own.
inline constexpr uint64_t kOpenFilesMin = 256;

// Less is slow. A single magnetic disk writes as fast, and at this rate 10 GiB take 100 seconds.
inline constexpr double kBytesPerSecondMin = 100 * (1 << 20);

// More is slow: a commit waits for a handful of syncs, and so do a report and a pin.
inline constexpr absl::Duration kSyncMax = absl::Milliseconds(50);

// An empty store takes less: the journal's spare files, the index's first files and a small shard.
inline constexpr uint64_t kFreeBytesMin = 4 << 20;
inline constexpr uint64_t kFreeInodesMin = 64;

// Of the directory, the file system and what it can do, in the order in which they are shown. Where no file can be made
// it ends with that.
std::vector<Finding> JudgePlace(const PlaceFacts& facts, const std::string& asked);

// Of io_uring, limits, pages and CPU.
std::vector<Finding> JudgeMachine(const MachineFacts& facts);

// Of what was measured, or why it could not be.
std::vector<Finding> JudgeSpeed(const absl::StatusOr<DiskSpeed>& speed, const absl::StatusOr<SyncSpeed>& syncs);

// The worst of them; kOk where there are none.
Verdict Worst(const std::vector<Finding>& findings);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_PLACE_FINDINGS_H_
