// All rows, and the functions that measure them, by subject. docs/performance.md has the method of each.

#ifndef TIDEMARK_BENCH_ROWS_H_
#define TIDEMARK_BENCH_ROWS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/context.h"
#include "bench/row.h"

namespace tidemark::bench {

struct Row {
  RowSpec spec;
  // Why this machine cannot measure the row, or nothing. Null: every machine can.
  std::string (*obstacle)(Context&) = nullptr;
  absl::StatusOr<Measurement> (*measure)(Context&) = nullptr;
};

// Of rows that use the disk, as many pairs: its speed, and that of page caches, varies more than anything else.
inline constexpr int kDiskTimes = 2;

// Tensors of the rows whose names begin with "million".
inline constexpr size_t kMillion = 1'000'000;

// In the order in which they are shown.
const std::vector<Row>& AllRows();

// rows_staging.cc
absl::StatusOr<Measurement> StageVsMemcpy(Context& context);
absl::StatusOr<Measurement> StageSmallVsMemcpy(Context& context);
absl::StatusOr<Measurement> FirstVsLaterSave(Context& context);
absl::StatusOr<Measurement> MillionBlockedVsMemcpy(Context& context);

// rows_devices.cc
std::string NoCuda(Context& context);
absl::StatusOr<Measurement> StageOverlapped(Context& context);
absl::StatusOr<Measurement> StageGpuVsPinnedCopy(Context& context);
absl::StatusOr<Measurement> StageGpuOnDevice(Context& context);

// rows_writing.cc
std::string NoFio(Context& context);
absl::StatusOr<Measurement> WriteRawVsFio(Context& context);
absl::StatusOr<Measurement> WriteAutoVsFio(Context& context);
absl::StatusOr<Measurement> CpuVsTorchSave(Context& context);
absl::StatusOr<Measurement> CommittedVsTorchSave(Context& context);
absl::StatusOr<Measurement> Reuse90Frozen(Context& context);

// rows_codec.cc
absl::StatusOr<Measurement> SizeBf16VsEntropy(Context& context);
absl::StatusOr<Measurement> SizeFp32VsEntropy(Context& context);
absl::StatusOr<Measurement> EncodeVsZstd1(Context& context);
absl::StatusOr<Measurement> DecodeVsZstd(Context& context);

// rows_restore.cc
absl::StatusOr<Measurement> RestoreVsFio(Context& context);
absl::StatusOr<Measurement> RestoreAutoVsFio(Context& context);
absl::StatusOr<Measurement> RestoreVsTorchLoad(Context& context);
absl::StatusOr<Measurement> StatisticsVsFio(Context& context);

// rows_journal.cc
absl::StatusOr<Measurement> CommitVsFdatasync(Context& context);
absl::StatusOr<Measurement> Open100kVs10(Context& context);
absl::StatusOr<Measurement> OpenAfterKill100kVs10(Context& context);

// rows_ranks.cc
absl::StatusOr<Measurement> Ranks4Vs1(Context& context);
absl::StatusOr<Measurement> RanksBlocked4Vs1(Context& context);
absl::StatusOr<Measurement> Plan1024x1024(Context& context);

// rows_ranks_restore.cc
absl::StatusOr<Measurement> ReshardReadAmplification(Context& context);
absl::StatusOr<Measurement> RestartReads10k(Context& context);

// rows_training.cc
absl::StatusOr<Measurement> TrainingSlowdown(Context& context);
absl::StatusOr<Measurement> AutoSizeVsSpace(Context& context);
absl::StatusOr<Measurement> RssVsState(Context& context);
absl::StatusOr<Measurement> MillionRssVsState(Context& context);

// rows_million.cc
absl::StatusOr<Measurement> MillionCommitVsLarge(Context& context);
absl::StatusOr<Measurement> MillionRestoreVsLarge(Context& context);
absl::StatusOr<Measurement> MillionStored16B(Context& context);
absl::StatusOr<Measurement> MillionStored1KiB(Context& context);
absl::StatusOr<Measurement> MillionChanged(Context& context);

}  // namespace tidemark::bench

#endif  // TIDEMARK_BENCH_ROWS_H_
