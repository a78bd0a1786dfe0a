// Functions of Python as those that options of the library have.

#ifndef TIDEMARK_PYTHON_NATIVE_PYTHON_FUNCTIONS_H_
#define TIDEMARK_PYTHON_NATIVE_PYTHON_FUNCTIONS_H_

#include <cstdint>
#include <functional>

#include "nanobind/nanobind.h"
#include "python/native/tree_state.h"
#include "tidemark/checkpointer_options.h"
#include "tidemark/health_monitor.h"
#include "tidemark/ranks.h"
#include "tidemark/restore_options.h"

namespace tidemark::python {

// Each takes None for no function, and calls the function on the thread of the library, with the interpreter's lock.
// What the function raises is thrown as std::runtime_error with its type and text. So is a call after the interpreter
// has ended. If it is no Exception, but a KeyboardInterrupt or the like, it also becomes the attribute `interruption`
// of the function. The package gives functions that have it, and that return exactly a bool or a float.

// function(dict of StepInfo) -> bool
std::function<bool(const StepInfo&)> StepPredicateOf(nanobind::object function);
// function(metrics) -> float
std::function<double(const Metrics&)> ScoreOf(nanobind::object function);
// function((step, last saved step or None, seconds since the last save, whether one is in flight)) -> bool
std::function<bool(const SaveQuestion&)> SaveRuleOf(nanobind::object function);
// function((step, reason, remediation)) -> bool, which is ignored
std::function<void(const Divergence&)> DivergenceFunctionOf(nanobind::object function);

// function((step, bytes that have been read, bytes in all)) -> bool, which is ignored
std::function<void(const RestoreProgress&)> ProgressFunctionOf(nanobind::object function);

// function({name: (kind, dtype, shape, bytes, whether that is a part of the tensor)}) -> bool, which is ignored.
// Tensors have no bytes.
ValuesLook ValuesLookOf(nanobind::object function);

// function(bytes) -> a sequence of `world_size` byte strings. Unlike those above it returns a status and throws
// nothing: kInternal with the type and text of what the function raised, kInvalidArgument with what it returned
// instead, kCancelled after the interpreter has ended.
AllGather AllGatherOf(nanobind::object function, int32_t world_size);

// (step, reason, remediation)
nanobind::tuple TupleOf(const Divergence& divergence);
// (kind, dtype, shape of what there is, bytes, whether that is a part of the tensor)
nanobind::tuple TupleOf(const Received& received);

}  // namespace tidemark::python

#endif  // TIDEMARK_PYTHON_NATIVE_PYTHON_FUNCTIONS_H_
