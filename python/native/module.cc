#include "python/native/bindings.h"

NB_MODULE(_native, module) {
  module.doc() = "The C++ core. Private: tidemark's own modules are the interface.";
  tidemark::python::BindCheckpointer(module);
  tidemark::python::BindStepFile(module);
}
