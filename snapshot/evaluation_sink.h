// EvaluationSink: where the rows of a step's history go that evaluators in this process make.

#ifndef TIDEMARK_SNAPSHOT_EVALUATION_SINK_H_
#define TIDEMARK_SNAPSHOT_EVALUATION_SINK_H_

#include <cstdint>

#include "tidemark/step_info.h"

namespace tidemark {

// Thread-safe.
class EvaluationSink {
 public:
  virtual ~EvaluationSink() = default;

  // Takes one row: what an evaluator said of a step, or why it was never asked. Called by the evaluators' threads, and
  // by the trainer's for what is left out during a save; the step may be in flight still, and its save may fail yet.
  // Must be quick, and must not call the stream. A row is given before the snapshot's memory goes back.
  virtual void Evaluated(int64_t step, Evaluation evaluation) = 0;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_EVALUATION_SINK_H_
