#include "python/native/status_error.h"

#include <string>

#include "nanobind/nanobind.h"
#include "nanobind/stl/string.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark::python {

namespace {

nanobind::object ErrorOf(const absl::Status& status) {
  return nanobind::module_::import_("tidemark.errors")
      .attr("from_status")(static_cast<int>(status.code()), std::string(status.message()));
}

}  // namespace

void Raise(const absl::Status& status) {
  namespace nb = nanobind;
  nb::object error;
  try {
    error = ErrorOf(status);
  } catch (nb::python_error& interruption) {
    // A Ctrl-C meanwhile. It comes out; its context keeps a failure that no later call tells of again.
    interruption.value().attr("__context__") = ErrorOf(status);
    throw;
  }
  if (status.GetPayload(kSaveRunsPayload).has_value()) error.attr("save_runs") = true;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

}  // namespace tidemark::python
