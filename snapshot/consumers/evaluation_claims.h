// EvaluationClaims: the shelf from which evaluators in this process read steps that are in memory no more, and what
// keeps those steps until then.

#ifndef TIDEMARK_SNAPSHOT_CONSUMERS_EVALUATION_CLAIMS_H_
#define TIDEMARK_SNAPSHOT_CONSUMERS_EVALUATION_CLAIMS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "snapshot/staging/snapshot_shelf.h"
#include "storage/io/file_system.h"
#include "storage/retention/retention_plan.h"
#include "storage/shard/read/shard_reader.h"
#include "storage/store/store.h"

namespace tidemark {

// Thread-safe. A step is claimed before it is committed, so retention, which asks for the claims whenever it plans,
// never lets one go in between.
class EvaluationClaims final : public SnapshotShelf {
 public:
  // The result of Find owns `files` too. The store is not owned. `on_damage`: any thread.
  EvaluationClaims(std::shared_ptr<storage::FileSystem> files, const storage::Store& store,
                   const storage::ShardReadOptions& read, std::function<void()> on_damage)
      : files_(std::move(files)), store_(store), read_(read), on_damage_(std::move(on_damage)) {}

  void Claim(int64_t step, std::string_view who) override;
  void Release(int64_t step, std::string_view who) override;
  absl::StatusOr<Reading> Find(int64_t step, std::vector<std::string> patterns, HalfPrecision half) override;
  void NoteDamage(int64_t step, const std::string& attempt) override;

  // For retention: "evaluator 'x' has not read it yet".
  storage::Claims Get() const;

 private:
  const std::shared_ptr<storage::FileSystem> files_;
  const storage::Store& store_;
  const storage::ShardReadOptions read_;
  const std::function<void()> on_damage_;
  mutable absl::Mutex mutex_;
  storage::Claims claims_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_CONSUMERS_EVALUATION_CLAIMS_H_
