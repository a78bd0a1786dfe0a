// Which steps retention is to keep, as a plain list says it: written to be obviously right, whatever it takes.

#ifndef TIDEMARK_TESTS_STORAGE_MANIFEST_RETENTION_MODEL_H_
#define TIDEMARK_TESTS_STORAGE_MANIFEST_RETENTION_MODEL_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "storage/shard/shard_format.h"
#include "tidemark/retention.h"

namespace tidemark::storage {

struct ModelStep {
  ShardIdentity identity;
  std::optional<ShardIdentity> base;  // in whose file its chunk lies
  int64_t value = 0;
  absl::Time created;
  Metrics metrics;
  std::set<std::string> evaluators;
  bool unhealthy = false;
  bool pinned = false;
  bool deleted = false;
};

using Model = std::map<int64_t, ModelStep>;

// Whether the step counts when the best is looked for.
bool CanBeBest(const ModelStep& step, const std::string& metric);

// How many of the steps are better than this one, of those that can be best. Precondition: it can be.
int64_t BetterThan(const Model& model, const ModelStep& step, const std::string& metric, BestMode mode);

// Whether any rule wants the step, which is in the model and not deleted. A predicate is that of the property test.
bool IsWanted(const Model& model, const ModelStep& step, const RetentionOptions& options);

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_MANIFEST_RETENTION_MODEL_H_
