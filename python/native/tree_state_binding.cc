// TreeState for Python. Every call that may block releases the interpreter's lock.

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "nanobind/nanobind.h"
#include "nanobind/stl/map.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/tuple.h"
#include "nanobind/stl/vector.h"
#include "python/native/array_places.h"
#include "python/native/bindings.h"
#include "python/native/device_tensors.h"
#include "python/native/interpreter_lock.h"
#include "python/native/python_functions.h"
#include "python/native/status_error.h"
#include "python/native/tree_state.h"

namespace nb = nanobind;
using namespace nb::literals;  // NOLINT: arguments' names

namespace tidemark::python {
namespace {

// Name, kind, bytes.
using ValueTuple = std::tuple<std::string, std::string, nb::bytes>;

std::vector<Value> ValuesOf(const std::vector<ValueTuple>& tuples) {
  std::vector<Value> values;
  values.reserve(tuples.size());
  for (const auto& [name, kind, bytes] : tuples) {
    Value value{.spec = {.name = name}, .bytes = std::string(bytes.c_str(), bytes.size())};
    if (kind == "int64") {
      value.spec.kind = EntryKind::kInt64;
      value.spec.dtype = Dtype::kInt64;
    } else if (kind == "double") {
      value.spec.kind = EntryKind::kDouble;
      value.spec.dtype = Dtype::kFloat64;
    } else if (kind == "bool") {
      value.spec.kind = EntryKind::kBool;
      value.spec.dtype = Dtype::kBool;
    } else {
      value.spec.kind = kind == "string" ? EntryKind::kString : EntryKind::kBytes;
      value.spec.dtype = Dtype::kUint8;
      value.spec.shape = {static_cast<int64_t>(bytes.size())};
    }
    values.push_back(std::move(value));
  }
  return values;
}

// By name: shape, offset, extent.
using BoxTuples = std::map<std::string, std::tuple<std::vector<int64_t>, std::vector<int64_t>, std::vector<int64_t>>>;

std::map<std::string, BoxBeneath> BoxesOf(BoxTuples tuples) {
  std::map<std::string, BoxBeneath> boxes;
  for (auto& [name, box] : tuples) {
    auto& [shape, offset, extent] = box;
    boxes[name] = {.shape = std::move(shape), .offset = std::move(offset), .extent = std::move(extent)};
  }
  return boxes;
}

// Null for None.
std::shared_ptr<DeviceTensors> DevicesOf(nb::object object) {
  return object.is_none() ? nullptr : std::make_shared<DeviceTensors>(std::move(object));
}

}  // namespace

void BindTreeState(nb::module_& module) {
  module.def(
      "memory_at",
      [](uint64_t address, size_t bytes) {
        constexpr int kWritable = 0x200;  // PyBUF_WRITE, whose name the stable ABI has from Python 3.11 on
        return nb::steal(
            PyMemoryView_FromMemory(reinterpret_cast<char*>(address), static_cast<Py_ssize_t>(bytes), kWritable));
      },
      "The memory itself, which must live as long as the result.");
  nb::class_<ArrayList>(module, "ArrayList")
      .def(nb::init<>())
      .def("after", &ArrayList::After, "An empty list that expects these arrays, if they were shared with a state.")
      .def("append", &ArrayList::Append)
      .def("append_run", &ArrayList::AppendRun)
      .def("__getitem__", &ArrayList::At)
      .def("__setitem__", &ArrayList::Replace)
      .def("__len__", &ArrayList::size);

  nb::class_<TreeState>(module, "TreeState")
      .def(nb::init<>())
      .def(
          "set_entries",
          [](TreeState& state, ArrayList& arrays, const std::vector<ValueTuple>& values, nb::object devices) {
            std::shared_ptr<const std::vector<Array>> native_arrays = arrays.Share();
            std::vector<Value> native_values = ValuesOf(values);
            std::shared_ptr<DeviceTensors> native_devices = DevicesOf(std::move(devices));
            absl::Status status;
            {
              const Unlocked unlocked;
              status = state.SetEntries(std::move(native_arrays), std::move(native_values), std::move(native_devices));
            }
            RaiseUnlessOk(status);
          },
          "arrays"_a, "values"_a, "devices"_a.none() = nb::none())
      .def(
          "set_destinations",
          [](TreeState& state, ArrayList& arrays, std::vector<std::string> values, std::vector<std::string> open,
             bool converts, nb::object devices, BoxTuples boxes, nb::object look) {
            std::shared_ptr<const std::vector<Array>> native_arrays = arrays.Share();
            std::shared_ptr<DeviceTensors> native_devices = DevicesOf(std::move(devices));
            ValuesLook native_look = ValuesLookOf(std::move(look));
            const Unlocked unlocked;
            state.SetDestinations(std::move(native_arrays), std::move(values), std::move(open),
                                  BoxesOf(std::move(boxes)), converts, std::move(native_devices),
                                  std::move(native_look));
          },
          "arrays"_a, "values"_a, "open"_a, "converts"_a = false, "devices"_a.none() = nb::none(),
          "boxes"_a = BoxTuples(), "look"_a.none() = nb::none())
      .def("may_be_in", [](const TreeState& state, ArrayList& arrays) { return state.MayBeIn(*arrays.Share()); })
      .def("await_staging",
           [](const TreeState& state) {
             const Unlocked unlocked;
             state.AwaitStaging();
           })
      .def("differences",
           [](const TreeState& state) {
             const Differences& found = state.differences();
             return std::make_tuple(found.missing, found.unexpected, found.reshaped, found.retyped);
           })
      .def(
          "take_received",
          [](TreeState& state) {
            nb::dict out;
            for (const auto& [name, received] : state.TakeReceived()) out[name.c_str()] = TupleOf(received);
            return out;
          },
          "{name: (kind, dtype, shape, bytes)}")
      .def(
          "take_converted",
          [](TreeState& state) {
            nb::dict out;
            for (const auto& [index, received] : state.TakeConverted()) out[nb::cast(index)] = TupleOf(received);
            return out;
          },
          "{index of the array: (kind, dtype, shape, bytes)} of arrays that have another dtype in the checkpoint.");
}

}  // namespace tidemark::python
