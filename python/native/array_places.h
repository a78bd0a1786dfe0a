// Arrays of the trainer, as the package's Python gives them to TreeState.

#ifndef TIDEMARK_PYTHON_NATIVE_ARRAY_PLACES_H_
#define TIDEMARK_PYTHON_NATIVE_ARRAY_PLACES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nanobind/nanobind.h"
#include "python/native/tree_state.h"

namespace tidemark::python {

// A list of arrays. Each is given as a tuple:
//
//   (name, dtype, array, changes early)
//       an array of NumPy, which is asked where it is
//   (name, dtype, shape, address, strides in bytes, changes early, device)
//       any other; no strides: row-major and contiguous
//
// If the array is a box of a tensor, the shape of that and the offset of the box follow.
//
// The memory stays that of the arrays: the caller keeps them alive. Every function needs the interpreter's lock, and
// raises what `Raise` does for a dtype that cannot be stored.
//
// Most saves of a run are of the same arrays. A list that was made `After` another one expects the arrays of that, and
// shares its memory until one of them is another, or lies elsewhere. So TreeState knows by one pointer that nothing has
// changed. Nothing is taken over without comparison, for memory may have been released and be another array's.
class ArrayList {
 public:
  ArrayList() = default;
  // An empty list that expects these.
  ArrayList After() const;

  void Append(nanobind::handle place);
  void Replace(size_t index, nanobind::handle place);
  // The tuple of seven, or of nine for a box.
  nanobind::object At(size_t index) const;
  size_t size() const { return is_as_before_ ? same_ : arrays_.size(); }

  // Appends the arrays of a dict from `position` on, which is 0 or what was returned, up to the first item that is
  // none: whose type is not `ndarray`, whose key is no str in UTF-8, whose dtype is not in `dtypes` ({dtype: name}),
  // or, if `writable`, which is read-only or strided. Their names are `prefix` and the key. Returns the position behind
  // that item, its key and the item itself; None at the end of the dict. Appends the arrays to `owners` too. A state of
  // many small arrays takes longer to look through than to save, and this takes a third of the time that Python takes.
  nanobind::object AppendRun(const nanobind::dict& items, Py_ssize_t position, const std::string& prefix,
                             nanobind::handle ndarray, const nanobind::dict& dtypes, bool writable,
                             nanobind::list owners);

  // The arrays, never null; the same object as that of the list before, if they are the same arrays.
  std::shared_ptr<const std::vector<Array>> Share();

 private:
  // An array of a dict as it was when it was written down, in one cache line. A save of the same arrays compares these
  // only.
  struct Known {
    static constexpr int kDimensionsMax = 4;

    nanobind::object key;  // of the dict; null: it is compared by its Array
    nanobind::object dtype;
    const void* data = nullptr;
    int64_t shape[kDimensionsMax] = {};
    uint32_t prefix = 0;  // an index into KnownArrays::prefixes
    int32_t dimensions = 0;
  };
  struct KnownArrays {
    std::vector<Known> arrays;  // as many as there are arrays
    std::vector<std::string> prefixes;
  };
  struct Run;

  const Array& at(size_t index) const { return is_as_before_ ? (*before_)[index] : arrays_.at(index); }
  // Writes down what is as before, because something else follows.
  void Differ();
  // Takes the items of the dict from `position` on that are as before, and sets `position` behind them.
  void TakeExpected(const Run& run, Py_ssize_t& position);

  std::shared_ptr<const std::vector<Array>> before_ = std::make_shared<const std::vector<Array>>();
  std::shared_ptr<const KnownArrays> known_before_ = std::make_shared<const KnownArrays>();
  bool is_as_before_ = true;
  size_t same_ = 0;            // so many are as before
  std::vector<Array> arrays_;  // all of them, if they are not as before
  KnownArrays known_;
};

}  // namespace tidemark::python

#endif  // TIDEMARK_PYTHON_NATIVE_ARRAY_PLACES_H_
