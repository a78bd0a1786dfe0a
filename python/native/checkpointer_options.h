// The options of a checkpointer, of its averages and of its restores, from Python.

#ifndef TIDEMARK_PYTHON_NATIVE_CHECKPOINTER_OPTIONS_H_
#define TIDEMARK_PYTHON_NATIVE_CHECKPOINTER_OPTIONS_H_

#include <memory>
#include <string>

#include "nanobind/nanobind.h"
#include "python/native/event_queue.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/average.h"

namespace tidemark::python {

// Each raises InvalidArgumentError for a name that there is not, and what nanobind raises for a value of another type.
Staging StagingOf(const std::string& staging);
// None: a job of one process. The functions hold on to the ones of Python.
RankOptions RankOptionsOf(const nanobind::object& ranks);
// `events` is the observer.
CheckpointerOptions OptionsOf(const nanobind::dict& options, std::shared_ptr<EventQueue> events);
AverageOptions AverageOptionsOf(const nanobind::dict& options);
RestoreOptions RestoreOptionsOf(const nanobind::dict& options);

}  // namespace tidemark::python

#endif  // TIDEMARK_PYTHON_NATIVE_CHECKPOINTER_OPTIONS_H_
