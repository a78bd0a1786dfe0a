// EvaluationSink: where the rows of a step's history go that evaluators in this process make.

#ifndef TIDEMARK_SNAPSHOT_CONSUMERS_EVALUATION_SINK_H_
#define TIDEMARK_SNAPSHOT_CONSUMERS_EVALUATION_SINK_H_

#include <string_view>

#include "snapshot/saves/pending_save.h"
#include "tidemark/step_info.h"

namespace tidemark {

// Of the reason why an evaluator was not asked: the part that is the same from case to case.
inline std::string_view ReasonClass(std::string_view reason) { return reason.substr(0, reason.find(':')); }

// Thread-safe.
class EvaluationSink {
 public:
  virtual ~EvaluationSink() = default;

  // Takes one row about a save: the result of an evaluator, or the reason why the evaluator was not called. Stores the
  // row and then calls save.RowGiven(). Called by the evaluators' threads, and by the trainer's thread if an evaluator
  // is skipped during a save. The save may still be in flight, may fail later, and may have been replaced by another
  // save of its step. Must be quick, and must not call the stream.
  //
  // The caller holds the pending save, as does everyone who will give a row later. So a save that is only evaluated
  // ends after its last row, perhaps long after the snapshot's memory was returned. A reason is one of a few fixed
  // phrases; what differs from case to case follows a colon.
  virtual void Evaluated(const PendingSave& save, Evaluation evaluation) = 0;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_CONSUMERS_EVALUATION_SINK_H_
