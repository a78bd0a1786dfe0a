// A store that the bench saves into: step after step, and the files go as soon as they have been measured.

#ifndef TIDEMARK_BENCH_BENCH_STORE_H_
#define TIDEMARK_BENCH_BENCH_STORE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/context.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark::bench {

// Thread-compatible. Destroying it removes the store.
class BenchStore {
 public:
  // In the context's folder. `options` without a directory; warnings go to the context's progress.
  static absl::StatusOr<std::unique_ptr<BenchStore>> Open(Context& context, CheckpointerOptions options);
  ~BenchStore();

  AsyncCheckpointer& checkpointer() { return *checkpointer_; }
  const std::string& directory() const { return directory_; }

  // Both save the next step and wait until it is committed. The first returns how long that took from the call of Save
  // on, in seconds; the second how long Save itself took.
  absl::StatusOr<double> SaveUntilCommitted(State& state);
  absl::StatusOr<double> SaveBlocked(State& state, Staging staging = Staging::kBlocking);

  // Drops the store's files from the page cache and restores the last step into `state`, whose memory was written to
  // before, as that of a resuming trainer was. Returns the seconds of the restore.
  absl::StatusOr<double> RestoreCold(State& state);

  // Of the last step saved.
  absl::StatusOr<StepInfo> LastStep() const;
  absl::StatusOr<std::string> LastShard() const;

  // Removes the files of all steps, and waits until the file system has done so. The records stay: for saves that do
  // not look at earlier ones.
  absl::Status RemoveShards();

 private:
  BenchStore() = default;
  absl::StatusOr<SaveHandle> Save(State& state, Staging staging);

  std::string directory_;
  std::unique_ptr<AsyncCheckpointer> checkpointer_;
  int64_t next_step_ = 0;
};

}  // namespace tidemark::bench

#endif  // TIDEMARK_BENCH_BENCH_STORE_H_
