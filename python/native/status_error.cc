#include "python/native/status_error.h"

#include <string>

#include "nanobind/nanobind.h"
#include "nanobind/stl/string.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark::python {

void Raise(const absl::Status& status) {
  namespace nb = nanobind;
  const nb::object error = nb::module_::import_("tidemark.errors")
                               .attr("from_status")(static_cast<int>(status.code()), std::string(status.message()));
  if (status.GetPayload(kSaveRunsPayload).has_value()) error.attr("save_runs") = true;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

}  // namespace tidemark::python
