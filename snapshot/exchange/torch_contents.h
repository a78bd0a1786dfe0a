// TorchContents: the tensors and values that a file of torch.save has, by its pickle. No I/O, and nothing of LibTorch.
//
// The name of an object is the path to it, joined by dots: keys of dictionaries, indices of lists, fields of LibTorch's
// archives. Objects of other Python classes are left out, with all that is in them.

#ifndef TIDEMARK_SNAPSHOT_EXCHANGE_TORCH_CONTENTS_H_
#define TIDEMARK_SNAPSHOT_EXCHANGE_TORCH_CONTENTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "snapshot/exchange/torch_pickle.h"
#include "tidemark/entry.h"

namespace tidemark {

struct TorchTensor {
  EntrySpec spec;
  uint64_t bytes = 0;
  size_t record = 0;              // in TorchContents::records
  uint64_t offset = 0;            // of the first element in the record, in elements
  std::vector<int64_t> strides;   // in elements, one for each dimension; at least 1 where a dimension has 2 or more
  std::optional<size_t> tied_to;  // the earlier tensor that is the same part of the same record
};

// A number, True, False, None or a string, or a list of these, as text. Strings are as they are; all else is JSON, with
// NaN and infinities as Python's json module writes them.
struct TorchValue {
  std::string name;
  std::string text;
};

struct TorchContents {
  std::vector<TorchTensor> tensors;
  // The names of the records that tensors lie in, once each, in the order of first use: "data/0".
  std::vector<std::string> records;
  std::vector<TorchValue> values;
  size_t left_out = 0;         // objects that are neither
  std::string first_left_out;  // its name and class, for people
};

inline constexpr size_t kTorchTensorsMax = size_t{1} << 17;

// Values are not looked for any further once their names and texts have more bytes; a list among them is cut then.
inline constexpr size_t kTorchValueBytesMax = size_t{20} << 20;

// The size of a record, nullopt if there is none of that name.
using RecordBytes = absl::FunctionRef<std::optional<uint64_t>(const std::string& record)>;

// The names begin with `prefix`, unless it is empty. Messages name the tensor.
// kInvalidArgument: there are no tensors, two have the same name, or a name breaks a rule of EntrySpec.
// kUnimplemented: sparse, quantised, expanded or subclassed tensors, a dtype that is not read, objects that refer to
// each other without end, more than kTorchTensorsMax tensors, or views of 16 times the bytes of their records.
// kDataLoss: a tensor does not lie in its record, or has arguments of the wrong kind.
absl::StatusOr<TorchContents> FindTorchContents(const Pickle& pickle, std::string_view prefix,
                                                RecordBytes record_bytes);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_EXCHANGE_TORCH_CONTENTS_H_
