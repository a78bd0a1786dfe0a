#include "python/native/array_places.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/vector.h"
#include "python/native/status_error.h"

namespace nb = nanobind;

namespace tidemark::python {
namespace {

// What NumPy's `__array_struct__` points to: the C side of its array interface, version 3.
struct ArrayInterface {
  static constexpr int kContiguous = 1;  // row-major, in `flags`

  int two;  // 2
  int dimensions;
  char kind;
  int element_bytes;
  int flags;
  const intptr_t* shape;
  const intptr_t* strides;
  void* data;
  PyObject* description;
};

void PlaceInMemory(const nb::handle array, const nb::str& attribute, Array& out) {
  const nb::object capsule = nb::getattr(array, attribute);
  const auto* found = static_cast<const ArrayInterface*>(PyCapsule_GetPointer(capsule.ptr(), nullptr));
  if (found == nullptr) throw nb::python_error();
  if (found->two != 2) {
    Raise(absl::InternalError("entry '" + out.spec.name + "': NumPy's array interface is another one"));
  }
  out.data = static_cast<std::byte*>(found->data);
  out.spec.shape.assign(found->shape, found->shape + found->dimensions);
  if ((found->flags & ArrayInterface::kContiguous) == 0) {
    out.strides.assign(found->strides, found->strides + found->dimensions);
  }
}

}  // namespace

std::vector<Array> ArraysOf(const nb::list& places) {
  std::vector<Array> arrays;
  arrays.reserve(places.size());
  nb::object last_name;  // of a dtype: most arrays have that of the one before
  const DtypeInfo* dtype = nullptr;
  const nb::str attribute("__array_struct__");
  for (const nb::handle place : places) {
    const auto fields = nb::borrow<nb::tuple>(place);
    Array array{.spec = {.name = nb::cast<std::string>(fields[0]), .kind = EntryKind::kTensor}};
    if (!last_name.is(fields[1])) {
      last_name = fields[1];
      dtype = FindDtype(nb::cast<std::string>(last_name));
    }
    if (dtype == nullptr) {
      Raise(absl::UnimplementedError("entry '" + array.spec.name + "': the dtype " + nb::cast<std::string>(last_name) +
                                     " cannot be stored"));
    }
    array.spec.dtype = dtype->dtype;
    if (fields.size() == 4) {
      PlaceInMemory(fields[2], attribute, array);
      array.changes_early = nb::cast<bool>(fields[3]);
    } else {
      array.spec.shape = nb::cast<std::vector<int64_t>>(fields[2]);
      array.data = reinterpret_cast<std::byte*>(nb::cast<uint64_t>(fields[3]));
      array.strides = nb::cast<std::vector<int64_t>>(fields[4]);
      array.changes_early = nb::cast<bool>(fields[5]);
      array.device = nb::cast<std::string>(fields[6]);
    }
    arrays.push_back(std::move(array));
  }
  return arrays;
}

}  // namespace tidemark::python
