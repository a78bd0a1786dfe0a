#include "python/native/array_places.h"

#include <algorithm>
#include <array>
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
  static constexpr int kWritable = 0x400;

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

// The head of an array of NumPy 1 and 2 in memory, which the macros of NumPy's headers have compiled into every
// extension.
struct NumpyArray {
  PyObject head;
  void* data;
  int dimensions;
  const intptr_t* shape;
  const intptr_t* strides;
  PyObject* base;
  PyObject* dtype;
  int flags;
};

const NumpyArray& MemoryOf(nb::handle array) { return *reinterpret_cast<const NumpyArray*>(array.ptr()); }

// Few numbers, for which a call of memcmp takes longer.
bool HasShape(const NumpyArray& array, const int64_t* shape) {
  int64_t difference = 0;
  for (int i = 0; i < array.dimensions; ++i) difference |= array.shape[i] ^ shape[i];
  return difference == 0;
}

// Sets all but the dtype.
void PlaceFrom(const NumpyArray& array, Array& out) {
  out.data = static_cast<std::byte*>(array.data);
  out.spec.shape.assign(array.shape, array.shape + array.dimensions);
  if ((array.flags & ArrayInterface::kContiguous) == 0) {
    out.strides.assign(array.strides, array.strides + array.dimensions);
  }
}

// Whether what is there is what NumPy's array interface says of the array: then it is so of all arrays of this NumPy.
bool IsAsKnown(const NumpyArray& there, const Array& array, const nb::handle dtype, int flags) {
  constexpr int kCompared = ArrayInterface::kContiguous | ArrayInterface::kWritable;
  return there.data == array.data && there.dtype == dtype.ptr() && ((there.flags ^ flags) & kCompared) == 0 &&
         static_cast<size_t>(there.dimensions) == array.spec.shape.size() &&
         std::equal(array.spec.shape.begin(), array.spec.shape.end(), there.shape);
}

// Sets all but the dtype. Returns the flags.
int PlaceInMemory(const nb::handle array, const nb::str& attribute, Array& out) {
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
  return found->flags;
}

Dtype DtypeOf(const std::string& dtype, const std::string& entry) {
  const DtypeInfo* const found = FindDtype(dtype);
  if (found == nullptr) {
    Raise(absl::UnimplementedError("entry '" + entry + "': the dtype " + dtype + " cannot be stored"));
  }
  return found->dtype;
}

Array ArrayOf(const nb::handle place) {
  const auto fields = nb::borrow<nb::tuple>(place);
  Array array{.spec = {.name = nb::cast<std::string>(fields[0]), .kind = EntryKind::kTensor}};
  array.spec.dtype = DtypeOf(nb::cast<std::string>(fields[1]), array.spec.name);
  const bool is_numpy = fields.size() == 4 || fields.size() == 6;
  if (is_numpy) {
    PlaceInMemory(fields[2], nb::str("__array_struct__"), array);
    array.changes_early = nb::cast<bool>(fields[3]);
  } else {
    array.spec.shape = nb::cast<std::vector<int64_t>>(fields[2]);
    array.data = reinterpret_cast<std::byte*>(nb::cast<uint64_t>(fields[3]));
    array.strides = nb::cast<std::vector<int64_t>>(fields[4]);
    array.changes_early = nb::cast<bool>(fields[5]);
    array.device = nb::cast<std::string>(fields[6]);
  }
  if (const size_t box = is_numpy ? 4 : 7; fields.size() > box) {
    array.spec.box_extent = std::move(array.spec.shape);
    array.spec.shape = nb::cast<std::vector<int64_t>>(fields[box]);
    array.spec.box_offset = nb::cast<std::vector<int64_t>>(fields[box + 1]);
  }
  return array;
}

}  // namespace

ArrayList ArrayList::After() const {
  ArrayList next;
  if (is_as_before_ && same_ == before_->size()) {
    next.before_ = before_;
    next.known_before_ = known_before_;
  }
  return next;
}

void ArrayList::Differ() {
  if (!is_as_before_) return;
  const auto same = static_cast<std::ptrdiff_t>(same_);
  arrays_.reserve(before_->size());
  arrays_.assign(before_->begin(), before_->begin() + same);
  known_.arrays.reserve(before_->size());
  known_.arrays.assign(known_before_->arrays.begin(), known_before_->arrays.begin() + same);
  known_.prefixes = known_before_->prefixes;
  is_as_before_ = false;
}

void ArrayList::Append(nb::handle place) {
  Array array = ArrayOf(place);
  if (is_as_before_ && same_ < before_->size() && (*before_)[same_] == array) {
    ++same_;
    return;
  }
  Differ();
  arrays_.push_back(std::move(array));
  known_.arrays.emplace_back();
}

void ArrayList::Replace(size_t index, nb::handle place) {
  Differ();
  arrays_.at(index) = ArrayOf(place);
  known_.arrays.at(index) = {};
}

nb::object ArrayList::At(size_t index) const {
  if (index >= size()) throw nb::index_error();
  const Array& array = at(index);
  const nb::tuple place =
      nb::make_tuple(array.spec.name, std::string(GetDtypeInfo(array.spec.dtype).name), array.spec.held_shape(),
                     reinterpret_cast<uint64_t>(array.data), array.strides, array.changes_early, array.device);
  if (array.spec.whole()) return place;
  return place + nb::make_tuple(array.spec.shape, array.spec.box_offset);
}

// A dict whose arrays are expected to be those of the list before.
struct ArrayList::Run {
  const nb::dict& items;
  nb::handle ndarray;
  uint32_t prefix;  // an index into the prefixes before
  nb::list& owners;
};

// No code of Python runs here, so the dict stays as it is and the references may be borrowed. Most of the time goes to
// waiting for memory: each array lies somewhere else, and its shape elsewhere again. So some are fetched ahead.
void ArrayList::TakeExpected(const Run& run, Py_ssize_t& position) {
  struct Item {
    PyObject* key;
    PyObject* value;
    Py_ssize_t behind;
  };
  constexpr size_t kAhead = 64;
  std::array<Item, kAhead> ahead;
  const auto is_array = [&](const Item& item) {
    return Py_TYPE(item.value) == reinterpret_cast<PyTypeObject*>(run.ndarray.ptr());
  };
  while (same_ < before_->size()) {
    size_t count = 0;
    Py_ssize_t next = position;
    while (count < std::min(kAhead, before_->size() - same_) &&
           PyDict_Next(run.items.ptr(), &next, &ahead[count].key, &ahead[count].value) != 0) {
      ahead[count].behind = next;
      const auto* const memory = reinterpret_cast<const char*>(ahead[count].value);
      __builtin_prefetch(memory, 1);  // its reference will be counted
      __builtin_prefetch(memory + offsetof(NumpyArray, flags));
      ++count;
    }
    if (count == 0) return;
    for (size_t i = 0; i < count; ++i) {
      if (is_array(ahead[i])) __builtin_prefetch(MemoryOf(ahead[i].value).shape);
    }
    for (size_t i = 0; i < count; ++i) {
      if (!is_array(ahead[i])) return;
      const Known& known = known_before_->arrays[same_];
      const NumpyArray& array = MemoryOf(ahead[i].value);
      if (known.key.ptr() != ahead[i].key || known.prefix != run.prefix || known.data != array.data ||
          known.dtype.ptr() != array.dtype || known.dimensions != array.dimensions ||
          (array.flags & ArrayInterface::kContiguous) == 0 || !HasShape(array, known.shape)) {
        return;
      }
      run.owners.append(nb::handle(ahead[i].value));
      ++same_;
      position = ahead[i].behind;
    }
  }
}

nb::object ArrayList::AppendRun(const nb::dict& items, Py_ssize_t position, const std::string& prefix,
                                nb::handle ndarray, const nb::dict& dtypes, bool writable, nb::list owners) {
  const nb::str interface("__array_struct__");
  const nb::str dtype_attribute("dtype");
  nb::object last_dtype;  // most arrays have that of the one before
  Dtype dtype = Dtype::kUint8;
  // To ask NumPy for the dtype and the place of an array takes longer than everything else here.
  bool is_as_known = false;
  // As an index into the prefixes before, and into those of this list; none: not looked for yet, or not there.
  constexpr uint32_t kNone = 0xffffffff;
  uint32_t prefix_before = kNone;
  uint32_t own_prefix = kNone;
  if (is_as_before_ && same_ < before_->size()) {
    const uint32_t expected = known_before_->arrays[same_].prefix;
    if (expected < known_before_->prefixes.size() && known_before_->prefixes[expected] == prefix) {
      prefix_before = expected;
    }
  }
  PyObject* key = nullptr;
  PyObject* item = nullptr;
  while (true) {
    if (is_as_known && is_as_before_ && !writable && prefix_before != kNone) {
      TakeExpected({items, ndarray, prefix_before, owners}, position);
    }
    if (PyDict_Next(items.ptr(), &position, &key, &item) == 0) return nb::none();
    // Borrowed from the dict, which Python may change when it is called.
    const nb::object name = nb::borrow(key);
    const nb::object array = nb::borrow(item);
    const auto other = [&] { return nb::make_tuple(position, name, array); };
    if (!array.type().is(ndarray) || PyUnicode_CheckExact(key) == 0) return other();
    nb::object of_array =
        is_as_known ? nb::borrow(MemoryOf(array).dtype) : nb::object(nb::getattr(array, dtype_attribute));
    if (!last_dtype.is(of_array)) {
      if (!dtypes.contains(of_array)) return other();
      last_dtype = std::move(of_array);
      dtype = DtypeOf(nb::cast<std::string>(dtypes[last_dtype]), prefix);
    }
    Py_ssize_t bytes = 0;
    const char* const text = PyUnicode_AsUTF8AndSize(key, &bytes);
    if (text == nullptr) {
      PyErr_Clear();  // UTF-8 does not have the key: the caller refuses it
      return other();
    }
    Array found{.spec = {.kind = EntryKind::kTensor, .dtype = dtype}};
    found.spec.name.reserve(prefix.size() + static_cast<size_t>(bytes));
    found.spec.name.append(prefix).append(text, static_cast<size_t>(bytes));
    int flags = 0;
    if (is_as_known) {
      PlaceFrom(MemoryOf(array), found);
      flags = MemoryOf(array).flags;
    } else {
      flags = PlaceInMemory(array, interface, found);
      is_as_known = IsAsKnown(MemoryOf(array), found, last_dtype, flags);
    }
    if (writable && (!found.strides.empty() || (flags & ArrayInterface::kWritable) == 0)) return other();
    owners.append(array);
    if (is_as_before_ && same_ < before_->size() && (*before_)[same_] == found) {
      const nb::object& known_key = known_before_->arrays[same_].key;
      // Otherwise it is written down anew, so that the next save knows the key.
      if (known_key.ptr() == nullptr || known_key.is(name)) {
        ++same_;
        continue;
      }
    }
    Differ();
    if (own_prefix == kNone) {
      own_prefix = static_cast<uint32_t>(known_.prefixes.size());
      known_.prefixes.push_back(prefix);
      if (const size_t wanted = arrays_.size() + items.size(); wanted > arrays_.capacity()) {
        arrays_.reserve(std::max(wanted, 2 * arrays_.capacity()));
        known_.arrays.reserve(arrays_.capacity());
      }
    }
    Known known{.prefix = own_prefix};
    if (is_as_known && found.strides.empty() && found.spec.shape.size() <= Known::kDimensionsMax) {
      known.key = name;
      known.data = found.data;
      std::copy(found.spec.shape.begin(), found.spec.shape.end(), known.shape);
      known.dimensions = static_cast<int32_t>(found.spec.shape.size());
      known.dtype = last_dtype;
    }
    known_.arrays.push_back(std::move(known));
    arrays_.push_back(std::move(found));
  }
}

std::shared_ptr<const std::vector<Array>> ArrayList::Share() {
  if (!is_as_before_ || same_ < before_->size()) {
    Differ();
    same_ = arrays_.size();
    before_ = std::make_shared<const std::vector<Array>>(std::exchange(arrays_, {}));
    known_before_ = std::make_shared<const KnownArrays>(std::exchange(known_, {}));
    is_as_before_ = true;
  }
  return before_;
}

}  // namespace tidemark::python
