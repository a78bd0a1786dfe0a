// Arrays of the trainer, as the package's Python gives them to TreeState.

#ifndef TIDEMARK_PYTHON_NATIVE_ARRAY_PLACES_H_
#define TIDEMARK_PYTHON_NATIVE_ARRAY_PLACES_H_

#include <vector>

#include "nanobind/nanobind.h"
#include "python/native/tree_state.h"

namespace tidemark::python {

// Each element is a tuple:
//
//   (name, dtype, array, changes early)                                an array of NumPy, which is asked where it lies
//   (name, dtype, shape, address, strides in bytes, changes early)     any other; no strides: row-major and contiguous
//
// The memory stays that of the arrays: the caller keeps them alive. Needs the interpreter's lock. Raises what `Raise`
// does for a dtype that cannot be stored.
std::vector<Array> ArraysOf(const nanobind::list& places);

}  // namespace tidemark::python

#endif  // TIDEMARK_PYTHON_NATIVE_ARRAY_PLACES_H_
