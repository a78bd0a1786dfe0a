// Which steps retention is to keep, as a plain list says it: written to be obviously right, whatever it takes.

#ifndef TIDEMARK_TESTS_STORAGE_RETENTION_RETENTION_MODEL_H_
#define TIDEMARK_TESTS_STORAGE_RETENTION_RETENTION_MODEL_H_

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "storage/shard/format/shard_format.h"
#include "tidemark/retention.h"

namespace tidemark::storage {

struct ModelStep {
  ShardIdentity identity;
  std::optional<ShardIdentity> base;  // in whose file its chunk lies
  int64_t value = 0;
  absl::Time created;
  Metrics metrics;
  std::set<std::string> evaluators;
  std::set<std::string> answers;   // those of them that did not fail
  std::set<std::string> finders;   // those of them that were asked and found something
  std::set<std::string> doubters;  // those of them that call it unhealthy
  bool unjudged = false;           // an evaluator in the trainer's process has yet to say what it finds
  bool pinned = false;
  bool deleted = false;
};

using Model = std::map<int64_t, ModelStep>;

// What an evaluator says of a step, in the place of what it has said before.
void Say(ModelStep& step, const Evaluation& evaluation);

// Whether the step counts when the best is looked for.
bool CanBeBest(const ModelStep& step, const std::string& metric);

// How many of the steps are better than this one, of those that can be best. Precondition: it can be.
int64_t BetterThan(const Model& model, const ModelStep& step, const std::string& metric, BestMode mode);

// The committed step that is the best; nullopt: none can be.
std::optional<int64_t> BestOf(const Model& model, const std::string& metric, BestMode mode);

// What speaks for the step, which is in the model and not deleted: "latest", "recent" (by the order of commits),
// "healthy" (the latest of those, and of those that are judged), "next" (to be judged), "pinned", "best loss", "every",
// "interval", "predicate", "awaited". Empty: nothing does, and with any rule set it is to go. A predicate is that of
// RandomRules.
std::set<std::string> WhyWanted(const Model& model, const ModelStep& step, const RetentionOptions& options);

// WhyWanted's word for a part of StepInfo::kept.
std::string RuleOf(std::string_view text);

// What the property tests draw: metrics' names, values, of which a few are not finite, and rules on them.
inline constexpr const char* kModelMetrics[] = {"loss", "validation/accuracy"};
double RandomValue(std::mt19937& random);
RetentionOptions RandomRules(std::mt19937& random);
uint32_t FirstSeed();                                                  // the variable TIDEMARK_SEED, or any; prints it
int64_t RandomNumber(std::mt19937& random, int64_t from, int64_t to);  // `to` included

// A folder for a store that is written for nobody. In memory where the system has such a place: what takes time is
// syncs, and they are not what is tested with a model.
std::string NewFolderInMemory(std::string_view name);

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_RETENTION_RETENTION_MODEL_H_
