// What the sources of the module share: each binds its classes.

#ifndef TIDEMARK_PYTHON_NATIVE_BINDINGS_H_
#define TIDEMARK_PYTHON_NATIVE_BINDINGS_H_

#include "nanobind/nanobind.h"
#include "tidemark/step_info.h"

namespace tidemark::python {

void BindCheckpointer(nanobind::module_& module);
void BindStepFile(nanobind::module_& module);

// The keyword arguments of tidemark.StepInfo.
nanobind::dict DictOf(const StepInfo& info);

}  // namespace tidemark::python

#endif  // TIDEMARK_PYTHON_NATIVE_BINDINGS_H_
