// fio, the yardstick for the disk: the same blocks, depth and file system as a save or restore.

#ifndef TIDEMARK_BENCH_FIO_H_
#define TIDEMARK_BENCH_FIO_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tidemark::bench {

enum class FioDirection { kWrite, kRead };

struct FioJob {
  FioDirection direction = FioDirection::kWrite;
  std::string path;  // written: a new file, which stays; read: an existing one
  uint64_t bytes = 0;
  uint64_t block_bytes = 1 << 20;
  int depth = 16;
  int readers = 1;  // of a read job: processes that each read a part of the file
};

// Of a finished job, bytes per second. What fio calls the runtime begins after the file has been made and allocated,
// and ends after the fsync that end_fsync asks for. kInternal: fio says that the job failed, or says something that
// cannot be understood.
absl::StatusOr<double> ParseFioRate(std::string_view json, FioDirection direction);

// io_uring, O_DIRECT; a write job allocates its file with fallocate and ends with an fsync.
absl::StatusOr<double> RunFio(const FioJob& job);

// Why fio cannot be used in this folder, or nothing. Writes and removes a file of one block.
std::string FioProblem(const std::string& folder);

}  // namespace tidemark::bench

#endif  // TIDEMARK_BENCH_FIO_H_
