#include "bench/rows.h"

namespace tidemark::bench {

const std::vector<Row>& AllRows() {
  using enum Better;
  static const auto* rows = new std::vector<Row>{
      {{"stage_vs_memcpy", "blocked time of Save, 1 GiB in 300 CPU tensors ÷ warm memcpy, same threads", 1.10, kLower},
       nullptr,
       StageVsMemcpy},
      {{"stage_small_vs_memcpy", "the same for 100,000 tensors of 1 KiB", 3, kLower}, nullptr, StageSmallVsMemcpy},
      {{"stage_overlapped", "blocked time ÷ copy time, pretend accelerator, compute longer than the copy", 0.02,
        kLower},
       nullptr,
       StageOverlapped},
      {{"stage_gpu_vs_pinned_copy", "blocked time, 4 GiB on a GPU ÷ one pinned host copy of the same bytes", 1.05,
        kLower},
       NoCuda,
       StageGpuVsPinnedCopy},
      {{"stage_gpu_on_device", "the same, on-device mode ÷ pinned host copy", 0.05, kLower}, NoCuda, StageGpuOnDevice},
      {{"write_raw_vs_fio", "committed save of 2 GiB, policy none, bytes/s ÷ fio", 0.95, kHigher},
       NoFio,
       WriteRawVsFio},
      {{"write_auto_vs_fio", "logical bytes/s of a committed bf16 save, policy throughput ÷ fio", 1.00, kHigher},
       NoFio,
       WriteAutoVsFio},
      {{"size_bf16_vs_entropy", "stored size of bf16, policy space ÷ order-0 entropy bound", 1.03, kLower},
       nullptr,
       SizeBf16VsEntropy},
      {{"size_fp32_vs_entropy", "stored size of fp32, policy space ÷ order-0 entropy bound", 1.03, kLower},
       nullptr,
       SizeFp32VsEntropy},
      {{"encode_vs_zstd1", "codec bytes/s, one core, bf16 ÷ zstd level 1", 2, kHigher}, nullptr, EncodeVsZstd1},
      {{"decode_vs_zstd", "decoding bytes/s, one core, bf16 ÷ zstd", 2, kHigher}, nullptr, DecodeVsZstd},
      {{"cpu_vs_torch_save", "CPU seconds of a committed save, policy none ÷ torch::save + fsync", 0.15, kLower},
       nullptr,
       CpuVsTorchSave},
      {{"committed_vs_torch_save", "wall of torch::save + fsync ÷ wall to committed", 5, kHigher},
       nullptr,
       CommittedVsTorchSave},
      {{"restore_vs_fio", "restore bytes/s, raw, cold ÷ fio direct read of the same file", 0.90, kHigher},
       NoFio,
       RestoreVsFio},
      {{"restore_vs_torch_load", "wall of torch::load ÷ restore, both cold", 3, kHigher}, nullptr, RestoreVsTorchLoad},
      {{"reuse_90_frozen", "bytes of a second save, 90 % of the tensors unchanged ÷ the first", 0.11, kLower},
       nullptr,
       Reuse90Frozen},
      {{"commit_vs_fdatasync", "manifest commit ÷ fdatasync of an appended record", 3, kLower},
       nullptr,
       CommitVsFdatasync},
      {{"open_100k_vs_10", "open + latest + best with 100,000 steps ÷ with 10", 3, kLower}, nullptr, Open100kVs10},
      {{"training_slowdown", "the example's step time with a save every 20 steps ÷ without", 1.05, kLower},
       nullptr,
       TrainingSlowdown},
      {{"rss_vs_state", "peak extra resident memory, one save in flight ÷ state bytes", 1.1, kLower},
       nullptr,
       RssVsState},
  };
  return *rows;
}

}  // namespace tidemark::bench
