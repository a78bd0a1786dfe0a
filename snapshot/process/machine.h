// Machine: the machine that a checkpointer runs on, as it sees it. A test has one of its own.

#ifndef TIDEMARK_SNAPSHOT_PROCESS_MACHINE_H_
#define TIDEMARK_SNAPSHOT_PROCESS_MACHINE_H_

#include <functional>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "snapshot/staging/available_memory.h"
#include "storage/io/file_system.h"

namespace tidemark {

struct Machine {
  // A Machine made of a file system alone has the memory of the real machine.
  explicit Machine(std::shared_ptr<storage::FileSystem> file_system) : files(std::move(file_system)) {}
  // `file_system` is not owned and must outlive what uses it.
  Machine(  // NOLINT: implicit
      storage::FileSystem& file_system, std::function<AvailableMemory()> memory = [] { return ReadAvailableMemory(); })
      : files(std::shared_ptr<void>(), &file_system), available_memory(std::move(memory)) {}

  std::shared_ptr<storage::FileSystem> files;
  std::function<AvailableMemory()> available_memory = [] { return ReadAvailableMemory(); };  // thread-safe
  std::function<absl::Time()> now = absl::Now;            // the wall clock; thread-safe
  absl::Duration scrub_pass_interval = absl::Minutes(1);  // from the beginning of a pass to that of the next
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_PROCESS_MACHINE_H_
