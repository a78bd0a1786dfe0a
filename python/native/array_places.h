// Arrays of the trainer, as the package's Python gives them to TreeState.

#ifndef TIDEMARK_PYTHON_NATIVE_ARRAY_PLACES_H_
#define TIDEMARK_PYTHON_NATIVE_ARRAY_PLACES_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "nanobind/nanobind.h"
#include "python/native/tree_state.h"

namespace tidemark::python {

// A list of arrays. Each is given as a tuple:
//
//   (name, dtype, array, changes early)                                        an array of NumPy, which is asked where
//   it is (name, dtype, shape, address, strides in bytes, changes early, device)     any other; no strides: row-major
//   and contiguous
//
// The memory stays that of the arrays: the caller keeps them alive. Every function needs the interpreter's lock, and
// raises what `Raise` does for a dtype that cannot be stored.
class ArrayList {
 public:
  void Append(nanobind::handle place);
  void Replace(size_t index, nanobind::handle place);
  // The tuple of seven.
  nanobind::object At(size_t index) const;
  size_t size() const { return arrays_.size(); }

  // Appends the arrays of a dict from `position` on, which is 0 or what was returned, up to the first item that is
  // none: whose type is not `ndarray`, whose key is no str in UTF-8, whose dtype is not in `dtypes` ({dtype: name}),
  // or, if `writable`, which is read-only or strided. Their names are `prefix` and the key. Returns the position behind
  // that item, its key and the item itself; None at the end of the dict. Appends the arrays to `owners` too. A state of
  // many small arrays takes longer to look through than to save, and this takes a third of the time that Python takes.
  nanobind::object AppendRun(const nanobind::dict& items, Py_ssize_t position, const std::string& prefix,
                             nanobind::handle ndarray, const nanobind::dict& dtypes, bool writable,
                             nanobind::list owners);

  // The indices of those whose names are keys of the dict, ascending.
  std::vector<size_t> IndicesIn(const nanobind::dict& names) const;

  const std::vector<Array>& arrays() const { return arrays_; }
  std::vector<Array> Take() { return std::exchange(arrays_, {}); }

 private:
  std::vector<Array> arrays_;
};

}  // namespace tidemark::python

#endif  // TIDEMARK_PYTHON_NATIVE_ARRAY_PLACES_H_
