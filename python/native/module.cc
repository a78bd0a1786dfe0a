#include "python/native/bindings.h"
#include "python/native/snapshot_view.h"

NB_MODULE(_native, module) {
  module.doc() = "The C++ core. Private: tidemark's own modules are the interface.";
  tidemark::python::BindTreeState(module);
  tidemark::python::BindCheckpointer(module);
  tidemark::python::BindHealthMonitor(module);
  tidemark::python::BindSnapshot(module);
  tidemark::python::BindExchange(module);
  tidemark::python::BindStepFile(module);
  tidemark::python::BindWorker(module);
}
