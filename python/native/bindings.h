// What the sources of the module share: each binds its classes.

#ifndef TIDEMARK_PYTHON_NATIVE_BINDINGS_H_
#define TIDEMARK_PYTHON_NATIVE_BINDINGS_H_

#include "nanobind/nanobind.h"
#include "tidemark/retention.h"
#include "tidemark/statistics.h"
#include "tidemark/step_info.h"

namespace tidemark::python {

void BindCheckpointer(nanobind::module_& module);
void BindExchange(nanobind::module_& module);
void BindHealthMonitor(nanobind::module_& module);
void BindStepFile(nanobind::module_& module);
void BindTreeState(nanobind::module_& module);
void BindWorker(nanobind::module_& module);

// The keyword arguments of the data classes that the package has for them.
nanobind::dict DictOf(const StepInfo& info);
nanobind::dict DictOf(const Evaluation& evaluation);
nanobind::dict DictOf(const CheckpointerStatistics& statistics);
nanobind::dict DictOf(const RetentionDecision& decision);

}  // namespace tidemark::python

#endif  // TIDEMARK_PYTHON_NATIVE_BINDINGS_H_
