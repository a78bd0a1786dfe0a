// Evaluators in the training process: functions that are called with snapshots behind the training's back.
//
//   checkpointer->AddEvaluator({.name = "validation", .entries = {"model.*"}},
//                              [&](const tidemark::Snapshot& snapshot) -> absl::StatusOr<tidemark::Metrics> {
//                                if (auto loaded = tidemark::LoadModule(snapshot, "model", *module); !loaded.ok())
//                                  return loaded;                    // tidemark/torch.h
//                                return tidemark::Metrics{{"loss", Loss(*module, held_out)}};
//                              });
//
// The value is then known as the metric "validation/loss" of the step, whatever becomes of the step first. For
// evaluators in processes of their own see tidemark/worker.h; the function is the same.

#ifndef TIDEMARK_EVALUATOR_H_
#define TIDEMARK_EVALUATOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tidemark/snapshot.h"
#include "tidemark/step_info.h"

namespace tidemark {

// What an evaluator found. Made from Metrics without a word.
struct Verdict {
  Verdict() = default;
  Verdict(Metrics found, std::string why_unhealthy = "")  // NOLINT: implicit
      : metrics(std::move(found)), unhealthy(std::move(why_unhealthy)) {}

  Metrics metrics;
  // Why the step is not to be trusted: it is never best, and RestoreOptions::healthy_only passes over it. Empty:
  // nothing was found.
  std::string unhealthy;
};

// Called with whole snapshots only. An error, or whatever it throws, becomes a row of the history; the training goes
// on. The snapshot's memory is the staging arena's: it goes back when the function returns.
using EvaluatorFunction = std::function<absl::StatusOr<Verdict>(const Snapshot&)>;

// What happens to a new snapshot while max_pending of them are waiting or being evaluated. Whatever is left out gets a
// row in the history that says so.
enum class WhenLagging {
  kBlock,  // Save waits, before it copies anything
  kSkip,   // the new one is left out
  // It takes the place of those that wait. One waits even where max_pending are being evaluated. A save of whatever
  // step that would have to wait for the memory of one that waits gets that memory, and the one is left out: only what
  // is being evaluated can hold up a save.
  kLatest,
  kQueue,  // it waits without holding memory, and is read from the committed checkpoint when its turn comes, without
           // what companions saved with it; retention keeps the step until then. One that is not to be saved
           // (SaveOptions::persist) waits as with kBlock. Steps that retention awaits and that an earlier process did
           // not come to, since it was killed or its Close ran out of time, are read in the same way, before any others
};

// Handed over in half the bytes: float32 and float64 tensors are converted, rounded to nearest even.
enum class HalfPrecision { kNone, kBfloat16, kFloat16 };

struct EvaluatorOptions {
  // Unique in the checkpointer; 1 to 256 bytes of UTF-8 without '/'. Names the metrics and the history's rows.
  std::string name;
  // Snapshots that wait or are being evaluated, and so hold staging memory. 1 or more. See WhenLagging for more of
  // them. The default staging memory grows by as many states, so that they leave saves the two that those have without
  // evaluators; where CheckpointerOptions::staging_bytes_max is given, count them in.
  int64_t max_pending = 1;
  WhenLagging when_lagging = WhenLagging::kLatest;
  // Only steps divisible by it. 1 or more.
  int64_t every_steps = 1;
  // Only entries whose names match one of these patterns ('*' any run of characters, '?' one). Empty: all. A snapshot
  // in which nothing matches a pattern is a failed evaluation.
  std::vector<std::string> entries;
  // Anything but kNone takes memory of its own for the converted tensors and gives the staging memory back before the
  // function is called.
  HalfPrecision half_precision = HalfPrecision::kNone;
  // Calls at a time. 1 to 64. With more than one the function must be thread-safe, and rows may come out of order.
  int threads = 1;
};

}  // namespace tidemark

#endif  // TIDEMARK_EVALUATOR_H_
