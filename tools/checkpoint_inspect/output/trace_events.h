// The phases of saves in the trace event format, which the Perfetto UI and Chrome's tracing page open. Pure functions.
//
// A trace is one JSON object, TraceBegin() TraceOfSave() "," TraceOfSave() ... TraceEnd(), in that order, so that one
// of many saves never is in memory as a whole. A save is a process and a lane one of its threads; times are
// microseconds.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_TRACE_EVENTS_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_TRACE_EVENTS_H_

#include <cstddef>
#include <span>
#include <string>

#include "absl/time/time.h"
#include "tidemark/step_info.h"

namespace tidemark::inspect {

// `origin`: when the time line begins. `store`: for people.
std::string TraceBegin(const std::string& store, absl::Time origin);

struct TracedEvents {
  std::string text;  // without a comma at the end
  size_t events = 0;
};

// `number`: of the save in the trace, from 1; the order in which they are shown. Precondition: not created before
// `origin`.
TracedEvents TraceOfSave(const StepInfo& info, std::span<const SavePhase> phases, int number, absl::Time origin);

std::string TraceEnd();

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_TRACE_EVENTS_H_
