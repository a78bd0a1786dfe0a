// EvaluationSink: where the rows of a step's history go that evaluators in this process make.

#ifndef TIDEMARK_SNAPSHOT_CONSUMERS_EVALUATION_SINK_H_
#define TIDEMARK_SNAPSHOT_CONSUMERS_EVALUATION_SINK_H_

#include <string_view>

#include "snapshot/pending_save.h"
#include "tidemark/step_info.h"

namespace tidemark {

// Of the reason why an evaluator was not asked: the part that is the same from case to case.
inline std::string_view ReasonClass(std::string_view reason) { return reason.substr(0, reason.find(':')); }

// Thread-safe.
class EvaluationSink {
 public:
  virtual ~EvaluationSink() = default;

  // Takes one row about a save: what an evaluator said of it, or why it was never asked. Tells the pending save that it
  // was given, once the row is known here. Called by the evaluators' threads, and by the trainer's for what is left out
  // during a save; the save may be in flight still, may fail yet, and may have been replaced by another one of its
  // step. Must be quick, and must not call the stream.
  //
  // The pending save's holders are the caller and whoever else has yet to give a row, so a save that is not to be
  // persisted ends after its last row; the snapshot's memory may have gone back before. A reason for leaving it out is
  // one of a few phrases, with what differs from case to case after a colon.
  virtual void Evaluated(const PendingSave& save, Evaluation evaluation) = 0;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_CONSUMERS_EVALUATION_SINK_H_
